"""Measuring goes on while chunks are worked on: what each needed is an observation, and those tighten a model."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import distributed

from forebay.footprint.chunks.predictor import Predictor, input_bytes, place_of
from forebay.footprint.estimate import Estimate
from forebay.footprint.measure.process import name_of
from forebay.footprint.measure.resident import CLEAR_REFS, peaks_can_be_reset, read_status

TOPIC = "forebay-footprint"
"""The topic of the events that workers log, followed by the key of the function."""

LEAST = 0.02
"""The margin that a bound keeps however much was observed: other shapes of the same size differ a little."""

ENOUGH = 3
"""Runs of about one size that are believed against the model: garbage that goes meanwhile hides a part of some."""

_LOCAL: dict[str, list["Observation"]] = defaultdict(list)
"""Observations of chunks that were worked on in this process."""
_WARM: set[str] = set()
"""The keys of functions that have run in this process."""
_RUNNING = 0
_STARTED = 0
_COUNTING = threading.Lock()


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
class MeasuredFunction:
    """A function that says what it needed each time it runs alone in its process, while no data arrives there."""

    func: Callable[..., Any]
    key: str

    def __call__(self, *chunks: Any, **options: Any) -> Any:
        """Run the function on its chunks."""
        with _alone() as alone:
            arrived = _arrivals()
            before = _forget_peak()
            begun = time.perf_counter()
            result = self.func(*chunks, **options)
            seconds = time.perf_counter() - begun
            peak = 0 if before is None else read_status("VmHWM")
            still = arrived is not None and arrived == _arrivals()
        if before is not None and still and alone() and prod(chunks[0].shape):
            shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
            output, kind = (None, None) if shape is None else (tuple(shape), str(dtype))
            given, first = tuple(chunks[0].shape), self.key not in _WARM
            _report(self.key, Observation(given, max(0, peak - before), seconds, output, kind, first))
        _WARM.add(self.key)
        return result

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """Dask looks at the signature: block_id and block_info go to functions that ask for them."""
        return self.func

    @property
    def __name__(self) -> str:
        """Dask names tasks by it, on its dashboard too."""
        return name_of(self.func)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        from dask.base import normalize_token

        return ("forebay", self.key, normalize_token(self.func))


@dataclass(frozen=True)
class ObservedModel:
    """A model held to what was observed: near observed sizes its bound follows them, elsewhere it stays.

    No terms are learned from observations: others of the process blur each, and terms that fit them may say too little
    of any other size. Where a run has outgrown the bound, what it took more counts at all sizes.
    """

    model: Predictor
    observations: tuple[Observation, ...]
    """of processes that were warm"""

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.model.ndim

    @property
    def dtype(self) -> Any:
        """The dtype of the input."""
        return self.model.dtype

    @property
    def place(self) -> str:
        """Where the bytes are: on the host, or on a device."""
        return place_of(self.model)

    def predict(self, shape: tuple[int, ...], /) -> Estimate:
        """Return the model's estimate; near observed sizes its bound is the largest excess observed."""
        estimate = self.model.predict(shape)
        near = [excess for volume, excess in self._excesses if 0.5 <= volume / max(1, prod(shape)) <= 2]
        if not near:
            return replace(estimate, upper=max(estimate.upper, int(estimate.bytes * self._outgrown)))
        own, typical = estimate.upper / max(1, estimate.bytes), near[len(near) // 2]
        # Few runs have not shown the worst: a share of the model's own margin stays, less with each of them.
        most = (near[-1] if len(near) >= ENOUGH else max(1.0, near[-1])) + LEAST
        left = max(0.0, own - most) / (len(near) + 1)
        likeliest = int(estimate.bytes * typical) if len(near) >= ENOUGH else estimate.bytes
        return replace(estimate, bytes=likeliest, upper=int(estimate.bytes * (most + left)))

    def input_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of the input, or of all inputs."""
        return input_bytes(self.model, shape)

    @cached_property
    def _excesses(self) -> list[tuple[int, float]]:
        """The elements of each run, and what it took over what the model thought likeliest; the least first."""
        pairs = (
            (prod(run.shape), run.bytes / max(1, self.model.predict(run.shape).bytes)) for run in self.observations
        )
        return sorted(pairs, key=lambda pair: pair[1])

    @cached_property
    def _outgrown(self) -> float:
        """The largest excess, with a margin, where the model's bound did not cover all runs; else 0."""
        covered = all(run.bytes <= self.model.predict(run.shape).upper for run in self.observations)
        return 0.0 if covered else self._excesses[-1][1] + LEAST


def tighten(model: Predictor, observations: list[Observation]) -> Predictor:
    """Return the model, held to what chunks needed once their process was warm."""
    warm = tuple(run for run in observations if not run.first)
    return ObservedModel(model, warm) if warm else model


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


@contextmanager
def _alone() -> Iterator[Callable[[], bool]]:
    """Find out whether no other measured chunk ran at the same time: peaks are those of the process."""
    global _RUNNING, _STARTED
    with _COUNTING:
        _RUNNING += 1
        _STARTED += 1
        company, number = _RUNNING > 1, _STARTED
    try:
        yield lambda: not company and number == _STARTED
    finally:
        with _COUNTING:
            _RUNNING -= 1


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
