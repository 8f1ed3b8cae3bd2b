"""A time loop as its user describes it, in the (coarse) steps of a schedule."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import partial
from typing import Any

from forebay.codec import Encoded
from forebay.engine.array_memory import ArrayMemory, memory_of
from forebay.engine.executor import Callbacks
from forebay.engine.layout import Layout, arrays_of, without_windows
from forebay.engine.sampling import Sampler
from forebay.engine.states.loans import Loans
from forebay.errors import PlanError, StateError
from forebay.schedule.segmented import check_count
from forebay.units import short

Record = Sequence[Any] | Callable[[Any, int], Any]


class Trusted(tuple[Any, ...]):
    """A state whose maker has seen to it that it is like all others, and that is taken as it is until it is kept.

    Doors to other libraries return such: their arrays may be elsewhere where nothing is kept of a step.
    """


def check_functions(**given: object) -> None:
    """Refuse what is no function before anything is run."""
    for name, value in given.items():
        if not callable(value):
            raise PlanError(f"{name}={short(value)}: give a function")


class TimeLoop:
    """The callbacks of a user, and what follows from the initial state."""

    def __init__(
        self,
        forward: Callable[..., Any],
        state: Any,
        steps: int,
        every: int,
        record: Record | None,
        encoded: bool = False,
    ) -> None:
        check_count(every, "every")
        if every < 1:
            raise PlanError(f"every={every}: it must be at least 1")
        self.layout = Layout.of(state)
        if not isinstance(state, Trusted):
            self.layout.check_apart(arrays_of(state))
        self.memory: ArrayMemory = memory_of(state)
        self.steps, self.every, self.encoded = steps, min(every, steps), encoded
        record = (record,) if isinstance(record, str) else record
        self._forward, self._state, self._record = forward, state, record
        self._takes_replay = "replay" in inspect.signature(forward).parameters
        self._furthest = 0  # up to here the steps have been run before
        self.record_layout: Layout | None = None
        if record is not None:
            # The first record is not kept: it may be a copy on the device.
            with self.memory.current():
                self.record_layout = Layout.of(without_windows(self._taken(record, state, 0)), "record")

    @property
    def allocations(self) -> int:
        """Of the working state beside the engine's memory: where it may keep records, each array has one."""
        return len(self.layout.leaves) if self.record_layout else 0

    @property
    def coarse_steps(self) -> int:
        """Steps of the schedule."""
        return -(-self.steps // self.every)

    def end(self, steps: int) -> None:
        """Take note of the steps that a loop of unknown end has had."""
        self.steps, self.every = steps, min(self.every, steps)

    @property
    def arrays(self) -> list[Any]:
        """The arrays of the initial state."""
        return arrays_of(self._state)

    def fresh(self) -> Any:
        """Copy the initial state, which stays the caller's."""
        return self.layout.copy(self._state)

    def advance(self, state: Any, start: int, stop: int) -> Any:
        """Run forward, telling it which steps it has run before where it wants to know."""
        first, last = start * self.every, min(stop * self.every, self.steps)
        if not self._takes_replay:
            return self._like(self._forward(state, first, last))
        furthest = min(max(first, self._furthest), last)
        if first < furthest:
            state = self._like(self._forward(state, first, furthest, replay=True))
        if furthest < last:
            state = self._like(self._forward(state, furthest, last, replay=False))
            self._furthest = last
        return state

    def advance_unchecked(self, state: Any, start: int) -> Any:
        """Run one step of the schedule forward again, on a state that nobody keeps."""
        told = {"replay": True} if self._takes_replay else {}
        return self._forward(state, start * self.every, min((start + 1) * self.every, self.steps), **told)

    def _like(self, state: Any) -> Any:
        """Return a new state as the initial one is built."""
        return state if isinstance(state, Trusted) else self.layout.match(state)

    def record_of(self, state: Any, step: int, windows: bool = False) -> Any:
        """Return what backward needs of a state, always built in the same way; windows are for what encodes them."""
        if self._record is None:
            return state
        assert self.record_layout is not None
        return self.record_layout.match_record(self._taken(self._record, state, step), windows)

    def _taken(self, record: Record, state: Any, step: int) -> Any:
        if callable(record):
            return record(state, step * self.every)
        try:
            if isinstance(state, dict):
                return {key: state[key] for key in record}
            if is_dataclass(state):
                return {key: getattr(state, key) for key in record}
            return tuple(state[key] for key in record)
        except (AttributeError, KeyError, IndexError, TypeError) as error:
            raise StateError(f"record={record!r} names what the state does not have: {error}") from error

    def callbacks(
        self,
        keeps: bool,
        sampler: Sampler | None,
        backward: Callable[[Any, int], None],
        pause: Callable[[], None],
        windows: bool = False,
    ) -> Callbacks:
        """Return what the engine calls; `keeps` says that snapshots are states, `windows` that records may be such."""
        loans = Loans()

        def forward(state: Any, start: int, stop: int) -> Any:
            if sampler:
                for sampled in sampler.stops(start, stop):
                    state = self.advance(state, start, sampled) if sampled > start else state
                    sampler.keep(sampled, self.record_of(state, sampled))
                    pause()  # forward may overwrite what is being copied
                    start = sampled
            return self.advance(state, start, stop)

        def visit(snapshot: Any, step: int) -> None:
            counted = loans.count_references()
            needed = self.record_of(snapshot, step) if keeps else snapshot
            if windows and self.record_layout is not None:
                needed = self.record_layout.match_record(needed)
            # A tree of its own: who keeps it refers to the arrays once more than we do.
            is_trusted = isinstance(needed, Trusted)
            needed = Trusted(needed) if is_trusted else (self.record_layout or self.layout).locked(needed)
            if sampler:
                sampler.see(step, needed)
            backward(needed, step * self.every)
            del needed  # what is left of it is backward's
            loans.allow(counted)

        def visit_encoded(leaves: Sequence[Encoded], step: int) -> None:
            assert self.record_layout is not None
            backward(self.record_layout.build(leaves), step * self.every)

        return Callbacks(
            forward=forward,
            backward=visit,
            snapshot=(lambda state, step: state) if keeps else partial(self.record_of, windows=windows),
            keeps=keeps,
            loans=loans,
            encoded=visit_encoded,
            hands_encoded=lambda step: self.encoded and not keeps and not (sampler and sampler.sees(step)),
        )
