"""A fitted model at work: iterations measured, planned, and carried out block by block."""

import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import nn

from forebay.errors import BudgetError
from forebay.metrics import Metrics
from forebay.torch.advice import KEPT, NONE_CALLED, SEVERAL_GRAPHS, beyond
from forebay.torch.execution_context import Autocast, default_saving
from forebay.torch.fitting.choices import TREATMENTS
from forebay.torch.fitting.device_tools import DeviceTools
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.iteration import Beginning, Iteration, IterationKey, IterationProgress, ModelCall, learn
from forebay.torch.fitting.measurement import measure
from forebay.torch.fitting.neighbours import bare, group_of, note_follower
from forebay.torch.fitting.planning import STEPS_EACH
from forebay.torch.fitting.profile import FitPhase, Profile
from forebay.torch.fitting.record import BlockRecord, signature
from forebay.torch.fitting.shapes import ShapeProfiles
from forebay.torch.fitting.treatment import end_pass, hook_outputs, leave, reach, treat
from forebay.torch.replay.arguments import Inputs, beyond_containers, tensors_in
from forebay.torch.replay.block import FittedBlock
from forebay.torch.replay.frame import Frame
from forebay.torch.replay.module_state import flags_of


class FittingSession:
    """The state of a fitted model."""

    def __init__(self, make_tools: Callable[[torch.device], DeviceTools]) -> None:
        self._make_tools = make_tools
        self.blocks: WeakValueDictionary[int, FittedBlock] = WeakValueDictionary()
        """the blocks, by the identities of their modules"""
        self._profiles = ShapeProfiles()
        self._iteration: Iteration | None = None
        self._unread: list[Iteration] = []  # those that ended after another had begun, and whose times nobody has read
        self._call = ModelCall()
        self._told: set[str] = set()
        self._refused: set[int] = set()  # the identities of blocks that cannot be run again as they were
        self._tools: DeviceTools | None = None

    @property
    def metrics(self) -> Metrics:
        """What moved so far."""
        return self._tools.store.metrics if self._tools else Metrics(title="saved tensors")

    def plan(self) -> FitPlan | None:
        """Return the plan for the shapes that came last, with the times that were read last."""
        iteration, tools = self._iteration, self._tools
        if iteration is None or tools is None:
            return None
        self._read_ended(iteration.began.base)
        with self._refusing(iteration.followed) as profile:
            self._profiles[iteration.followed], plan = tools.planner.current(profile, iteration.began.base)
        return None if plan is None else replace(plan, metrics=self.metrics)

    def close(self) -> None:
        """Let go of what iterations to come would have used."""
        self._profiles = ShapeProfiles()
        self._iteration, self._unread = None, []
        self._tools = None

    # What the model and its blocks call.

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take note that the model is called, and with what."""
        last = self._iteration
        settled = last is not None and self._profiles[last.followed].phase is FitPhase.STAY
        timed = self._tools is not None and torch.is_grad_enabled() and not settled
        start = self._tools.gauge.mark() if timed and self._tools is not None else None
        self._call = ModelCall(True, signature(tensors_in((args, kwargs))), start)

    def ran(self) -> None:
        """Take note that the model has returned: what moves leaves, as nobody need be told that backward begins."""
        iteration, tools = self._iteration, self._tools
        if iteration is not None and iteration.plan is not None and tools is not None and not self._call.begins:
            plan, ran = iteration.plan, iteration.next_place
            # What has to be gone by the last block's backward; on a shorter way, all that was sent.
            whole = ran == len(plan.picks)
            leave(tools.store, iteration, plan.foreseen.leave[-1] if whole else bisect_left(plan.moving, ran))
        if not self._call.ran_blocks and torch.is_grad_enabled():
            self._tell(NONE_CALLED.format(", ".join(block.name for block in self.blocks.values())))

    def call(self, block: FittedBlock, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a block as the plan says."""
        self._note_block()
        if not default_saving():
            return block.call(*args, **kwargs)
        tensors = tensors_in((args, kwargs) if kwargs else args)
        if not block.differentiable(tensors):
            return block.call(*args, **kwargs)
        return self._run(self._iteration_of(block, tensors), block, Inputs(args, kwargs, tensors))

    def along(self, sequence: nn.Sequential, value: Any) -> Any:
        """Run the modules of an `nn.Sequential`: blocks that are taken together as one, all others one by one."""
        at, count, before = 0, len(sequence._modules), None
        while at < count:
            modules: list[Any] = list(sequence._modules.values())  # one may have replaced another
            if len(modules) != count:
                raise RuntimeError("modules were added to an nn.Sequential, or taken from it, while it ran")
            group = self._group(modules, at, value)
            if group is None:
                value = modules[at](value)
                measured = self._iteration.records if self._iteration and self._iteration.plan is None else []
                before = note_follower(measured, modules[at], before)
                at += 1
            else:
                self._note_block()
                iteration, block, tensors = group
                value = self._run(iteration, block, Inputs((value,), {}, tensors))
                at += block.count
        return value

    def _group(
        self, modules: Sequence[nn.Module], at: int, value: Any
    ) -> tuple[Iteration, FittedBlock, list[torch.Tensor]] | None:
        """Return the group that begins with a block, where it can be run as such, with its iteration and inputs."""
        first = self.blocks.get(id(modules[at])) if self._iteration else None
        if first is None or not default_saving():
            return None
        tensors = tensors_in(value)
        if not first.differentiable(tensors):
            return None
        iteration = self._iteration_of(first, tensors)
        wanted = (iteration.profile.together or {}).get(id(first.module), ())
        members = modules[at : at + len(wanted)]
        if not wanted or tuple(map(id, members)) != wanted or not all(map(bare, members)):
            return None
        group = self._profiles.groups.get(wanted)
        if group is None:
            if not all(identity in self.blocks for identity in wanted):
                return None
            group = self._profiles.groups[wanted] = group_of([self.blocks[identity] for identity in wanted])
        return iteration, group, tensors

    def _note_block(self) -> None:
        if not self._call.ran_blocks:
            self._call = self._call._replace(ran_blocks=True)

    # Iterations.

    def _iteration_of(self, block: FittedBlock, tensors: list[torch.Tensor]) -> Iteration:
        """Return the iteration that a block belongs to, a new one where it begins it."""
        last = self._iteration
        if self._call.begins or last is None or last.progress.task is not None or last.dropped:
            return self._begin_iteration(block, tensors)
        return last

    def _begin_iteration(self, block: FittedBlock, tensors: list[torch.Tensor]) -> Iteration:
        """Begin an iteration: one that is measured, or one with a plan."""
        device, call, last = block.device(tensors), self._call, self._iteration
        tools = self._tools
        if tools is None or tools.gauge.device != device:
            tools = self._tools = self._make_tools(device)
            self._profiles, call = ShapeProfiles(), call._replace(start=None)
        gauge = tools.gauge
        arrived = None if call.start is None else gauge.mark()
        # Always at the first block: before the first iteration of all nobody knows what is in front of it.
        base = gauge.allocated()
        self._read_ended(base)
        if last is not None:
            self._profiles.note(last)
            if last.progress.task is None and last.alive:
                self._tell(SEVERAL_GRAPHS)
        flags = flags_of([each.module_state for each in self.blocks.values()])
        key = IterationKey(signature(tensors), Autocast.now(device), flags, call.signature)
        followed = self._profiles.find(key)
        own = followed is key
        with self._refusing(followed) as profile:
            if own or profile.phase is FitPhase.STAY:
                profile = tools.planner.advance(profile, base)
        measuring = profile.plan is None
        timed = own and (measuring or (profile.phase is FitPhase.TRY and profile.begun > 0))
        if measuring:
            gauge.peak()
        # Times may just have been read, or a plan made, whose seconds are none of the step's.
        start = gauge.mark() if timed else None
        ahead = (start, start) if arrived is None else (call.start, arrived)
        watched = not measuring and (not own or profile.begun < STEPS_EACH)
        most = gauge.most() if watched else 0
        self._profiles[followed] = profile = profile.begin() if own else profile
        progress = IterationProgress([] if timed else None)
        began, plan, blocks = Beginning(gauge, base, most, ahead, start), profile.plan, profile.blocks
        iteration = Iteration(key, followed, own, profile, plan, blocks, call.begins, began, progress)
        self._iteration, self._call = iteration, call._replace(begins=False, start=None)
        tools.store.restart()
        return iteration

    def _read_ended(self, base: int) -> None:
        """Take over what iterations tell that have ended, with so many bytes of the device in use now."""
        ended = [*self._unread, *([] if self._iteration is None else [self._iteration])]
        self._unread = []
        # Of several that one backward pass was for, the last.
        last = {(iteration.followed, iteration.progress.task): iteration for iteration in ended}
        for (key, _), iteration in last.items():
            assert self._tools is not None
            budget = self._tools.planner.budget["device"]
            self._profiles[key] = learn(iteration, self._profiles[key], self._refused, base, budget)

    @contextmanager
    def _refusing(self, key: IterationKey) -> Iterator[Profile]:
        """Lend a profile to be planned for, and note in it that this has failed."""
        profile = self._profiles[key]
        try:
            yield profile
        except BudgetError:
            self._profiles[key] = profile.refuse()
            raise

    # Blocks of an iteration.

    def _run(self, iteration: Iteration, block: FittedBlock, inputs: Inputs) -> Any:
        """Run a block of an iteration."""
        number, tools = len(iteration.records), self._tools
        assert tools is not None
        record = BlockRecord(block.name, block.identity, signature(inputs.tensors), block.count)
        refuse = partial(self._refuse, record)
        if (plan := iteration.plan) is None:
            refused = not self._check(block, record, inputs, True)
            output = measure(tools, iteration, block, inputs, record, refused, refuse, self._tell)
        else:
            place = iteration.place_of(record.module, record.signature)
            keeping = place is not None and TREATMENTS[plan.picks[place].name].what == "all"
            # A block that no measured iteration has met is kept: nobody has seen what a second run of it computes.
            met = place is not None or any(expected.module == record.module for expected in iteration.expected)
            again = met and not keeping and self._check(block, record, inputs)
            place = place if keeping or again else None
            iteration.places.append(place)
            iteration.records.append(record)
            if place is not None:
                output = treat(tools, iteration, place, block, inputs, refuse)
                leave(tools.store, iteration, plan.foreseen.settle[place + 1])
            elif again:  # with inputs that the plan does not know
                output = Frame(block, inputs, refuse).run(inputs)
            else:
                output = block.call(*inputs.args, **inputs.kwargs)
        hook_outputs(iteration, inputs.tensors, output, lambda: self._reach(iteration, number))
        return output

    def _tell(self, message: str) -> None:
        """Warn of something once."""
        if message not in self._told:
            self._told.add(message)
            warnings.warn(message, stacklevel=3)

    def _refuse(self, record: BlockRecord, why: str) -> None:
        """Have a block kept from now on, which cannot be run again as it was."""
        self._refused.add(record.module)
        self._tell(KEPT.format(record.name, why))

    def _check(self, block: FittedBlock, record: BlockRecord, inputs: Inputs, measured: bool = False) -> bool:
        """Tell whether a block can be run again, with what it is given."""
        if block.identity in self._refused:
            return False
        if (kind := beyond_containers((inputs.args, inputs.kwargs))) is not None:
            self._refuse(record, beyond(kind))
        elif measured and (why := block.module_state.beyond()) is not None:
            self._refuse(record, why)
        return block.identity not in self._refused

    def _reach(self, iteration: Iteration, number: int) -> None:
        """Come to a block in a backward pass."""
        if self._tools is not None and reach(self._tools, iteration, number, lambda: self._end(iteration)):
            self._profiles[iteration.key] = self._profiles[iteration.key].meet_loss()

    def _end(self, iteration: Iteration) -> None:
        if self._tools is None:
            return
        if iteration.progress.marks is not None and iteration is not self._iteration and iteration not in self._unread:
            self._unread.append(iteration)
        most = end_pass(iteration)
        if most and iteration.plan is not None:
            if iteration.as_planned:
                self._profiles[iteration.key] = self._profiles[iteration.key].weigh(iteration.plan, most)
            elif not iteration.own and most > iteration.plan.budget["device"]:
                self._profiles.part(iteration.key)
