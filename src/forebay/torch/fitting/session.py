"""A fitted model at work: iterations measured, planned, and carried out block by block."""

import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import nn

from forebay.errors import BudgetError
from forebay.torch.context import Autocast, default_saving
from forebay.torch.fitting.carrying import treat
from forebay.torch.fitting.facts import TREATMENTS, BlockRecord, Signature, signature
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.iteration import Beginning, Iteration, IterationProgress
from forebay.torch.fitting.measurement import BEYOND, measure
from forebay.torch.fitting.neighbours import bare, group_of
from forebay.torch.fitting.planning import STEPS_EACH
from forebay.torch.fitting.profile import FitPhase, IterationKey, Profile
from forebay.torch.fitting.tools import DeviceTools
from forebay.torch.replay.arguments import Inputs, beyond_containers, tensors_in
from forebay.torch.replay.block import FittedBlock
from forebay.torch.replay.frame import Frame
from forebay.torch.replay.module_state import flags_of

NONE_CALLED = (
    "the model called none of its blocks ({:.80}): it trains as if it were not fitted. Name those that it calls with "
    "blocks=..."
)
SEVERAL_GRAPHS = (
    "a fitted model runs forward while the graph of its last forward pass waits for a backward pass: each takes the "
    "memory of a plan, and several together more than the budget. Run backward before the next forward, or divide the "
    "budget by the graphs that are alive at once"
)


class ModelCall(NamedTuple):
    """One call of the model."""

    begins: bool = False
    """whether none of its blocks has begun an iteration yet"""
    signature: Signature = ()
    """of what it was called with"""
    start: Any = None
    """the moment; None where nothing is timed"""
    ran_blocks: bool = False


