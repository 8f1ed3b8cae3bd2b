"""A fitted model at work: iterations measured, planned, and carried out block by block."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import nn

from forebay.codec import Codec
from forebay.metrics import Metrics
from forebay.torch.advice import Advice
from forebay.torch.execution_context import default_saving
from forebay.torch.fitting.choices import TREATMENTS
from forebay.torch.fitting.device_tools import LEAST_MOVED, DeviceTools, tools_for
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.fitted_block import FittedBlock, FlagGuess, Inputs, differentiable
from forebay.torch.fitting.iteration import Iteration, IterationKey, read_times
from forebay.torch.fitting.measurement import measure
from forebay.torch.fitting.neighbours import bare, group_of, note_follower
from forebay.torch.fitting.profile import Profile
from forebay.torch.fitting.record import BlockRecord, Signature, device_of, signature
from forebay.torch.fitting.replanning import LAST_TIMED
from forebay.torch.fitting.treatment import hook_outputs
from forebay.torch.replay.arguments import tensors_in
from forebay.torch.replay.frame import Frame
from forebay.torch.replay.module_state import flags_of
from forebay.units import Budget

MOST_SHAPES = 64
"""Plans for so many sets of shapes are kept; those used longest ago go first."""


class FittingSession:
    """The state of a fitted model."""

    def __init__(self, budget: Budget, codec: Codec | None, choice: str | None, given: Mapping[str, str]) -> None:
        self._budget, self._codec, self._choice, self._given = budget, codec, choice, given
        self.blocks: WeakValueDictionary[int, FittedBlock] = WeakValueDictionary()
        """the blocks, by the identities of their modules"""
        self._profiles: dict[tuple[Any, ...], Profile] = {}
        self._iteration: Iteration | None = None
        self._unread: list[Iteration] = []  # those that ended after another had begun, and whose times nobody has read
        self._model_called = False  # and none of its blocks has begun an iteration since
        self._block_ran = False  # since the model was called
        self._advice = Advice()
        self._start: Any = None
        self._key = IterationKey((), None, (b"", b""))
        self._guess = FlagGuess()
        self._called_with: Signature = ()
        self._refused: set[int] = set()  # the identities of blocks that compute other values when they are run again
        self._forked: dict[tuple[Any, ...], None] = {}  # how iterations begin that go on with several shapes
        self._base = 0
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
        self._read_ended()
        self._read(iteration, tools)
        profile = iteration.profile
        if profile.learned and profile.plan is None:
            tools.replanner.make(profile, self._base)
        if profile.rivals and profile.over and iteration.task is not None:
            tools.replanner.take_turn(profile)
        plan = tools.replanner.current_plan(profile)
        return None if plan is None else replace(plan, metrics=self.metrics)

    def close(self) -> None:
        """Let go of what iterations to come would have used."""
        for profile in [*self._profiles.values(), *([self._iteration.profile] if self._iteration else [])]:
            profile.forget()  # graphs that are still alive have no use for it
        self._profiles.clear()
        self._iteration, self._unread = None, []
        self._tools = None

    # What the model and its blocks call.

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take note that the model is called, and with what."""
        self._model_called, self._start, self._block_ran = True, None, False
        self._called_with = signature(tensors_in((args, kwargs))) if self._forked else ()
        if self._tools is not None and torch.is_grad_enabled() and not self._steady:
            self._start = self._tools.gauge.mark()

    @property
    def _steady(self) -> bool:
        """Whether the last iteration was not timed, because its plan stays; nor is the next then, as a rule."""
        return self._iteration is not None and self._iteration.steady

    def ran(self) -> None:
        """Take note that the model has returned: what moves leaves; a way shorter than the plan's is measured anew."""
        iteration = self._iteration
        running = iteration is not None and not self._model_called
        if running and iteration is not None and iteration.plan is not None and self._tools is not None:
            # Wherever a backward pass begins now, nobody need be told of it to let go of these: what has to be gone by
            # the last block's backward; on a shorter way, of which nothing is foreseen, all that was sent.
            sent = bisect_left(iteration.plan.moving, len(iteration.records))
            leaving = sent if iteration.other_way else iteration.plan.foreseen.leave[-1]
            self._tools.runner.leave(iteration, leaving)
            if iteration.other_way:
                iteration.profile.forget()
        if not self._block_ran and torch.is_grad_enabled():
            self._advice.none_called(block.name for block in self.blocks.values())

    def call(self, block: FittedBlock, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a block as the plan says."""
        self._block_ran = True
        if not default_saving():
            return block.call(*args, **kwargs)
        tensors = tensors_in((args, kwargs) if kwargs else args)
        if not differentiable(block, tensors):
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
                measured = self._iteration.records if self._iteration and self._iteration.measuring else []
                before = note_follower(measured, modules[at], before)
                at += 1
            else:
                self._block_ran = True
                iteration, block, tensors = group
                value = self._run(iteration, block, Inputs((value,), {}, tensors))
                at += block.count
        return value

    def _group(
        self, modules: Sequence[nn.Module], at: int, value: Any
    ) -> tuple[Iteration, FittedBlock, list[torch.Tensor]] | None:
        """Return the group that begins with a block, where it can be run as such, with its iteration and inputs."""
        first = self.blocks.get(id(modules[at])) if self._profiles else None
        if first is None or not default_saving():
            return None
        tensors = tensors_in(value)
        if not differentiable(first, tensors):
            return None
        iteration = self._iteration_of(first, tensors)
        wanted = (iteration.profile.together or {}).get(id(first.module), ())
        members = modules[at : at + len(wanted)]
        if not wanted or tuple(map(id, members)) != wanted or not all(map(bare, members)):
            return None
        groups = iteration.profile.groups
        if id(first.module) not in groups:
            if not all(identity in self.blocks for identity in wanted):
                return None
            groups[id(first.module)] = group_of([self.blocks[identity] for identity in wanted])
        return iteration, groups[id(first.module)], tensors

    # Iterations.

    def _iteration_of(self, block: FittedBlock, tensors: list[torch.Tensor]) -> Iteration:
        """Return the iteration that a block belongs to, a new one where it begins it."""
        last = self._iteration
        if self._model_called or last is None or last.task is not None or last.dropped:
            return self._begin_iteration(block, tensors)
        return last

    def _begin_iteration(self, block: FittedBlock, tensors: list[torch.Tensor]) -> Iteration:
        """Begin an iteration: one that is measured, or one with a plan."""
        device = device_of(tensors, block.module_state.parameters())
        tools = self._tools
        if tools is None or tools.gauge.device != device:
            tools = self._tools = tools_for(device, self._budget, self._codec, self._choice, self._given)
            self._profiles.clear()
            self._start = None
        gauge = tools.gauge
        called = self._start if self._model_called else None
        arrived = None if self._steady else gauge.mark()
        # Always at the first block: before the first iteration of all nobody knows what is in front of it.
        self._base = gauge.allocated()
        paused = self._read_ended()
        autocast = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
        inputs = signature(tensors), autocast
        guessed = self._steady and self._model_called and inputs == self._key[:2] and self._guess.holds(block)
        key = IterationKey(*inputs, self._key.flags if guessed else self._flags())
        profile, last = self._profile_of(key), self._iteration
        if last is not None and last.awaited:
            self._advice.several_graphs()
        profile.forwards += 1
        planned = tools.replanner.replan_if_due(profile, self._base)
        if profile.rivals:
            waits = last is not None and last.profile is profile and last.plan is profile.plan and last.task is None
            if not profile.turn_goes_on(waits):
                tools.replanner.take_turn(profile)
        measuring, learning, timed, timed_whole = profile.follow(planned, LAST_TIMED)
        if measuring:
            gauge.peak()
        # What takes time at the beginning of a step that somebody has waited for, the device waits for.
        steady = self._model_called and not (learning or timed_whole or planned or profile.rivals)
        start = None if steady else arrived
        if not steady and (arrived is None or paused or planned):
            # Times may just have been read, or a plan made, whose seconds are none of the step's: the blocks begin now.
            start = gauge.mark()
        before = (start, start) if called is None else (called, arrived)
        # Where blocks are called without their model, only a backward pass tells one iteration from the next.
        hooked = profile.hooked if self._model_called and not measuring and not timed else None
        iteration = Iteration(
            profile, measuring, self._base, before, start, profile.plan, timed, profile.records, hooked, timed_whole
        )
        iteration.called, iteration.steady, iteration.guessed = self._model_called, steady, guessed
        iteration.forgotten = profile.forgotten
        iteration.most = gauge.most() if (learning or planned or profile.rivals) and not measuring else 0
        self._iteration, self._key, self._model_called, self._start = iteration, key, False, None
        tools.store.restart()
        tools.store.watch = partial(iteration.waiting, gauge) if timed else nullcontext
        return iteration

    def _profile_of(self, key: IterationKey) -> Profile:
        """Return the profile of iterations that begin like this one."""
        full = (*key, self._called_with) if key in self._forked and self._model_called else key
        profile = self._profiles[full] = self._profiles.pop(full, Profile())
        while len(self._profiles) > MOST_SHAPES:
            del self._profiles[next(iter(self._profiles))]
        return profile

    def _flags(self) -> tuple[bytes, bytes]:
        return flags_of([block.module_state for block in self.blocks.values()])

    def _check_guess(self, iteration: Iteration, block: FittedBlock) -> None:
        """Ask all blocks for their flags, when the first has run."""
        if not iteration.guessed:
            if iteration.steady:
                self._guess.remember(block)
        elif self._flags() != self._key.flags:
            self._guess.wrong += 1
            # The others are recomputed, and the next iteration is not guessed at.
            iteration.broken, iteration.steady = True, False
            if self._tools is not None and iteration.plan is not None:
                self._tools.runner.leave(iteration, len(iteration.plan.moving))

    def _read_ended(self) -> bool:
        """Take over what iterations tell that have ended; tell whether times had to be read, which takes a while."""
        if self._iteration is not None and not self._iteration.broken:
            self._iteration.profile.missed = False
        ended = [*self._unread, *([] if self._iteration is None else [self._iteration])]
        self._unread = []
        # Of several that one backward pass was for, the last.
        last = {(id(iteration.profile), iteration.task): iteration for iteration in ended}
        due = [
            iteration for iteration in last.values() if iteration.timed or iteration.timed_whole or iteration.other_way
        ]
        for iteration in due:
            self._read(iteration, self._tools)
        return bool(due)

    def _read(self, iteration: Iteration, tools: DeviceTools | None) -> None:
        if tools is not None:
            read_times(iteration, tools.gauge, self._base, self._budget["device"])

    # Blocks of an iteration.

    def _run(self, iteration: Iteration, block: FittedBlock, inputs: Inputs) -> Any:
        """Run a block of an iteration."""
        number, tools = len(iteration.records), self._tools
        assert tools is not None
        if iteration.measuring:
            least = LEAST_MOVED[tools.gauge.device.type]
            refuse = None if block.identity in self._refused else self._refuse
            arguments = tools.gauge, tools.mover, self._codec, least, self._advice, refuse
            output = measure(iteration, block, inputs, *arguments)
        else:
            output = self._carry_out(iteration, number, block, inputs, tools)
        if not number:
            self._check_guess(iteration, block)
        if iteration.hooked is None or number in iteration.hooked:
            hook_outputs(iteration, inputs.tensors, output, lambda: self._reach(iteration, number))
        return output

    def _refuse(self, record: BlockRecord, right: bool) -> None:
        """Have a block kept from now on, whose second run computed other values."""
        record.refused = True
        self._refused.add(record.module)
        self._advice.refused(record.name, right)

    def _reach(self, iteration: Iteration, number: int) -> None:
        """Come to a block in a backward pass."""
        if self._tools is not None:
            self._tools.runner.reach(iteration, number, lambda: self._end(iteration))

    def _end(self, iteration: Iteration) -> None:
        if self._tools is None or iteration.start is None:
            return
        if iteration is not self._iteration and iteration not in self._unread:
            self._unread.append(iteration)
        self._tools.runner.end(iteration)

    def _carry_out(
        self, iteration: Iteration, number: int, block: FittedBlock, inputs: Inputs, tools: DeviceTools
    ) -> Any:
        """Run a block as the plan says; recompute it where the iteration goes otherwise."""
        plan, gauge = iteration.plan, tools.gauge
        assert plan is not None
        input_signature = signature(inputs.tensors)
        expected = iteration.expected[number] if number < len(iteration.expected) else None
        if (
            iteration.broken
            or expected is None
            or (expected.module, expected.signature) != (block.identity, input_signature)
        ):
            if not iteration.broken:
                self._break(iteration)
            iteration.records.append(block.record(input_signature))
            if block.identity in self._refused:
                return block.call(*inputs.args, **inputs.kwargs)
            device = device_of(inputs.tensors, block.module_state.parameters())
            return Frame(block.call, block.module_state, device, compiled=block.compiled).run(
                inputs.args, inputs.kwargs
            )
        record = block.record(input_signature) if iteration.timed else None
        iteration.records.append(record or expected)
        start = gauge.mark() if record else None
        treatment, sent = TREATMENTS[plan.picks[number].name], iteration.sent.setdefault(number, [])
        output = tools.runner.run(block, inputs, treatment, expected, sent, record)
        if record:
            record.forward = start, gauge.mark()
        tools.runner.leave(iteration, plan.foreseen.settle[number + 1])
        return output

    def _break(self, iteration: Iteration) -> None:
        """Take note that an iteration goes otherwise than its plan: those that begin so are told apart from now on."""
        iteration.broken = True
        self._forked[self._key] = None
        if len(self._forked) > MOST_SHAPES:
            del self._forked[next(iter(self._forked))]
        iteration.profile.miss()
        for profile in self._profiles.values():
            profile.groups = {}  # blocks may have been replaced
