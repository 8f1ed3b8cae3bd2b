"""A reversal on its way: run forward to its turn, where it may wait, and later backward, or be given up there."""

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any

from forebay.engine.executor import Executor
from forebay.engine.layout import Layout, arrays_of
from forebay.engine.loop import TimeLoop, check_functions
from forebay.engine.result import Result
from forebay.engine.sampling import Sampler
from forebay.engine.showing import progress_bar
from forebay.engine.spilling import Rooms, SnapshotCoding, SpillingExecutor
from forebay.errors import BudgetError, EngineError
from forebay.forking import only_here
from forebay.machine.machine import ReversalMachine
from forebay.metrics import Metrics
from forebay.planner import Plan
from forebay.planner.operations import Operation
from forebay.planner.residency import holdings, ways_back
from forebay.planner.trace import up_to
from forebay.schedule import Forward
from forebay.schedule.online import retainable


class Phase(Enum):
    """How far a reversal has come, in the words of its errors."""

    PREPARED = "has not been run forward yet: call forward() first"
    RUNNING = "is running: let its callbacks return first (one that is to end it raises an exception)"
    TURNED = "has been run forward: call backward(), or prepare another"
    ENDED = "has ended or was given up: prepare another, or say retain=True to all backward() but the last"


MakeMachine = Callable[[], ReversalMachine]
"""Returns what a reversal runs on."""


@dataclass(frozen=True)
class Setup:
    """A loop, where its snapshots go, and how they are kept there."""

    loop: TimeLoop
    keeps: bool
    """that snapshots are states"""
    kept: Layout
    """of a snapshot"""
    coding: SnapshotCoding | None
    tiers: Sequence[str]
    rooms: Rooms
    """bytes of each tier"""
    machine: MakeMachine
    spilling: type[SpillingExecutor] = SpillingExecutor
    """what runs operations where snapshots are encoded"""

    def start(self, machine: ReversalMachine, sampler: Sampler | None, visitor: "Visitor") -> tuple[Executor, Any]:
        """Take the memory, and return what runs operations in it, and a copy of the initial state."""
        windows = self.coding is not None and self.coding.packing.windows
        callbacks = self.loop.callbacks(self.keeps, sampler, visitor, machine.pause, windows)
        executor: Executor

        def initial() -> Any:
            return executor.load(self.loop.arrays) if self.keeps else self.loop.fresh()

        if self.coding is None:
            executor = Executor(machine, self.kept, self.tiers, self.rooms.first, callbacks)
        else:
            executor = self.spilling(machine, self.kept, self.tiers, self.rooms, callbacks, self.coding, initial)
        return executor, initial()