class FittingSession:
    """The state of a fitted model."""

    def __init__(self, make_tools: Callable[[torch.device], DeviceTools]) -> None:
        self._make_tools = make_tools
        self.blocks: WeakValueDictionary[int, FittedBlock] = WeakValueDictionary()
        """the blocks, by the identities of their modules"""
        self._tools: DeviceTools | None = None
        self._iteration: Iteration | None = None
        self._ended: dict[Any, Iteration] = {}  # those whose times nobody has read, by profiles and backward passes
        self._call = ModelCall()
        self._told: set[str | int] = set()  # warnings, and identities of blocks that cannot be run again as they were

    @property
    def closed(self) -> bool:
        """Whether the model has been given back."""
        return self._make_tools is _none

    def plan(self) -> FitPlan | None:
        """Return the plan for the shapes that came last, with the times that were read last."""
        iteration = self._iteration
        if iteration is None:
            return None
        tools, base = iteration.tools, iteration.began.base
        self._read_ended(base)
        with self._refusing(tools, iteration.followed) as profile:
            tools.profiles[iteration.followed], plan = tools.planner.current(profile, base)
        return None if plan is None else replace(plan, metrics=tools.store.metrics)

    def close(self) -> None:
        """Let go of what iterations to come would have used, and of all that holds blocks."""
        if self._tools is not None:
            self._tools.groups.clear()
        self._make_tools, self._tools, self._iteration, self._ended = _none, None, None, {}

    # What the model and its blocks call.

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take note that the model is called, and with what."""
        last, tools = self._iteration, self._tools
        settled = last is not None and last.tools.profiles[last.followed].phase is FitPhase.STAY
        start = tools.gauge.mark() if tools is not None and torch.is_grad_enabled() and not settled else None
        self._call = ModelCall(True, signature(tensors_in((args, kwargs))), start)

    def ran(self) -> None:
        """Take note that the model has returned: what moves leaves, as nobody need be told that backward begins."""
        iteration = self._iteration
        if iteration is not None and iteration.plan is not None and not self._call.begins:
            plan, ran = iteration.plan, iteration.next_place
            # What has to be gone by the last block's backward; on a shorter way, all that was sent.
            whole = ran == len(plan.picks)
            iteration.leave(plan.foreseen.leave[-1] if whole else bisect_left(plan.moving, ran))
        if not self._call.ran_blocks and torch.is_grad_enabled():
            self._tell(NONE_CALLED.format(", ".join(block.name for block in self.blocks.values())))

    def call(self, block: FittedBlock, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a block as the plan says."""
        self._note_block()
        tensors = tensors_in((args, kwargs) if kwargs else args)
        iteration = self._iteration_of(block, tensors)
        if iteration is None:
            return block.call(*args, **kwargs)
        return self._run(iteration, block, Inputs(args, kwargs, tensors))

    def along(self, sequence: nn.Sequential, value: Any) -> Any:
        """Run the modules of an `nn.Sequential`: blocks that are taken together as one, all others one by one."""
        at, count = 0, len(sequence._modules)
        while at < count:
            modules: list[Any] = list(sequence._modules.values())  # one may have replaced another
            if len(modules) != count:
                raise RuntimeError("modules were added to an nn.Sequential, or taken from it, while it ran")
            first, tensors = self.blocks.get(id(modules[at])), tensors_in(value)
            iteration = self._iteration_of(first, tensors) if first is not None and self._iteration else None
            group = None if iteration is None else self._group(iteration, modules, at)
            if iteration is None or group is None:
                value = modules[at](value)
                at += 1
            else:
                self._note_block()
                value = self._run(iteration, group, Inputs((value,), {}, tensors))
                at += group.count
        return value

    def _group(self, iteration: Iteration, modules: Sequence[nn.Module], at: int) -> FittedBlock | None:
        """Return the group that begins with a block, where it can be run as such."""
        wanted = (iteration.profile.together or {}).get(id(modules[at]), ())
        members, groups = modules[at : at + len(wanted)], iteration.tools.groups
        if not wanted or tuple(map(id, members)) != wanted or not all(map(bare, members)):
            return None
        if wanted not in groups and all(identity in self.blocks for identity in wanted):
            groups[wanted] = group_of([self.blocks[identity] for identity in wanted])
        return groups.get(wanted)

    def _note_block(self) -> None:
        if not self._call.ran_blocks:
            self._call = self._call._replace(ran_blocks=True)

    # Iterations.

    def _iteration_of(self, block: FittedBlock, tensors: list[torch.Tensor]) -> Iteration | None:
        """Return the iteration that a block belongs to, a new one where it begins it; None where all is as it was."""
        if self.closed or not default_saving() or not block.differentiable(tensors):
            return None
        last = self._iteration
        return self._begin_iteration(block, tensors) if self._call.begins or last is None or last.ended else last

    def _begin_iteration(self, block: FittedBlock, tensors: list[torch.Tensor]) -> Iteration:
        """Begin an iteration: one that is measured, or one with a plan."""
        device, call, last, tools = block.device(tensors), self._call, self._iteration, self._tools
        if tools is None or tools.gauge.device != device:
            tools = self._tools = self._make_tools(device)
            call = call._replace(start=None)
        gauge, profiles = tools.gauge, tools.profiles
        arrived = None if call.start is None else gauge.mark()
        # Always at the first block: before the first iteration of all nobody knows what is in front of it.
        base = gauge.allocated()
        self._read_ended(base)
        if last is not None:
            last.note_strangers()
            if last.waits:
                self._tell(SEVERAL_GRAPHS)
        flags = flags_of([each.module_state for each in self.blocks.values()])
        key = IterationKey(signature(tensors), Autocast.now(device), flags, call.signature)
        followed = profiles.find(key)
        own = followed is key
        with self._refusing(tools, followed) as profile:
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
        began = Beginning(call.begins, base, gauge.most() if watched else 0, ahead, start)
        profiles[followed] = profile = profile.begin() if own else profile
        self._iteration = Iteration(tools, key, followed, profile, profile.plan, began, IterationProgress(timed))
        self._call = call._replace(begins=False, start=None)
        tools.store.restart()
        return self._iteration

    def _read_ended(self, base: int) -> None:
        """Take over what iterations tell that have ended, with so many bytes of the device in use now."""
        ended, self._ended = self._ended, {}
        for iteration in ended.values():
            profiles, key = iteration.tools.profiles, iteration.followed
            refused = {told for told in self._told if isinstance(told, int)}
            profiles[key] = iteration.learned(profiles[key], refused, base)

    @contextmanager
    def _refusing(self, tools: DeviceTools, key: IterationKey) -> Iterator[Profile]:
        """Lend a profile to be planned for, and note in it that this has failed."""
        profile = tools.profiles[key]
        try:
            yield profile
        except BudgetError:
            tools.profiles[key] = profile.refuse()
            raise

    # Blocks of an iteration.

    def _run(self, iteration: Iteration, block: FittedBlock, inputs: Inputs) -> Any:
        """Run a block of an iteration."""
        number = len(iteration.records)
        record = BlockRecord(block.name, block.identity, signature(inputs.tensors), block.count)
        refuse = partial(self._refuse, record)
        if (plan := iteration.plan) is None:
            refused = not self._check(block, record, inputs, True)
            output = measure(iteration, block, inputs, record, refused, refuse, self._tell)
        else:
            place = iteration.place_of(record.module, record.signature)
            keeping = place is not None and TREATMENTS[plan.picks[place].name].what == "all"
            # A block that no measured iteration has met is kept: nobody has seen what a second run of it computes.
            met = place is not None or any(expected.record.module == record.module for expected in iteration.expected)
            again = met and not keeping and self._check(block, record, inputs)
            place = place if keeping or again else None
            iteration.places.append(place)
            iteration.records.append(record)
            if place is not None:
                output = treat(iteration, place, block, inputs, refuse)
                iteration.leave(plan.foreseen.settle[place + 1])
            elif again:  # with inputs that the plan does not know
                output = Frame(block, inputs, refuse).run(inputs)
            else:
                output = block.call(*inputs.args, **inputs.kwargs)
        iteration.hook(inputs.tensors, output, partial(self._reach, iteration, number))
        return output

    def _tell(self, message: str) -> None:
        """Warn of something once."""
        if message not in self._told:
            self._told.add(message)
            warnings.warn(message, stacklevel=3)

    def _refuse(self, record: BlockRecord, why: str) -> None:
        """Have a block kept from now on, which cannot be run again as it was."""
        self._told.add(record.module)
        self._tell(f"a block ({record.name}) {why}. It is kept from now on, whatever the budget")

    def _check(self, block: FittedBlock, record: BlockRecord, inputs: Inputs, measured: bool = False) -> bool:
        """Tell whether a block can be run again, with what it is given."""
        if block.identity in self._told:
            return False
        if (kind := beyond_containers((inputs.args, inputs.kwargs))) is not None:
            self._refuse(record, BEYOND.format(kind))
        elif measured and (why := block.module_state.beyond()) is not None:
            self._refuse(record, why)
        return block.identity not in self._told

    def _reach(self, iteration: Iteration, number: int) -> None:
        """Come to a block in a backward pass."""
        if not self.closed and iteration.reach(number, partial(self._end, iteration)):
            profiles = iteration.tools.profiles
            profiles[iteration.key] = profiles[iteration.key].meet_loss()

    def _end(self, iteration: Iteration) -> None:
        if self.closed:
            return
        if iteration.progress.timed:  # of several that one backward pass was for, the one that began last
            self._ended.setdefault((iteration.followed, iteration.progress.task), iteration)
        most = iteration.end_pass()
        if most and iteration.plan is not None:
            profiles, key = iteration.tools.profiles, iteration.key
            if iteration.as_planned:
                profiles[key] = profiles[key].weigh(iteration.plan, most)
            elif not iteration.own and most > iteration.plan.budget["device"]:
                profiles.part(key)


def _none(device: torch.device) -> DeviceTools:
    raise RuntimeError("the model has been given back")
