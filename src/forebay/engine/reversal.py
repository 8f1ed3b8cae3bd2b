"""A reversal on its way: run forward to its turn, where it may wait, and later backward, or be given up there."""

import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from forebay.engine.executor import Executor
from forebay.engine.layout import Layout
from forebay.engine.loop import TimeLoop
from forebay.engine.result import Result
from forebay.engine.sampling import Sampler
from forebay.engine.spilling import SpillingExecutor
from forebay.errors import EngineError
from forebay.machine.packing import Packing
from forebay.metrics import Metrics
from forebay.planner import Plan
from forebay.planner.operations import Operation
from forebay.schedule import Restore


class Reversal:
    """The memory, lanes and place in the plan of one reversal.

    Several may wait at their turns at the same time, each with the memory that its plan says. One that is given up,
    or that nothing refers to any more, gives its memory and files back.
    """

    def __init__(
        self,
        loop: TimeLoop,
        plan: Plan,
        kept: Layout,
        packing: Packing | None,
        rooms: Sequence[int],
        *,
        lossy: bool,
        where: Path,
        synchronous: bool,
        note: str = "",
    ) -> None:
        self.plan, self.note = plan, note
        self._nbytes = kept.nbytes
        self._operations = plan.operations()
        keeps = plan.keep == "states"
        self._sampler = Sampler(loop.record_layout or loop.layout, loop.coarse_steps) if lossy else None
        self._ticking = _Ticking()
        self._machine = machine = loop.library.machine(where, synchronous)
        self._close = weakref.finalize(self, machine.close)
        try:
            callbacks = loop.callbacks(keeps, self._sampler, self._ticking, machine.pause)
            executor: Executor

            def initial() -> Any:
                return executor.load(loop.arrays) if keeps else loop.fresh()

            if packing is None:
                executor = Executor(machine, kept, plan.tiers, rooms, callbacks)
            else:
                executor = SpillingExecutor(machine, kept, plan.tiers, rooms, callbacks, packing, initial)
            self._stages = executor.stages(self._operations, plan.schedule.steps, initial())
        except BaseException:
            self._close()
            raise

    def forward(self) -> Any:
        """Run to the turn and return the final state, which the caller must not hold beyond it without a copy."""
        try:
            return next(self._stages)
        except BaseException:
            self._close()
            raise

    def wait(self) -> None:
        """Let the caller go on with other things: its streams wait for the reversal's, and are current again."""
        self._machine.leave()

    def resume(self) -> None:
        """Take up again where it waited, in whatever thread."""
        if not self._close.alive:
            raise EngineError("a reversal that has ended or was given up cannot go on: start another")
        self._machine.enter()

    def backward(self, tick: Callable[[], None] = lambda: None) -> Result:
        """Run the rest, calling `tick` after each backward step, and give back everything but the result."""
        self._ticking.tick = tick
        machine = self._machine
        try:
            for _ in self._stages:
                raise EngineError("the schedule comes to the end of the loop twice")
            machine.finish()
            machine.metrics.samples = self._sampler.samples() if self._sampler else []
        finally:
            self.give_up()
        _count(machine.metrics, self.plan, self._operations, self._nbytes)
        return Result(self.plan, machine.metrics, self.note)

    def give_up(self) -> None:
        """Free memory and remove files, whatever has been done; again is no error."""
        self._stages = iter(())  # lets go of the arrays in the memory that is given back
        self._close()


class _Ticking:
    """Calls what is to be told of backward steps, which may be known only after the turn."""

    tick: Callable[[], None] = staticmethod(lambda: None)

    def __call__(self) -> None:
        self.tick()


def _count(metrics: Metrics, plan: Plan, operations: Sequence[Operation], nbytes: int) -> None:
    """Fill in what follows from the operations that were carried out."""
    restores = sum(isinstance(operation, Restore) for operation in operations)
    if len(plan.slots) > 1:
        # Against moving every snapshot, and each as it is.
        metrics.avoided["up 1"] = max(0, restores * nbytes - metrics.moved["up 1"])
        metrics.avoided["down 1"] = max(0, plan.schedule.saves * nbytes - metrics.moved["down 1"])
