"""Summing the images of shots, always in the same order, whoever sums and whenever each was finished; and the image.

Sums of floats depend on their order. The order here is a binary tree over the numbers of the shots: 0 + 1, 2 + 3, ...,
then those sums in pairs, and so on. So the image has the same bits on one machine or many, after an interruption or
without one, and no machine has to hold more than a few sums.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from statistics import median_low
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.strips import POINTS, in_strips
from forebay.wave.imaging import laplacian_filter, normalise
from forebay.wave.survey.geometry import Box
from forebay.wave.survey.shot import Shot

DEVIATIONS = 4.0
"""How far above the median a shot stands out, in standard deviations of the logarithm of the strengths."""
NORMAL = 1.4826
"""Standard deviation of a normal distribution over the median of its absolute deviations."""
LEAST, MOST = 10.0, 1000.0
"""Times the median below which no shot stands out, 20 dB, and above which every one does, 60 dB."""


@dataclass(frozen=True, eq=False)
class PartialImage:
    """An image and its illumination, in the part of the model that they cover."""

    image: NDArray[Any]
    illumination: NDArray[Any]
    box: Box

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Both by name, as they are kept."""
        return {"image": self.image, "illumination": self.illumination}

    @property
    def is_finite(self) -> bool:
        """Whether neither has NaN or infinity."""
        return all(np.isfinite(values).all() for values in self.arrays.values())

    @property
    def strength(self) -> float:
        """The root mean square of the image."""
        return float(np.sqrt(np.mean(np.square(self.image, dtype=np.float64))))

    def __add__(self, other: "PartialImage") -> "PartialImage":
        """Add two parts; the sum covers both, and what is between."""
        return added([self, other])

    def faded(self, margins: Sequence[int], shape: tuple[int, ...]) -> "PartialImage":
        """Fade both out towards those sides that lie inside of a model, within so many points of each axis.

        Where parts end abruptly, their sides would be seen in the sum.
        """
        ramps = list[NDArray[Any]]()
        for axis, (side, margin, points) in enumerate(zip(self.box, margins, shape, strict=True)):
            ramp = np.ones(side.stop - side.start, self.image.dtype)
            rise = np.sin(np.pi / 2 * (np.arange(margin) + 0.5) / max(margin, 1)) ** 2
            if side.start > 0:
                ramp[:margin] *= rise[: len(ramp)]
            if side.stop < points:
                ramp[::-1][:margin] *= rise[: len(ramp)]
            if (ramp < 1).any():
                ramps.append(ramp.reshape([-1 if other == axis else 1 for other in range(len(shape))]))
        return PartialImage(_times(self.image, ramps), _times(self.illumination, ramps), self.box)

    def spread(self, shape: tuple[int, ...]) -> "PartialImage":
        """Spread the same over the whole model."""
        box = tuple(slice(0, points) for points in shape)
        if box == self.box:
            return self
        return PartialImage(_summed([(self.image, self.box)], box), _summed([(self.illumination, self.box)], box), box)


