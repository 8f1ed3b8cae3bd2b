"""A reversal on its way: run forward to its turn, where it may wait, and later backward, or be given up there."""

import weakref
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

from forebay.engine.executor import Executor
from forebay.engine.layout import Layout
from forebay.engine.loop import TimeLoop
from forebay.engine.result import Result
from forebay.engine.sampling import Sampler
from forebay.engine.showing import shown
from forebay.engine.spilling import Assumed, Rooms, SpillingExecutor
from forebay.errors import EngineError
from forebay.machine.packing import Packing
from forebay.metrics import Metrics
from forebay.planner import Plan
from forebay.planner.operations import Operation
from forebay.schedule import Forward, Restore


class Phase(Enum):
    """How far a reversal has come, in the words of its errors."""

    PREPARED = "has not been run forward yet: call forward() first"
    TURNED = "has been run forward: call backward(), or prepare another"
    ENDED = "has ended or was given up: prepare another"


class Reversal:
    """One reversal in two phases: `forward` to the turn and, whenever the caller is ready, `backward`.

    Made by `prepare`. Several may wait at their turns at the same time, each with the memory that its plan says. One
    that is closed, or that nothing refers to any more, gives its memory and files back.
    """

    def __init__(
        self,
        loop: TimeLoop,
        plan: Plan,
        kept: Layout,
        packing: Packing | None,
        rooms: Rooms,
        *,
        states: Packing | None = None,
        lossy: bool,
        where: Path,
        synchronous: bool,
        note: str = "",
    ) -> None:
        self.plan, self.note = plan, note
        self._loop, self._kept, self._packing, self._rooms = loop, kept, packing, rooms
        self._where, self._synchronous, self._states = where, synchronous, states
        self._sampler = Sampler(loop.record_layout or loop.layout, loop.coarse_steps) if lossy else None
        self._visitor = _Visitor()
        self._phase = Phase.PREPARED
        self._executor: Executor | None = None
        self._close: Callable[[], object] = lambda: None

    def forward(self, turn: Callable[[Any], Any] | None = None) -> Any:
        """Take the memory, run to the turn, and return the final state, or what `turn(final_state)` makes of it.

        The final state is in memory that `backward` uses again: copy what is needed longer. On a GPU `turn` is called
        with the engine's stream current, as all callbacks are; after the return the caller's streams are, in order.
        """
        self._demand(Phase.PREPARED)
        operations = self.plan.operations()
        turned = _before_turn(operations, self.plan.schedule.steps)
        self._machine = machine = self._loop.library.machine(self._where, self._synchronous)
        self._close = weakref.finalize(self, machine.close)
        try:
            self._executor, state = self._start()
            final = self._executor.run(operations[:turned], state)
            result = final if turn is None else turn(final)
            machine.leave()
        except BaseException:
            self.close()
            raise
        self._operations, self._done = operations, turned
        self._phase = Phase.TURNED
        return result

    def backward(self, backward: Callable[[Any, int], None], progress: bool | None = None) -> Result:
        """Call ``backward(state_or_record, step)`` from the last step to the first, in whatever thread.

        Everything but the result is given back at the end. Parameters are as for `reverse`.
        """
        self._demand(Phase.TURNED)
        assert self._executor is not None
        machine = self._machine
        try:
            machine.enter()
            schedule = self.plan.schedule
            with shown(f"reversing with {schedule}", schedule.steps, self.plan.seconds, progress) as tick:
                self._visitor.backward, self._visitor.tick = backward, tick
                self._executor.run(self._operations[self._done :], None)
            machine.finish()
            machine.metrics.samples = self._sampler.samples() if self._sampler else []
        finally:
            self.close()
        _count(machine.metrics, self.plan, self._operations, self._kept.nbytes)
        return Result(self.plan, machine.metrics, self.note)

    def close(self) -> None:
        """Free memory and remove files, whatever has been done; again is no error."""
        self._phase = Phase.ENDED
        self._visitor.forget()
        self._executor = None  # lets go of the arrays in the memory that is given back
        self._close()

    def __enter__(self) -> "Reversal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _demand(self, phase: Phase) -> None:
        if self._phase is not phase:
            raise EngineError(f"this reversal {self._phase.value}")

    def _start(self) -> tuple[Executor, Any]:
        """Return what runs the operations, and a copy of the initial state where it computes."""
        loop, plan, machine, packing = self._loop, self.plan, self._machine, self._packing
        keeps = plan.keep == "states"
        callbacks = loop.callbacks(keeps, self._sampler, self._visitor, machine.pause)
        executor: Executor

        def initial() -> Any:
            return executor.load(loop.arrays) if keeps else loop.fresh()

        if packing is None:
            executor = Executor(machine, self._kept, plan.tiers, self._rooms.first, callbacks)
        else:
            schedule = plan.schedule
            executor = SpillingExecutor(
                machine,
                self._kept,
                plan.tiers,
                self._rooms,
                callbacks,
                packing,
                initial,
                states=None if self._states is None else (loop.layout, self._states),
                assumed=Assumed(plan.snapshot_bytes, schedule.peak_snapshots, schedule.forward_steps),
            )
        return executor, initial()


class _Visitor:
    """Calls what goes back through the loop, which is known only after the turn, and tells of each step."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Let go of what was called."""
        self.backward: Callable[[Any, int], None] = lambda snapshot, step: None
        self.tick: Callable[[], None] = lambda: None

    def __call__(self, snapshot: Any, step: int) -> None:
        self.backward(snapshot, step)
        self.tick()


def _before_turn(operations: Sequence[Operation], steps: int) -> int:
    """Count the operations up to the end of the loop."""
    ends = (number for number, each in enumerate(operations, 1) if isinstance(each, Forward) and each.stop == steps)
    return next(ends)


def _count(metrics: Metrics, plan: Plan, operations: Sequence[Operation], nbytes: int) -> None:
    """Fill in what follows from the operations that were carried out."""
    restores = sum(isinstance(operation, Restore) for operation in operations)
    if len(plan.slots) > 1:
        # Against moving every snapshot, and each as it is.
        metrics.avoided["up 1"] = max(0, restores * nbytes - metrics.moved["up 1"])
        metrics.avoided["down 1"] = max(0, plan.schedule.saves * nbytes - metrics.moved["down 1"])
