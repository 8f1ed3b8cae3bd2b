"""A fitted model at work: iterations measured, planned, and carried out block by block."""

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from statistics import median
from typing import Any, NamedTuple
from weakref import WeakValueDictionary, ref

import torch
from torch import nn

from forebay.codec import Codec
from forebay.errors import BudgetError
from forebay.metrics import Metrics
from forebay.planner import Link
from forebay.torch.ambient import others_differentiate, others_recompute, shared_random
from forebay.torch.fitting.choices import TREATMENTS
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.neighbours import bare, groups, one_of
from forebay.torch.fitting.planning import RIVALS, foreseen_anew, last_plans, make_plan
from forebay.torch.fitting.profile import CALM, Inputs, Iteration, Known, Part, turning_points
from forebay.torch.fitting.record import Record, Signature, Watch, device_of, signature
from forebay.torch.fitting.treatment import Treating
from forebay.torch.gauge import HostGauge, gauge_for
from forebay.torch.mover import Mover, bytes_by_storage, from_outside, mover_for
from forebay.torch.offloading.keeper import Alive
from forebay.torch.replay.arguments import direct_tensors, tensors_in
from forebay.torch.replay.frame import Frame
from forebay.torch.replay.module_state import flags_of
from forebay.torch.saved_tensors import Store
from forebay.units import Budget

LOOKED_OVER = (3, 5, 7, 9, 11)
"""After so many iterations that were timed the plan is made anew; after the last, some of them take turns.

The first iteration with a plan is not timed: memory is pinned and allocated in it, and a device that has paused for the
planning is faster at first.
"""
LIGHTENED = LOOKED_OVER[-2]
"""After so many the plan has light choices alone where these fit: so they are known from more than one iteration."""
REFINED = LOOKED_OVER[-1]
"""So many iterations are timed."""
SETTLED = REFINED + len(LOOKED_OVER) + (RIVALS + 1) * (CALM + 1) + 1
"""After so many iterations at most, a plan stays; where neighbours are taken together, after one more."""
GROWTH = 2**20
"""When memory that was there before the iteration has grown by so many bytes, the plan is made anew."""
MOST_SHAPES = 64
"""Plans for so many sets of shapes are kept; those used longest ago go first."""
MOST_WRONG = 3
"""After so many wrong guesses that modes and frozen parameters are what they were, nobody guesses any more."""
LEAST_MOVED = {"cuda": 2**16, "cpu": 2**8}
"""Smaller storages are not worth a copy of their own."""


class Begun(NamedTuple):
    """How an iteration begins: those that begin alike have one plan."""

    given: Signature
    autocast: Any
    flags: tuple[bytes, bytes]
    """modes, and which parameters want gradients"""