class Reversal:
    """One reversal in two phases: `forward` to the turn and, whenever the caller is ready, `backward`.

    Made by `prepare`. Several may wait at their turns at the same time, each with the memory that its plan says. One
    that is closed, or that nothing refers to any more, gives its memory and files back.
    """

    def __init__(self, setup: Setup, plan: Plan | None, lossy: bool = False, note: str = "") -> None:
        self.note = note
        self._setup, self._plan = setup, plan
        loop = setup.loop
        self._sampler = Sampler(loop.record_layout or loop.layout, loop.coarse_steps) if lossy else None
        self._visitor = Visitor()
        self._phase, self._entering = Phase.PREPARED, threading.Lock()
        self._runner: int | None = None  # the thread that runs it, or ran it last
        self._executor: Executor | None = None
        self._close: weakref.finalize[[], Reversal] | None = None
        self._later: Iterable[Operation] | None = None  # what is left of the plan, until snapshots are retained
        self._held: list[set[int]] | None = None  # those that each tier holds by then

    @property
    def plan(self) -> Plan:
        """What is carried out; where the end or the costs of steps are not known, there is none before the turn."""
        if self._plan is None:
            raise EngineError("a loop of unknown end or costs has no plan before its turn: call forward() first")
        return self._plan

    def forward(self, turn: Callable[[Any], Any] | None = None) -> Any:
        """Take the memory, run to the turn, and return the final state, or what `turn(final_state)` makes of it.

        The final state is in memory that `backward` uses again: copy what is needed longer. On a GPU `turn` is called
        with the engine's stream current, as all callbacks are; after the return the caller's streams are, in order.
        """
        self._start(Phase.PREPARED)
        try:
            if self._plan is not None:  # before the clock of the machine begins
                self._later = iter(self._plan)
            machine = self._setup.machine()
            self._close = weakref.finalize(self, only_here(machine.close))
            self._executor, state = self._setup.start(machine, self._sampler, self._visitor)
            final = self._sweep(self._executor, state)
            if (loans := self._executor.callbacks.loans) is not None:
                loans.turn(arrays_of(final))
            result = final if turn is None else turn(final)
            machine.leave()
        except BaseException:
            self._end()
            raise
        self._phase = Phase.TURNED
        return result

    def _sweep(self, executor: Executor, state: Any) -> Any:
        """Run to the turn, and leave behind what comes later."""
        assert self._later is not None
        return executor.run(up_to(self._later, self._is_turn), state)

    def _is_turn(self, operation: Operation) -> bool:
        return isinstance(operation, Forward) and operation.stop == self.plan.schedule.steps

    def _held_at_turn(self) -> list[set[int]]:
        """Return which snapshots each tier holds then, as planned."""
        return holdings(up_to(self.plan, self._is_turn), [()] * len(self._setup.tiers))[0]

    def backward(
        self, backward: Callable[[Any, int], None], progress: bool | None = None, retain: bool = False
    ) -> Result:
        """Call ``backward(state_or_record, step)`` from the last step to the first, in whatever thread.

        Everything but the result is given back at the end, unless `retain` says that another adjoint of the same
        forward run will follow. Other parameters are as for `reverse`; metrics are of all phases so far.
        """
        check_functions(backward=backward)
        self._start(Phase.TURNED)
        try:
            operations = self._way_back(retain)
        except BaseException:
            self._phase = Phase.TURNED
            raise
        try:
            result = self._back(operations, backward, progress, retain)
        except BaseException:
            self._end()
            raise
        if retain:
            self._phase = Phase.TURNED
        else:
            self._end()
        return result

    def _back(
        self, operations: Iterable[Operation], backward: Callable[[Any, int], None], progress: bool | None, retain: bool
    ) -> Result:
        """Run from the turn to the start."""
        assert self._executor is not None
        machine, schedule = self._executor.machine, self.plan.schedule
        machine.enter()
        with progress_bar(f"reversing with {schedule}", schedule.steps, self.plan.seconds, progress) as tick:
            self._visitor.backward, self._visitor.tick = backward, tick
            self._executor.run(operations, None)
        if (loans := self._executor.callbacks.loans) is not None:
            loans.check(is_end=True)
        machine.finish()
        machine.metrics.samples = self._sampler.samples() if self._sampler else []
        if not retain:
            return self._result(machine.metrics)
        assert self._held is not None
        self._later, self._held = None, holdings(operations, self._held)[0]
        self._visitor.forget()
        machine.leave()
        return self._result(deepcopy(machine.metrics))

    def _way_back(self, retain: bool) -> Iterable[Operation]:
        """Return the operations that follow: those of the plan, unless snapshots are retained or have been."""
        if self._later is not None and not retain:
            return self._later
        if self._held is None:
            self._held = self._held_at_turn()
        held = self._held
        peak, steps = self.plan.prediction.peak, self.plan.schedule.steps
        kept = sorted(set().union(*held))
        choices: Sequence[Sequence[int]] = [kept if retain else []]
        if retain and self._setup.keeps:
            choices = retainable(kept, steps, sum(peak))
        way = next(ways_back(held, steps, peak, choices), None)
        if way is None:
            raise BudgetError("the snapshots leave no slot free, and so cannot be retained: give a larger budget")
        return way

    def _result(self, metrics: Metrics) -> Result:
        """Return what was measured, with what follows from it."""
        if len(self.plan.slots) > 1:
            # Against moving every snapshot, and each as it is.
            nbytes, restores = self._setup.kept.nbytes, metrics.hits + metrics.misses
            metrics.avoided["up 1"] = max(0, restores * nbytes - metrics.moved["up 1"])
            metrics.avoided["down 1"] = max(0, self.plan.schedule.saves * nbytes - metrics.moved["down 1"])
        return Result(self.plan, metrics, self.note)

    def close(self) -> None:
        """Free memory and remove files, whatever has been done; again is no error."""
        if self._phase is Phase.RUNNING:
            raise EngineError(f"this reversal {self._phase.value}")
        self._end()

    def _end(self) -> None:
        """Return to where everything has been given back."""
        try:
            self._give_back()
        except BaseException:
            self._give_back()  # Ctrl-C may have ended it anywhere: again is no harm
            raise

    def _give_back(self) -> None:
        self._phase = Phase.ENDED
        self._visitor.forget()
        self._executor = self._later = None  # lets go of the arrays in the memory that is given back
        if self._close is not None and (call := self._close.peek()) is not None:
            call[1]()  # a finalizer that is called would not be called again
            self._close.detach()

    def __enter__(self) -> "Reversal":
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None and self._phase is Phase.RUNNING and self._runner == threading.get_ident():
            self._end()  # Ctrl-C came before anything was run, and nothing else is to be said
        else:
            self.close()

    def _start(self, phase: Phase) -> None:
        """Begin what comes after a phase, in one thread only."""
        with self._entering:
            if self._phase is not phase:
                raise EngineError(f"this reversal {self._phase.value}")
            self._runner, self._phase = threading.get_ident(), Phase.RUNNING


class Visitor:
    """Calls what goes back through the loop, which is known only after the turn, and tells of each step."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Let go of what was called."""
        self.backward: Callable[[Any, int], None] = lambda snapshot, step: None
        self.tick: Callable[[], None] = lambda: None

    def __call__(self, snapshot: Any, step: int) -> None:
        """Go back by a step."""
        self.backward(snapshot, step)
        self.tick()
