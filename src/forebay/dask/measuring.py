"""Measuring goes on while chunks are worked on: what each needed is an observation, and who needs too much is cut."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from typing import Any

import distributed
from dask.base import normalize_token

from forebay.dask.parts import Cut, UncutError, in_parts
from forebay.dask.rescue import OutgrownError, run_guarded
from forebay.footprint.errors import FootprintWarning
from forebay.footprint.measure.resident import CLEAR_REFS, peaks_can_be_reset, read_status
from forebay.units import to_text

TOPIC = "forebay-footprint"
"""The topic of the events that workers log, followed by the key of the function."""

_LOCAL: dict[str, list["Observation"]] = defaultdict(list)
"""Observations of chunks that were worked on in this process."""
_WARM: set[str] = set()
"""The keys of functions that have run in this process."""
_PARTS: dict[str, int] = defaultdict(lambda: 1)
"""In how many parts the blocks of each call are worked on in this process, once one has outgrown its room; none where
they cannot be cut."""
_TOLD: set[str] = set()
"""The calls of which somebody was told that their blocks are too large."""
_CHECKED: set[str] = set()
"""The calls whose parts gave what the whole gave."""


@dataclass(frozen=True)
class Observation:
    """What one chunk needed."""

    shape: tuple[int, ...]
    bytes: int
    """the peak of the process above what it held before; what arrives from other workers at the same time counts too"""
    seconds: float
    output_shape: tuple[int, ...] | None
    output_dtype: str | None
    first: bool = False
    """whether it was the function's first in its process: it also paid for what libraries load once"""

    @classmethod
    def of(cls, event: dict[str, Any]) -> "Observation":
        """Read what a worker logged: tuples have become lists on the way, and its address was added."""
        output = event["output_shape"]
        return cls(
            shape=tuple(event["shape"]),
            bytes=event["bytes"],
            seconds=event["seconds"],
            output_shape=None if output is None else tuple(output),
            output_dtype=event["output_dtype"],
            first=event["first"],
        )


@dataclass(frozen=True)
class WatchedCall:
    """What those who run the blocks of a call know of it."""

    key: str
    """of the function"""
    name: str
    """of the tasks, without what tells them apart"""
    room: int
    """bytes that a block may need above its input: its bound, and what that leaves of the budget"""
    cut: Cut | None = None
    """how a block may be worked on in parts"""


