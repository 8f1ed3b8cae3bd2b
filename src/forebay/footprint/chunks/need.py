"""What a chunk shape needs, in bytes and seconds: the arithmetic of the planner."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from numbers import Integral
from typing import Any

from forebay.footprint.chunks.ladders import Ladder
from forebay.footprint.chunks.predictor import Predictor, Shape, input_bytes, output_bytes
from forebay.footprint.estimate import Estimate
from forebay.units import to_text


@dataclass(frozen=True)
class Need:
    """The bytes that one worker needs at once, all of its threads together."""

    input: int
    """the chunks in work, with their halos"""
    bound: int
    """what the function needs above them, at most"""
    neighbours: int
    """the chunks that halos are cut from: they live as long as the pieces cut from them"""
    waiting: int
    """chunks fetched ahead, and results not yet handed on"""
    kept: int = 0
    """what the function has kept of all chunks when the last one is done"""

    @property
    def total(self) -> int:
        """All of it."""
        return self.input + self.bound + self.neighbours + self.waiting + self.kept

    def __str__(self) -> str:
        parts = {"input": self.input, "bound": self.bound, "neighbours": self.neighbours, "waiting": self.waiting}
        parts["kept"] = self.kept
        return " + ".join(f"{name} {to_text(count)}" for name, count in parts.items() if count)


@dataclass
class ChunkProblem:
    """What is asked of the planner, and the chunk shapes looked at so far."""

    model: Predictor
    shape: Shape
    budget: int
    threads: int
    lanes: int
    halo: Shape
    padded: bool
    stored: Shape | None
    waiting: int
    overhead: float
    predictions: dict[Shape, tuple[Need, float]] = field(default_factory=dict)
    """need and seconds of each chunk shape looked at"""

    def fits(self, chunks: Shape) -> bool:
        """Return whether the largest chunk fits the budget."""
        return self.assess(chunks)[0].total <= self.budget

    def seconds(self, chunks: Shape) -> float:
        """Predict the seconds of the whole array."""
        return self.assess(chunks)[1]

    def assess(self, chunks: Shape) -> tuple[Need, float]:
        """Return the need of a chunk shape, and the predicted seconds of the whole array."""
        if chunks not in self.predictions:
            largest = self.largest(chunks)
            estimate = self.model.predict(largest)
            seconds = max(0.0, estimate.seconds) if math.isfinite(estimate.seconds) else 0.0
            tasks = math.prod(map(ceil, self.shape, chunks))
            self.predictions[chunks] = (
                self.need(chunks, largest, estimate),
                self.rounds(chunks, largest) * seconds + tasks * self.overhead,
            )
        return self.predictions[chunks]

    def rounds(self, chunks: Shape, largest: Shape) -> float:
        """Count how often the lanes work on the largest chunk, or on as much: the last along an axis may be shorter.

        Whole chunks go round first, shorter ones fill the last round and then take further ones of their own size.
        """
        tasks = whole = 1
        work = 1.0
        for extent, length, halo, longest in zip(self.shape, chunks, self.halo, largest, strict=True):
            count = ceil(extent, length)
            tasks *= count
            whole *= extent // length
            work *= (extent + 2 * halo * (count if self.padded else count - 1)) / longest
        rounds = ceil(whole, self.lanes)
        left = max(0, tasks - rounds * self.lanes)
        return rounds + ceil(left, self.lanes) * max(0.0, work - whole) / max(1, tasks - whole)

    def largest(self, chunks: Shape) -> Shape:
        """Return the shape of the largest chunk, halo included."""
        return tuple(map(max, self.along(chunks)))

    def smallest(self, ladders: Sequence[Ladder]) -> Shape:
        """Find the chunk shape that needs least.

        Without padding, the two halves of an axis have one halo each and all of it has none: either may be less than a
        short chunk with two.
        """
        candidates = []
        for axis, (ladder, halo) in enumerate(zip(ladders, self.halo, strict=True)):
            halves = ladder[bisect_left(ladder, ceil(self.shape[axis], 2))]
            candidates.append({ladder[0]} if self.padded or not halo else {ladder[0], halves, ladder[-1]})
        return min(product(*map(sorted, candidates)), key=lambda chunks: (self.assess(chunks)[0].total, chunks))

    def along(self, chunks: Shape) -> Iterator[set[int]]:
        """Yield the lengths, halos included, that chunks have along each axis."""
        for extent, length, halo in zip(self.shape, chunks, self.halo, strict=True):
            count, last = ceil(extent, length), extent % length or length
            if self.padded:
                yield {length + 2 * halo, last + 2 * halo}
            elif count == 1:
                yield {extent}
            else:
                between = {length + 2 * halo} if count > 2 else set()
                yield {length + halo, last + halo} | between

    def need(self, chunks: Shape, with_halo: Shape, estimate: Estimate) -> Need:
        """Count what a worker needs while chunks of a shape, halo included, are in work on all of its threads."""
        touched = [
            min(extent, 3 * length) if halo else length
            for extent, length, halo in zip(self.shape, chunks, self.halo, strict=True)
        ]
        neighbours = input_bytes(self.model, tuple(touched)) if any(self.halo) else 0
        own = input_bytes(self.model, with_halo)
        return Need(
            input=self.threads * own,
            bound=self.threads * estimate.upper,
            # Threads that work side by side share neighbours; there are never more than the array has.
            neighbours=min(self.threads * neighbours, input_bytes(self.model, self.shape)),
            waiting=self.threads * self.waiting * (own + output_bytes(estimate)),
            kept=estimate.kept * ceil(math.prod(map(ceil, self.shape, chunks)) * self.threads, self.lanes),
        )

    def worst(self, chunks: Shape) -> Need:
        """Return the need of the chunk that needs most: the last along an axis is shorter, which need not be less."""
        needs = (self.need(chunks, shape, self.model.predict(shape)) for shape in product(*self.along(chunks)))
        return max(needs, key=lambda need: need.total)

    def fitting(self) -> dict[Shape, float]:
        """List the chunk shapes looked at that fit, with their seconds."""
        return {chunks: seconds for chunks, (need, seconds) in self.predictions.items() if need.total <= self.budget}

    def reads(self, chunks: Shape) -> float:
        """Count the chunks that a stored one is cut into, on average."""
        if self.stored is None:
            return 1.0
        often = 1.0
        for extent, length, stored in zip(self.shape, chunks, self.stored, strict=True):
            # Each cut makes one piece more; a cut of both, at a common multiple, only one.
            shared = (extent - 1) // math.lcm(length, stored)
            pieces = ceil(extent, length) + ceil(extent, stored) - 1 - shared
            often *= pieces / ceil(extent, stored)
        return often


def is_whole(value: Any) -> bool:
    """Return whether something is a whole number, of Python's or of NumPy's."""
    return isinstance(value, Integral)


def ceil(number: int, by: int) -> int:
    """Divide, and round up."""
    return -(-number // by)
