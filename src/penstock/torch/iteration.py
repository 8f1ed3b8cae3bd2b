"""A fitted model at work: iterations measured, planned, and carried out block by block."""

from dataclasses import replace
from typing import Any

import torch

from penstock.codec import Codec
from penstock.errors import BudgetError
from penstock.metrics import Metrics
from penstock.planner import Link
from penstock.torch.choices import TREATMENTS, Timed
from penstock.torch.fitplan import FitPlan
from penstock.torch.frame import Frame
from penstock.torch.gauge import HostGauge, gauge_for
from penstock.torch.known import Iteration, Known, Part
from penstock.torch.mover import Mover, mover_for
from penstock.torch.planning import make_plan
from penstock.torch.record import Record, Watch, find_loose, signature, tensors_in
from penstock.torch.saved import Store
from penstock.torch.treat import Treating
from penstock.units import Budget

REFINED = 3
"""The plan is made anew after each of so many iterations, with the best times so far."""
GROWTH = 2**20
"""When memory that was there before the iteration has grown by so many bytes, the plan is made anew."""
LEAST_MOVED = {"cuda": 2**16, "cpu": 2**8}
"""Smaller storages are not worth a copy of their own."""


class Fitting:
    """The state of a fitted model."""

    def __init__(self, budget: Budget, codec: Codec | None, choice: str | None) -> None:
        self._budget, self._codec, self._choice = budget, codec, choice
        self._known: dict[tuple[Any, ...], Known] = {}
        self._now: Iteration | None = None
        self._fresh = True
        self._start: Any = None
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
        self._read(self._now)
        return self._now.known.plan

    def close(self) -> None:
        """Let go of what iterations to come would have used."""
        self._known.clear()
        self._now = None
        self._store = self._mover = self._treating = None

    def begin(self) -> None:
        """Take note that the model is called."""
        self._fresh = True
        if self._gauge is not None and torch.is_grad_enabled():
            self._start, self._base = self._gauge.mark(), self._gauge.allocated()

    def call(self, part: Part, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a block as the plan says."""
        tensors = tensors_in((args, kwargs))
        wanted = any(one.requires_grad for one in tensors) or any(one.requires_grad for one in part.module.parameters())
        if not torch.is_grad_enabled() or not wanted:
            return part.call(*args, **kwargs)
        if self._fresh or self._now is None or self._now.turned:
            self._open(part, tensors)
        now = self._now
        assert now is not None
        number = len(now.records)
        record = Record(part.name, id(part.module), signature((args, kwargs)), part.compiled)
        now.records.append(record)
        if now.measuring:
            return self._measured(now, number, record, part, args, kwargs)
        return self._planned(now, number, record, part, args, kwargs)

    def _open(self, part: Part, tensors: list[torch.Tensor]) -> None:
        """Begin an iteration: one that is measured, or one with a plan."""
        device = next((one.device for one in (*tensors, *part.module.parameters())), torch.device("cpu"))
        if self._gauge is None or self._gauge.device != device:
            self._prepare(device)
        gauge = self._gauge
        assert gauge is not None
        if self._start is None or not self._fresh:
            self._start, self._base = gauge.mark(), gauge.allocated()
        if self._now is not None and (self._now.timed or self._now.other_way):
            self._read(self._now)
        autocast = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
        key = signature(tensors), part.module.training, autocast
        known = self._known.setdefault(key, Known())
        if known.seen and (known.plan is None or self._base > known.planned + GROWTH):
            self._make_plan(known)
        measuring, timed = not known.seen, known.seen < REFINED
        if measuring:
            gauge.peak()
        if timed:  # a plan may just have been made, whose seconds are none of the step's
            self._start = gauge.mark()
        self._now = Iteration(known, measuring, self._base, self._start, known.plan, timed)
        self._fresh, self._start = False, None
        if self._store is not None:
            self._store.restart()

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

    def _measured(
        self, now: Iteration, number: int, record: Record, part: Part, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        gauge, mover = self._gauge, self._mover
        assert gauge is not None and mover is not None
        if number:
            now.records[number - 1].peak_after = gauge.peak()
        inputs = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in tensors_in((args, kwargs))}
        record.given = frozenset(inputs)
        record.inputs = sum(nbytes for pointer, nbytes in inputs.items() if pointer not in now.given)
        record.lone = True
        for other in now.records[:number]:
            if other.given & record.given:  # moving it for one would not free it
                record.lone = other.lone = False
        now.given |= record.given
        frame = Frame(
            part.call,
            part.buffers,
            gauge.device,
            watch=Watch(record, gauge, mover, self._codec, set(inputs)),
            compiled=part.compiled,
        )
        start = gauge.mark()
        output = frame.run(args, kwargs)
        record.forward = start, gauge.mark()
        record.peak_forward = gauge.peak()
        record.outputs, record.made = frame.saved_of(tensors_in(output))
        self._hook(now, number, record, output)
        return output

    def _hook(self, now: Iteration, number: int, record: Record, output: Any) -> None:
        """Be told when the backward of a block begins: its output's gradient is there."""
        for one in tensors_in(output):
            if one.requires_grad:
                one.register_hook(lambda gradient: self._turn(now, number, record))  # type: ignore[no-untyped-call]
                return

    def _turn(self, now: Iteration, number: int, record: Record) -> None:
        if not now.turned:
            now.turned = True
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._end(now))
        gauge = self._gauge
        if gauge is not None and now.timed and now.end is None and record.begun is None:
            record.begun = gauge.mark()
            if now.measuring:
                if now.last is None:
                    now.records[-1].peak_after = gauge.peak()
                else:
                    now.last.peak_backward = gauge.peak()
            if now.last is not None:
                now.last.ended = record.begun
            now.last = record
        if now.plan is not None and self._treating is not None and not now.broken:
            self._treating.leave(now, now.plan.foreseen.leave[number])
            for ahead in now.plan.foreseen.fetch[number]:
                self._treating.fetch(now, ahead)

    def _end(self, now: Iteration) -> None:
        gauge = self._gauge
        if gauge is None or now.end is not None:
            return
        now.end = gauge.mark()
        if now.last is not None:
            now.last.ended = now.end
            if now.measuring:
                now.last.peak_backward = gauge.peak()

    def _read(self, now: Iteration) -> None:
        """Read the times of an iteration that has ended, once."""
        gauge, known = self._gauge, now.known
        if gauge is None or now.end is None or now.start is None:
            return
        total = gauge.seconds(now.start, now.end)
        now.start = None
        known.measured = total
        if known.plan is not None:
            known.plan = replace(known.plan, measured=total if _alike(now.plan, known.plan) else None)
        if now.plan is not None and len(now.records) != len(now.plan.picks):
            known.forget()
            return
        if not now.timed or now.broken or any(record.ended is None for record in now.records):
            return
        if now.measuring:
            known.records, known.base = now.records, now.base
            find_loose(known.records)
        before = known.times if known.times else [None] * len(now.records)
        picks = now.plan.picks if now.plan is not None else [None] * len(now.records)
        known.times = [
            Timed.of(record, gauge, last, "nothing" if pick is None else TREATMENTS[pick.name].what)
            for record, last, pick in zip(now.records, before, picks, strict=True)
        ]
        inside = sum(gauge.seconds(*record.forward) for record in now.records if record.forward)
        inside += gauge.seconds(now.records[-1].begun, now.end) if now.records[-1].begun else 0.0
        outside = max(0.0, total - inside)
        known.outside = outside if not known.seen else min(known.outside, outside)
        known.seen += 1
        known.plan = None if known.seen <= REFINED else known.plan
        if not known.plan:
            self._make_plan(known)

    def _make_plan(self, known: Known) -> None:
        assert self._gauge is not None and self._mover is not None
        known.planned = max(self._base, known.base)
        known.plan = make_plan(known, self._budget, self._gauge.counts, self._link, self._choice)
        moved, room = known.plan.foreseen.moved, self._mover.room
        if moved + moved // 16 > room.nbytes:  # one slab for all of it; pieces that do not fit together take others
            room.reserve(min(moved + moved // 16, room.budget) - room.nbytes)

    # Carrying out.

    def _planned(
        self, now: Iteration, number: int, record: Record, part: Part, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        gauge, plan, treating = self._gauge, now.plan, self._treating
        assert gauge is not None and plan is not None and treating is not None
        expected = now.known.records[number] if number < len(now.known.records) else None
        if now.broken or expected is None or (expected.module, expected.signature) != (record.module, record.signature):
            now.broken = True
            now.known.forget()
            return Frame(part.call, part.buffers, gauge.device, compiled=part.compiled).run(args, kwargs)
        start = gauge.mark() if now.timed else None
        treatment, sent = TREATMENTS[plan.picks[number].name], now.sent.setdefault(number, [])
        output = treating.run(part, args, kwargs, treatment, expected, sent, record if now.timed else None)
        if now.timed:
            record.forward = start, gauge.mark()
        treating.leave(now, plan.foreseen.settle[number + 1])
        self._hook(now, number, record, output)
        return output


def _alike(one: FitPlan | None, other: FitPlan) -> bool:
    return one is not None and one.picks == other.picks and one.foreseen == other.foreseen