class Fitting:
    """The state of a fitted model."""

    def __init__(self, budget: Budget, codec: Codec | None, choice: str | None) -> None:
        self._budget, self._codec, self._choice = budget, codec, choice
        self.parts: WeakValueDictionary[int, Part] = WeakValueDictionary()
        """the blocks, by the identities of their modules"""
        self._known: dict[tuple[Any, ...], Known] = {}
        self._now: Iteration | None = None
        self._late: list[Iteration] = []  # those that ended after another had begun, and whose times nobody has read
        self._fresh = False
        self._block_ran = False  # since the model was called
        self._warned = False
        self._start: Any = None
        self._begun = Begun((), None, (b"", b""))
        self._first: ref[Part] | None = None  # what ran first in the last iteration whose plan stays
        self._first_flags = b"", b""
        self._called: Signature = ()
        self._wrong = 0  # how often modes or frozen parameters were other than guessed
        self._forked: dict[tuple[Any, ...], None] = {}  # how iterations begin that go on with several shapes
        self._base = 0
        self._gauge: HostGauge | None = None
        self._mover: Mover | None = None
        self._store: Store | None = None
        self._treating: Treating | None = None
        self._link: Link | None = None

    @property
    def metrics(self) -> Metrics:
        """What moved so far."""
        return self._store.metrics if self._store else Metrics(title="saved tensors")

    def plan(self) -> FitPlan | None:
        """Give the plan for the shapes that were seen last, with the times that were read last."""
        if self._now is None:
            return None
        self._part_with_last()
        self._read(self._now)
        known = self._now.known
        if known.seen and known.plan is None:
            self._make_plan(known)
        if known.rivals and known.over and self._now.task is not None:
            self._take_turn(known)
        if known.plan is None:
            return None
        assert self._gauge is not None
        plan = foreseen_anew(known, known.plan, self._gauge.counts) if known.stale else known.plan
        calm = known.calm.get(plan.names)
        pace = median(calm) / plan.foreseen.seconds if calm else 1.0
        return replace(plan, pace=pace, measured=known.measured.get(plan.names), metrics=self.metrics)

    def close(self) -> None:
        """Let go of what iterations to come would have used."""
        for known in [*self._known.values(), *([self._now.known] if self._now else [])]:
            known.forget()  # graphs that are still alive have no use for it
        self._known.clear()
        self._now, self._late = None, []
        self._store = self._mover = self._treating = None

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take note that the model is called, and with what."""
        self._fresh, self._start, self._block_ran = True, None, False
        self._called = signature(tensors_in((args, kwargs))) if self._forked else ()
        if self._gauge is not None and torch.is_grad_enabled() and not self._steady:
            self._start = self._gauge.mark()

    @property
    def _steady(self) -> bool:
        """Whether the last iteration was not timed, because its plan stays; nor is the next then, as a rule."""
        return self._now is not None and self._now.steady

    def ran(self) -> None:
        """Take note that the model has returned: what moves leaves; a way shorter than the plan's is measured anew."""
        now = self._now
        if now is not None and not self._fresh and now.plan is not None and self._treating is not None:
            # Wherever a backward pass begins now, nobody need be told of it to let go of these: what has to be gone by
            # the last block's backward; on a shorter way, of which nothing is foreseen, all that was sent.
            sent = bisect_left(now.plan.moving, len(now.records))
            self._treating.leave(now, sent if now.other_way else now.plan.foreseen.leave[-1])
            if now.other_way:
                now.known.forget()
        if not (self._block_ran or self._warned) and torch.is_grad_enabled():
            self._warned = True
            warnings.warn(
                f"the model called none of its blocks ({', '.join(one.name for one in self.parts.values()):.80}): it "
                "trains as if it were not fitted. Name those that it calls with blocks=...",
                stacklevel=2,
            )

    def call(self, part: Part, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a block as the plan says."""
        self._block_ran = True
        if not _usual():
            return part.call(*args, **kwargs)
        tensors = tensors_in((args, kwargs) if kwargs else args)
        if not _differentiable(part, tensors):
            return part.call(*args, **kwargs)
        return self._run(self._opened(part, tensors), part, Inputs(args, kwargs, tensors))

    def _run(self, now: Iteration, part: Part, inputs: Inputs) -> Any:
        """Run a block of an iteration."""
        number = len(now.records)
        output = (self._measured if now.measuring else self._planned)(now, number, part, inputs)
        if not number:
            self._check_guess(now, part)
        if now.told is None or number in now.told:
            self._hook(now, number, inputs.tensors, output)
        return output

    def along(self, sequence: nn.Sequential, given: Any) -> Any:
        """Run the modules of an `nn.Sequential`: blocks that are taken together as one, all others one by one."""
        at, count, before = 0, len(sequence._modules), None
        while at < count:
            modules: list[Any] = list(sequence._modules.values())  # one may have replaced another
            if len(modules) != count:
                raise RuntimeError("modules were added to an nn.Sequential, or taken from it, while it ran")
            group = self._group(modules, at, given)
            if group is None:
                given = modules[at](given)
                before = self._note_follower(modules[at], before)
                at += 1
            else:
                self._block_ran = True
                now, part, tensors = group
                given = self._run(now, part, Inputs((given,), {}, tensors))
                at += part.count
        return given

    def _group(
        self, modules: Sequence[nn.Module], at: int, given: Any
    ) -> tuple[Iteration, Part, list[torch.Tensor]] | None:
        """Give the group that begins with a block, where there is one and it can be run as such, and what it takes."""
        first = self.parts.get(id(modules[at])) if self._known else None
        if first is None or not _usual():
            return None
        tensors = tensors_in(given)
        if not _differentiable(first, tensors):
            return None
        now = self._opened(first, tensors)
        wanted = (now.known.together or {}).get(id(first.module), ())
        several = modules[at : at + len(wanted)]
        if not wanted or tuple(map(id, several)) != wanted or not all(map(bare, several)):
            return None
        groups = now.known.groups
        if id(first.module) not in groups:
            if not all(one in self.parts for one in wanted):
                return None
            groups[id(first.module)] = one_of([self.parts[one] for one in wanted])
        return now, groups[id(first.module)], tensors

    def _note_follower(self, module: nn.Module, before: Record | None) -> Record | None:
        """Note that a block was given what the one before gave; give its record, where it was measured just now."""
        now = self._now
        if now is None or not now.measuring or not now.records or now.records[-1].module != id(module):
            return None
        if not bare(module):
            return None
        record = now.records[-1]
        record.follows = before is not None and len(now.records) > 1 and now.records[-2] is before
        return record

    def _opened(self, part: Part, tensors: list[torch.Tensor]) -> Iteration:
        """Give the iteration that a block belongs to, a new one where it begins it."""
        if self._fresh or self._now is None or self._now.task is not None or self._now.dropped:
            self._open(part, tensors)
        assert self._now is not None
        return self._now

    def _open(self, part: Part, tensors: list[torch.Tensor]) -> None:
        """Begin an iteration: one that is measured, or one with a plan."""
        device = device_of(tensors, part.belongings.parameters())
        if self._gauge is None or self._gauge.device != device:
            self._prepare(device)
        gauge = self._gauge
        assert gauge is not None
        called = self._start if self._fresh else None
        arrived = None if self._steady else gauge.mark()
        # Always at the first block: before the first iteration of all nobody knows what is in front of it.
        self._base = gauge.allocated()
        paused = self._part_with_last()
        autocast = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
        given = signature(tensors), autocast
        guessed = self._guess(part, given)
        begun = Begun(*given, self._begun.flags if guessed else self._flags())
        known = self._known_of(begun)
        known.forwards += 1
        planned = self._plan_where_due(known)
        if known.rivals and not known.goes_on(self._now):
            self._take_turn(known)
        measuring, learning, timed, calm = known.follow(planned, REFINED)
        if measuring:
            gauge.peak()
        # What takes time at the beginning of a step that somebody has waited for, the device waits for.
        steady = self._fresh and not (learning or calm or planned or known.rivals)
        start = None if steady else arrived
        if not steady and (arrived is None or paused or planned):
            # Times may just have been read, or a plan made, whose seconds are none of the step's: the blocks begin now.
            start = gauge.mark()
        before = (start, start) if called is None else (called, arrived)
        # Where blocks are called without their model, only a backward pass tells one iteration from the next.
        told = known.told if self._fresh and not measuring and not timed else None
        now = Iteration(known, measuring, self._base, before, start, known.plan, timed, known.records, told, calm)
        now.called, now.steady, now.guessed, now.forgotten = self._fresh, steady, guessed, known.forgotten
        now.most = gauge.most() if (learning or planned or known.rivals) and not measuring else 0
        self._now, self._begun, self._fresh, self._start = now, begun, False, None
        if self._store is not None:
            self._store.restart()
            self._store.watch = partial(now.waiting, gauge) if timed else nullcontext

    def _flags(self) -> tuple[bytes, bytes]:
        return flags_of([one.belongings for one in self.parts.values()])

    def _guess(self, part: Part, given: tuple[Any, Any]) -> bool:
        """Tell whether modes and frozen parameters are taken to be those of the last iteration, whose plan stays.

        To ask all of them takes the host a while, and the device would wait: what ran first then is asked now, all
        others once it is under way.
        """
        first = self._first() if self._steady and self._fresh and self._first is not None else None
        if first is None or self._wrong == MOST_WRONG or given != self._begun[:2]:
            return False
        begins = part is first or next(first.module.children(), None) is part.module  # of a group
        return begins and flags_of([first.belongings]) == self._first_flags

    def _check_guess(self, now: Iteration, part: Part) -> None:
        """Ask all of them, when the first part has run."""
        if not now.guessed:
            if now.steady:
                self._first, self._first_flags = ref(part), flags_of([part.belongings])
        elif self._flags() != self._begun.flags:
            self._wrong += 1
            now.broken, now.steady = True, False  # the others are recomputed, and the next iteration is not guessed at
            if self._treating is not None and now.plan is not None:
                self._treating.leave(now, len(now.plan.moving))

    def _part_with_last(self) -> bool:
        """Take over what iterations tell that have ended; tell whether times had to be read, which takes a while."""
        if self._now is not None and not self._now.broken:
            self._now.known.missed = False
        ended, self._late = [*self._late, *([] if self._now is None else [self._now])], []
        last = {(id(one.known), one.task): one for one in ended}  # of several that one backward pass was for
        read = [one for one in last.values() if one.timed or one.calm or one.other_way]
        for one in read:
            self._read(one)
        return bool(read)

    def _known_of(self, begun: Begun) -> Known:
        """Give what is known of iterations that begin like this one."""
        key = (*begun, self._called) if begun in self._forked and self._fresh else begun
        known = self._known[key] = self._known.pop(key, Known())
        while len(self._known) > MOST_SHAPES:
            del self._known[next(iter(self._known))]
        return known

    def _plan_where_due(self, known: Known) -> bool:
        """Make a plan where there is none, or one anew where more is known or less memory is free; tell whether."""
        looked_over = any(known.looked < seen <= known.seen for seen in LOOKED_OVER)  # two may have been read at once
        grown = self._base > known.planned + GROWTH
        due = known.seen > 0 and (known.plan is None or looked_over or grown)
        if due:
            self._make_plan(known)
        return due

    def _prepare(self, device: torch.device) -> None:
        if device.type not in ("cpu", "cuda"):
            raise BudgetError(f"fit works on CUDA GPUs and on the CPU, not on {device}: move the model there")
        self._gauge = gauge_for(device)
        self._mover = mover_for(device, self._budget.host)
        self._store = Store(self._mover, LEAST_MOVED[device.type])
        self._treating = Treating(self._store, self._gauge, self._codec)
        self._known.clear()
        self._link = self._gauge.link(self._mover) if self._budget.host else None
        self._start = None

    # Measuring.

    def _measured(self, now: Iteration, number: int, part: Part, inputs: Inputs) -> Any:
        gauge, mover = self._gauge, self._mover
        assert gauge is not None and mover is not None
        record = part.record(signature(inputs.tensors))
        now.records.append(record)
        if number:
            now.records[number - 1].peak_after = gauge.peak()
        bytes_of = bytes_by_storage(inputs.tensors)
        least = LEAST_MOVED[gauge.device.type]
        outside = bytes_by_storage(filter(from_outside, inputs.tensors))
        outside |= {pointer: nbytes for pointer, nbytes in bytes_of.items() if nbytes < least}
        direct = bytes_by_storage(direct_tensors((*inputs.args, *inputs.kwargs.values())))
        outside |= {pointer: nbytes for pointer, nbytes in bytes_of.items() if pointer not in direct}
        record.given = frozenset(bytes_of)
        record.inputs = sum(nbytes for pointer, nbytes in bytes_of.items() if pointer not in now.given)
        record.outside = sum(nbytes for pointer, nbytes in outside.items() if pointer not in now.given)
        record.lone = True
        for other in now.records[:number]:
            if other.given & record.given:  # moving it for one would not free it
                record.lone = other.lone = False
        now.given |= record.given
        frame = Frame(
            part.call,
            part.belongings,
            device_of(inputs.tensors, part.belongings.parameters()),
            watch=Watch(record, gauge, mover, self._codec, set(bytes_of), least),
            weighed=True,
            read_again=record.note_read_again,
            compiled=part.compiled,
        )
        drawn = shared_random()
        start = gauge.mark()
        output = frame.run(inputs.args, inputs.kwargs)
        record.forward = start, gauge.mark()
        if shared_random() != drawn:
            raise RuntimeError(
                f"a block ({part.name}) draws from Python's or NumPy's shared generator, as np.random.rand() does: run "
                "again, it would draw other numbers. Draw from torch's, or leave it out with blocks=..."
            )
        record.peak_forward = gauge.peak()
        record.outputs, record.made = frame.saved_of(tensors_in(output))
        return output

    def _hook(self, now: Iteration, number: int, inputs: list[torch.Tensor], output: Any) -> None:
        """Be told when the backward of a block begins: the gradient of one of its outputs is there."""
        given, alive = [id(one) for one in inputs], now.held()

        def turn(gradient: torch.Tensor, alive: Alive = alive) -> None:
            self._turn(now, number)

        for one in tensors_in(output):
            if one.grad_fn is not None and id(one) not in given:  # the caller's own tensors may outlive the iteration
                one.register_hook(turn)  # type: ignore[no-untyped-call]

    def _turn(self, now: Iteration, number: int) -> None:
        """Come to a block in a backward pass."""
        task = torch._C._current_graph_task_id()
        if now.task != task:
            now.task = task
            now.passes += 1
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._end(now))
        if now.turned.get(number) == task:  # another of its outputs
            return
        now.turned[number] = task
        if self._gauge is not None and now.timed and now.start is not None:
            now.clock(self._gauge, now.records[number])
        if now.plan is None or self._treating is None or now.broken:
            return
        measured = now.expected
        if not measured[number].spans:  # a loss that needs more than the one that was measured
            now.known.forget()
            now.timed = False
        last = number
        while last + 1 < len(measured) and not measured[last + 1].spans:  # nobody comes to these
            last += 1
        for one in range(last, number - 1, -1):
            self._treating.leave(now, now.plan.foreseen.leave[one])
            for ahead in now.plan.foreseen.fetch[one]:
                self._treating.fetch(now, ahead)

    def _end(self, now: Iteration) -> None:
        if self._gauge is None or now.start is None:
            return
        if now is not self._now and now not in self._late:
            self._late.append(now)
        now.clock(self._gauge, None)
        if now.most and now.plan is not None and not now.broken:
            most = self._gauge.most()
            if most > now.most:  # else it was no more than what others had taken before
                now.known.weigh(now.plan, most)

    def _read(self, now: Iteration) -> None:
        """Read the times of an iteration that has ended, once."""
        gauge, known = self._gauge, now.known
        if gauge is None or now.end is None or now.start is None:
            return
        total = gauge.seconds(*now.before) + gauge.seconds(now.start, now.end)
        now.start = None
        if now.plan is not None:
            known.measured[now.plan.names] = total
        if now.other_way:
            known.forget()
        elif now.timed and not now.broken:
            known.learn(now, gauge, total)
            if known.first is not None and known.together is None:
                grown = max(0, self._base - known.base)  # by the states of an optimizer, after its first step
                known.take_together(groups(known.records, self._budget["device"] - grown))
        elif now.calm:
            known.learn_whole(now, total)

    def _make_plan(self, known: Known) -> None:
        assert self._gauge is not None and self._mover is not None
        known.planned = max(self._base, known.base)
        given = known, self._budget, self._gauge.counts, self._link, self._choice
        try:
            light = known.seen >= LIGHTENED
            plans = last_plans(*given) if known.seen >= REFINED else (make_plan(*given, light),)
        except BudgetError:
            if not known.together:
                known.plan = None  # whoever goes on after that is told again
                if len({one.module for one in known.records}) < len(known.records):
                    known.forget()  # it may have been several forward passes, of which nobody told
                raise
            known.forget()  # they may fit one by one
            known.together = {}
            return
        known.stale, known.looked, known.rivals = False, known.seen, plans if len(plans) > 1 else ()
        if known.settled:
            known.calm = {}
        self._follow(known, plans[0])

    def _take_turn(self, known: Known) -> None:
        """Have the next iteration follow the plan whose turn it is, or all to come the one that stays."""
        self._follow(known, known.settle() if known.over else known.take_turn())

    def _follow(self, known: Known, plan: FitPlan) -> None:
        """Have iterations follow a plan from now on."""
        assert self._mover is not None
        known.plan, known.told = plan, turning_points(plan, known.records, known.passes)
        moved, room = plan.foreseen.moved, self._mover.room
        if moved + moved // 16 > room.nbytes:  # one slab for all of it; pieces that do not fit together take others
            room.reserve(min(moved + moved // 16, room.budget) - room.nbytes)

    # Carrying out.

    def _planned(self, now: Iteration, number: int, part: Part, inputs: Inputs) -> Any:
        gauge, plan, treating = self._gauge, now.plan, self._treating
        assert gauge is not None and plan is not None and treating is not None
        given = signature(inputs.tensors)
        expected = now.expected[number] if number < len(now.expected) else None
        if now.broken or expected is None or (expected.module, expected.signature) != (part.identity, given):
            if not now.broken:
                now.broken = True
                self._forked[self._begun] = None
                if len(self._forked) > MOST_SHAPES:
                    del self._forked[next(iter(self._forked))]
                now.known.miss()
                for known in self._known.values():
                    known.groups = {}  # blocks may have been replaced
            now.records.append(part.record(given))
            device = device_of(inputs.tensors, part.belongings.parameters())
            return Frame(part.call, part.belongings, device, compiled=part.compiled).run(inputs.args, inputs.kwargs)
        record = part.record(given) if now.timed else None
        now.records.append(record or expected)
        start = gauge.mark() if record else None
        treatment, sent = TREATMENTS[plan.picks[number].name], now.sent.setdefault(number, [])
        output = treating.run(part, inputs, treatment, expected, sent, record)
        if record:
            record.forward = start, gauge.mark()
        treating.leave(now, plan.foreseen.settle[number + 1])
        return output


def _usual() -> bool:
    """Tell whether what is saved now is ours to treat: somebody may differentiate it, in the usual way."""
    return torch.is_grad_enabled() and not others_recompute() and not others_differentiate()


def _differentiable(part: Part, tensors: list[torch.Tensor]) -> bool:
    if any([one.requires_grad for one in tensors]):  # noqa: C419 - faster
        return True
    # Modules may have been added since, which the block's own list does not know of; that one is faster.
    return any(one.requires_grad for one in chain(part.belongings.parameters(), part.module.parameters()))