class Company:
    """Tells whether a block runs alone in its process: peaks are those of the process."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._running: set[Hashable] = set()
        self._begun = 0

    def enter(self, task: Hashable) -> None:
        """Note that a task begins."""
        with self._changing:
            self._begun += task not in self._running
            self._running.add(task)

    def leave(self, task: Hashable) -> None:
        """Note that it has ended."""
        with self._changing:
            self._running.discard(task)

    def alone(self) -> Callable[[], bool]:
        """Return what tells later whether the one task that runs now had no company since."""
        begun, company = self._begun, len(self._running) > 1
        return lambda: not company and begun == self._begun


COMPANY = Company()
"""Of all tasks of this process: those of workers, and elsewhere those that are measured."""


@dataclass(frozen=True)
class MeasuredFunction:
    """A function that says what it needed each time it runs alone in its process, while no data arrives there.

    Once a block has needed more room than there is, what remains is worked on in parts.
    """

    func: Callable[..., Any]
    call: WatchedCall

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the function on the blocks among its arguments."""
        places = [place for place, argument in enumerate(arguments) if hasattr(argument, "dtype")]
        blocks = tuple(arguments[place] for place in places)
        while True:
            count, most = self._counts(blocks)

            def run(parts: tuple[Any, ...], count: int = count, guarded: bool = count < most) -> Any:
                filled = list(arguments)
                for place, part in zip(places, parts, strict=True):
                    filled[place] = part
                return self._measured(filled, options, parts, count, guarded)

            try:
                if count == 1:
                    return run(blocks)
                assert self.call.cut is not None
                result = in_parts(run, blocks, self.call.cut, count, check=self.call.name not in _CHECKED)
                _CHECKED.add(self.call.name)
                return result
            except OutgrownError as outgrown:
                self._shrink(outgrown.held, count, blocks)
            except UncutError:
                _PARTS[self.call.name] = 0
                self._tell("its blocks give something else in parts, and stay whole: give workers more memory")

    def _counts(self, blocks: tuple[Any, ...]) -> tuple[int, int]:
        """Return in how many parts blocks are to be worked on, and in how many they can be."""
        wanted = _PARTS[self.call.name]
        if not wanted or self.call.cut is None or len({block.shape for block in blocks}) != 1:
            return 1, 1
        most = max(1, self.call.cut.most(blocks[0].shape))
        return min(wanted, most), most

    def _measured(
        self, arguments: list[Any], options: dict[str, Any], blocks: tuple[Any, ...], count: int, guarded: bool
    ) -> Any:
        alone, arrived = COMPANY.alone(), _arrivals()
        first, before = self.call.key not in _WARM, _forget_peak()
        begun = time.perf_counter()

        def report(needed: int, result: Any = None) -> bool:
            """Report what was needed, if it was the block's; tell whether it was."""
            seconds, still = time.perf_counter() - begun, arrived is not None and arrived == _arrivals()
            if not (still and alone() and blocks and prod(blocks[0].shape)):
                return False
            shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
            output, kind = (None, None) if shape is None else (tuple(shape), str(dtype))
            _report(self.call.key, Observation(tuple(blocks[0].shape), needed, seconds, output, kind, first))
            return not first

        try:
            run = partial(self.func, *arguments, **options)
            result = run_guarded(run, self._room(count, blocks)) if guarded else run()
        except OutgrownError as outgrown:
            report(outgrown.held)
            raise
        if before is not None:
            needed = max(0, read_status("VmHWM") - before)
            if report(needed, result) and needed > self._room(count, blocks):
                self._shrink(needed, count, blocks, guarded)
        _WARM.add(self.call.key)
        return result

    def _room(self, count: int, parts: tuple[Any, ...]) -> int:
        """Return what a part may need: beside it, all of the result is there."""
        result = count * parts[0].nbytes if count > 1 else 0
        return max(self.call.room - result, self.call.room // 4)

    def _shrink(self, needed: int, count: int, blocks: tuple[Any, ...], can: bool = True) -> None:
        """Have what remains worked on in more parts, where it can be; tell of the first block that was too large."""
        parts = max(2 * count, -(-count * needed // max(1, self._room(2, blocks)))) if can else 0
        if parts > _PARTS[self.call.name] or self.call.name not in _TOLD:
            _PARTS[self.call.name] = max(parts, _PARTS[self.call.name])
            _TOLD.add(self.call.name)
            how = f"is worked on in {parts} parts a block" if parts else "needs as much: give workers more memory"
            self._tell(
                f"it needed {to_text(needed)} for a block of {blocks[0].shape}, and there is room for "
                f"{to_text(self.call.room)}: what remains {how}, and the next call plans with what was seen"
            )

    def _tell(self, what: str) -> None:
        """Warn here, and whoever listens to the cluster."""
        distributed.worker.warn(f"{self.call.key.rpartition('-')[0]}: {what}", FootprintWarning)


@dataclass(frozen=True)
class LocalFunction(MeasuredFunction):
    """A function that is measured where no workers are, and no plugin tells of the tasks that run."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the function, known to be in company of others like it."""
        task = object()
        COMPANY.enter(task)
        try:
            return super().__call__(*arguments, **options)
        finally:
            COMPANY.leave(task)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """Dask looks at the signature: block_id and block_info go to functions that ask for them."""
        return self.func

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("forebay", self.call.key, normalize_token(self.func))


def observations_of(key: str, client: distributed.Client | None = None) -> list[Observation]:
    """List what chunks needed so far under a function, in this process and on the workers."""
    events = client.get_events(f"{TOPIC}-{key}") if client is not None else ()
    remote = [Observation.of(event) for _, event in events or ()]
    return [*_LOCAL[key], *remote]


def _report(key: str, observation: Observation) -> None:
    try:
        worker = distributed.get_worker()
    except ValueError:
        _LOCAL[key].append(observation)
    else:
        worker.log_event(f"{TOPIC}-{key}", asdict(observation))


def _arrivals() -> int | None:
    """Count the transfers that have brought data to this worker; None while one does."""
    try:
        worker = distributed.get_worker()
    except ValueError:
        return 0
    return None if worker.state.transfer_incoming_count else int(worker.state.transfer_incoming_count_total)


def _forget_peak() -> int | None:
    """Begin a new peak, and return the resident bytes there are now; None where the system cannot."""
    if not peaks_can_be_reset():
        return None
    CLEAR_REFS.write_text("5")
    return read_status("VmRSS")