def _times(values: NDArray[Any], ramps: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Multiply values by one ramp after the other, in one pass; without any they stay what they are."""
    if not ramps:
        return values
    product, thick = np.empty_like(values), max(1, POINTS * len(values) // values.size)
    for start in range(0, len(values), thick):
        strip, left = slice(start, start + thick), values[start : start + thick]
        for ramp in ramps:
            left = np.multiply(left, ramp[strip] if len(ramp) > 1 else ramp, out=product[strip])
    return product


def added(parts: Sequence[PartialImage]) -> PartialImage:
    """Add parts one after the other, in one pass; the sum covers all, and what is between."""
    sides = zip(*(part.box for part in parts), strict=True)
    box = tuple(slice(min(side.start for side in axis), max(side.stop for side in axis)) for axis in sides)
    images = [(part.image, part.box) for part in parts]
    return PartialImage(_summed(images, box), _summed([(part.illumination, part.box) for part in parts], box), box)


def _summed(parts: Sequence[tuple[NDArray[Any], Box]], outer: Box) -> NDArray[Any]:
    """Add values where each belong in a larger part, zeros around them; by all cores."""
    total = np.empty([side.stop - side.start for side in outer], np.result_type(*(values for values, _ in parts)))

    def add(strip: slice) -> None:
        total[strip] = 0
        for values, inner in parts:
            first = inner[0].start - outer[0].start
            rows = slice(max(strip.start, first), min(strip.stop, first + len(values)))
            across = tuple(slice(a.start - b.start, a.stop - b.start) for a, b in zip(inner, outer, strict=True))[1:]
            if rows.start < rows.stop:
                total[(rows, *across)] += values[rows.start - first : rows.stop - first]

    in_strips(add, total.shape)
    return total


def check_finite(part: PartialImage, shot: Shot) -> None:
    """Refuse an image that would spoil the sum of all."""
    if not part.is_finite:
        largest = np.abs(np.asarray(shot.data)).max()
        raise WaveError(
            f"its image is not finite, and is set aside: look at its data, whose largest sample is {largest:.3g}"
        )


def finish(stack: PartialImage, grid: Grid, mute: float) -> NDArray[Any]:
    """Make the image from the sums on the whole model: even light, nothing smooth, and a quiet top of some metres."""
    image = laplacian_filter(normalise(stack.image, stack.illumination), grid)
    if mute:
        rows = np.arange(grid.shape[0]) * grid.spacing[0]
        fade = np.sin(np.pi / 2 * np.clip(2 * rows / mute - 1, 0, 1)) ** 2
        ramp = fade.reshape(-1, *[1] * (grid.ndim - 1)).astype(image.dtype)
        in_strips(lambda strip: np.multiply(image[strip], ramp[strip], out=image[strip]), image.shape)
    return np.asarray(image)


def outliers(strengths: Mapping[int, float]) -> dict[int, float]:
    """Return the shots that stand out, and how many times as strong as the median of all each of them is.

    One shot that is wrong by orders of magnitude is all that would be seen in a sum. What is usual is learned from the
    survey: shots differ by factors, so the median and the spread are those of the logarithms, neither of which a few
    wrong shots move. Of two, the stronger is taken for the wrong one. Shots without any signal are not counted.

    Examples
    --------
    >>> outliers({0: 1.0, 1: 3.0, 2: 2.0, 3: 2e20, 4: 0.0})
    {3: 1e+20}
    """
    heard = {shot: strength for shot, strength in strengths.items() if strength > 0}
    if len(heard) < 2:
        return {}
    usual = median_low(heard.values())
    spread = NORMAL * median_low(abs(math.log(strength) - math.log(usual)) for strength in heard.values())
    limit = min(max(DEVIATIONS * spread, math.log(LEAST)), math.log(MOST))
    return {shot: strength / usual for shot, strength in heard.items() if math.log(strength) - math.log(usual) > limit}


class TreeSum:
    """Sums parts in the order of a binary tree by their place, as they come.

    No more sums are held at a time than the tree is high.

    Parameters
    ----------
    add
        How two are added; it may also arrange that they will be. Without it, images are, several in one pass.
    """

    def __init__(self, add: Callable[[Any, Any], Any] | None = None) -> None:
        self._add = add
        self._sums: list[tuple[int, Any]] = []  # (height, sum), the highest first
        self.count = 0
        """of the parts that were taken"""

    def take(self, part: Any) -> None:
        """Take the next part; None where a shot is missing."""
        height, parts = 0, [part]
        while self._sums and self._sums[-1][0] == height:
            parts.append(self._sums.pop()[1])
            height += 1
        self._sums.append((height, self._all(parts)))
        self.count += 1

    def total(self) -> Any:
        """Return the sum of all parts, after which none is taken; None where all shots are missing."""
        parts = [part for _, part in reversed(self._sums)]
        self._sums.clear()
        return self._all(parts)

    def _all(self, parts: list[Any]) -> Any:
        """Add the last to the one before it, their sum to the one before that, and so on; the last comes first here."""
        there = [part for part in parts if part is not None]
        if len(there) < 2:
            return there[0] if there else None
        if (add := self._add) is None:
            return added(there)
        return reduce(lambda right, left: add(left, right), there)


def tree_sum(parts: Iterable[Any], add: Callable[[Any, Any], Any] | None = None) -> Any:
    """Sum parts, one for each shot in the order of their numbers, as `TreeSum` does.

    Examples
    --------
    >>> tree_sum("abcdefg", add=lambda one, other: f"({one}{other})")
    '(((ab)(cd))((ef)g))'
    >>> tree_sum(["a", None, "c", "d"], add=lambda one, other: f"({one}{other})")
    '(a(cd))'
    """
    tree = TreeSum(add)
    for part in parts:
        tree.take(part)
    return tree.total()
