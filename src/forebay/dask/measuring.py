"""Measuring goes on while chunks are worked on: what each needed is an observation."""

import re
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import distributed
from dask.base import normalize_token

from forebay.footprint.errors import FootprintWarning
from forebay.footprint.measure.process import name_of
from forebay.footprint.measure.resident import PEAKS, peaks_can_be_reset
from forebay.units import to_text

TOPIC = "forebay-footprint"
"""The topic of the events that workers log, followed by the digest of the function."""
MARK = re.compile(r"-fb1([0-9a-f]{16})-([0-9a-f]+)-[0-9a-f]+$")
"""How names of layers end whose blocks are to be measured: Forebay's mark of the first kind, with the function's digest
and the room of a block, and Dask's own token. The digit keeps it out of the names that the dashboard shows."""

_LOCAL: dict[str, list["Observation"]] = defaultdict(list)
"""Observations of chunks that were worked on in this process, by the digest of their function."""
_WARM: set[str] = set()
"""The digests of functions that have run in this process."""
_OUTGROWN: set["WatchedCall"] = set()
"""The calls of this process of which it was told that a block has outgrown its room."""
_MEASURING: ContextVar[bool] = ContextVar("measuring", default=True)


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

    digest: str
    """of the function, with its options, and of the kinds of its arrays"""
    room: int
    """bytes that a block may need above its input: its bound, and what that leaves of the budget"""

    @property
    def mark(self) -> str:
        """What names of tasks carry, so that workers need not be told of calls."""
        return f"-fb1{self.digest}-{max(self.room, 0):x}"


def watched_call(layer: str) -> WatchedCall | None:
    """Return what the name of a layer says of its call; None where it is none that is to be measured."""
    found = MARK.search(layer)
    return WatchedCall(found[1], int(found[2], 16)) if found else None


def digest_of(key: str) -> str:
    """Return what tells a function from all others, without its name."""
    return key.rpartition("-")[2]


def topic_of(digest: str) -> str:
    """Return where observations of a function are logged."""
    return f"{TOPIC}-{digest}"


@contextmanager
def unmeasured() -> Iterator[None]:
    """Have calls made meanwhile run unmeasured: graphs that are only looked at leave nothing with workers."""
    before = _MEASURING.set(False)
    try:
        yield
    finally:
        _MEASURING.reset(before)


def measuring() -> bool:
    """Return whether calls made now are measured where they ask for it."""
    return _MEASURING.get()


class RunningTasks:
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


RUNNING_TASKS = RunningTasks()
"""Of all tasks of this process: those of workers, and elsewhere those that are measured."""


@dataclass(frozen=True)
class MeasuredFunction:
    """A function that says what it needed each time it runs alone in its process, while no data arrives there."""

    func: Callable[..., Any]
    call: WatchedCall

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the function on the blocks among its arguments."""
        if not peaks_can_be_reset():
            return self.func(*arguments, **options)
        shape = next((tuple(each.shape) for each in arguments if hasattr(each, "dtype")), ())
        first, alone, arrived = self.call.digest not in _WARM, RUNNING_TASKS.alone(), _arrivals()
        begun, span = time.perf_counter(), PEAKS.begin()
        try:
            result = self.func(*arguments, **options)
        finally:
            needed = PEAKS.end(span)
        seconds = time.perf_counter() - begun
        _WARM.add(self.call.digest)
        if shape and prod(shape) and alone() and arrived is not None and arrived == _arrivals():
            made, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
            output, kind = (None, None) if made is None else (tuple(made), str(dtype))
            self._report(Observation(shape, needed, seconds, output, kind, first))
        return result

    def _report(self, observation: Observation) -> None:
        try:
            worker = distributed.get_worker()
        except ValueError:
            _LOCAL[self.call.digest].append(observation)
            text = outgrown(name_of(self.func), observation, self.call.room)
            if text and self.call not in _OUTGROWN:
                _OUTGROWN.add(self.call)
                warnings.warn(text, FootprintWarning, stacklevel=2)
        else:
            worker.log_event(topic_of(self.call.digest), asdict(observation) | {"room": self.call.room})


def outgrown(name: str, observation: Observation, room: int) -> str:
    """Say that a block has outgrown its room, and what to do; nothing where it has not.

    A function's first block in a process also pays for what libraries load once, and is no sign.
    """
    if observation.first or observation.bytes <= room:
        return ""
    return (
        f"{name} needed {to_text(observation.bytes)} for a block of {observation.shape}, and was planned to need no "
        f"more than {to_text(room)}: the blocks of this call stay as they are. Call it again, and its chunks follow "
        "from what was observed; where that loses workers, give a smaller budget=, or workers more memory"
    )


@dataclass(frozen=True)
class LocalFunction(MeasuredFunction):
    """A function that is measured where no workers are, and no plugin tells of the tasks that run."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the function, known to be in company of others like it."""
        task = object()
        RUNNING_TASKS.enter(task)
        try:
            return super().__call__(*arguments, **options)
        finally:
            RUNNING_TASKS.leave(task)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """Dask looks at the signature: block_id and block_info go to functions that ask for them."""
        return self.func

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("forebay", self.call.digest, normalize_token(self.func))


def observations_of(key: str, client: distributed.Client | None = None) -> list[Observation]:
    """List what chunks needed so far under a function, in this process and on the workers."""
    digest = digest_of(key)
    events = client.get_events(topic_of(digest)) if client is not None else ()
    remote = [Observation.of(event) for _, event in events or ()]
    return [*_LOCAL[digest], *remote]


def _arrivals() -> int | None:
    """Count the transfers that have brought data to this worker; None while one does."""
    try:
        worker = distributed.get_worker()
    except ValueError:
        return 0
    return None if worker.state.transfer_incoming_count else int(worker.state.transfer_incoming_count_total)
