"""The footprint of a function: its peak, output and seconds at any shape, as the samples of it say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, prod
from typing import Any

import numpy as np

from forebay.footprint.errors import FootprintError
from forebay.footprint.estimate import Estimate
from forebay.footprint.fit.company import more_of_views, say_company
from forebay.footprint.fit.doubts import NOTABLE, Doubts, find_doubts
from forebay.footprint.fit.inputs import learn_inputs
from forebay.footprint.fit.output import OutputShape, learn_output
from forebay.footprint.fit.peaks import RELATIVE, Fit, fit
from forebay.footprint.fit.terms import candidates
from forebay.footprint.fit.timing import Timing, learn_timing
from forebay.footprint.measure.conditions import Conditions
from forebay.footprint.measure.inputs import InputLayout, Shape
from forebay.footprint.measure.sample import Sample
from forebay.footprint.values import check_parameters

VARIED = 0.3
"""how far, in logarithms, samples must lie apart in a direction"""
TINY = 1e-3
"""a parameter below which its logarithm says nothing"""


@dataclass(frozen=True)
class Footprint:
    """What the samples of a function say of any other shape.

    Everything follows from the samples: two footprints of the same samples say the same.
    """

    name: str
    layout: InputLayout
    dtype: np.dtype[Any]
    samples: tuple[Sample, ...]
    conditions: Conditions
    risk: float = 0.01
    """that a peak exceeds its bound"""
    notes: tuple[str, ...] = ()
    """what was said while it was learned"""
    views: bool = False
    """whether inputs are views with gaps between their elements, as parts of larger arrays are"""
    given: dict[str, float] = field(default_factory=dict)
    """the parameters of runs for which none are given"""

    @property
    def ndim(self) -> int:
        """The number of axes of the input; of all inputs together where there are several."""
        return sum(self.layout.ndims)

    @property
    def exact(self) -> bool:
        """Whether peaks were measured whole; otherwise they, and all that is said here, are lower bounds."""
        return self.conditions.exact

    @property
    def place(self) -> str:
        """Where the bytes are that `predict` tells."""
        return "device" if self.samples[0].device is not None else "host"

    def predict(
        self,
        shape: Shape | Sequence[Shape] | None = None,
        *,
        features: Mapping[str, float] | None = None,
        views: bool | None = None,
        **named: Shape | float,
    ) -> Estimate:
        """Estimate a run before it happens.

        Parameters
        ----------
        shape
            of the input; a list of shapes where there are several inputs, none where they have names
        features
            what the data will have beside its shape, where the model was learned with `features`
        views
            whether the inputs are views with gaps between their elements; as the model was told, unless given
        **named
            the shape of each input that has a name, and the value of each parameter
        """
        parameters: dict[str, Any] = {name: named.pop(name) for name, _ in self.layout.parameters if name in named}
        shapes: dict[str, Any] = named
        return self.at(self.layout.flatten(shape, **shapes), features, parameters, views)

    def at(
        self,
        lengths: tuple[int, ...],
        features: Mapping[str, float] | None = None,
        parameters: Mapping[str, float] | None = None,
        views: bool | None = None,
    ) -> Estimate:
        """Estimate a run from the lengths of all axes of all inputs, one after the other."""
        values = dict(features or {})
        if set(values) != set(self._features):
            wanted = ", ".join(self._features) or "none"
            raise FootprintError(f"{self.name}: give the features it was learned with ({wanted}), not {sorted(values)}")
        called = (*lengths, *check_parameters(self.layout.parameters, {**self.given, **(parameters or {})}, self.name))
        point = np.array([[*called, *(values[name] for name in self._features)]], dtype=float)
        volume = np.array([float(self.layout.volume(lengths))])
        output = None if self.output is None else self.output(called)
        peak, bound = (float(column[0]) for column in self.main.predict(point, volume, self.risk))
        if self.strays.relative > NOTABLE:  # terms found in memory that strays may be luck: cover its worst ratio too
            bound = max(bound, (1 + self.strays.relative) * self._worst_ratio * float(volume[0]))
        bound = max(bound, self._steepest(called))
        mean = max(peak, self._least(output))
        beside = None
        if self.device is not None:
            beside = [float(column[0]) for column in self.host.predict(point, volume, self.risk)]
        gaps = self.views if views is None else views
        more = self._more_of_views * self.input_bytes(lengths) if gaps else 0.0
        return Estimate(
            bytes=round(mean + more),
            upper=ceil(max(bound, mean) + more),
            risk=self.risk,
            output_shape=output,
            output_dtype=self._output_dtype if output is not None else None,
            seconds=self.timing(called),
            place=self.place,
            host_bytes=None if beside is None else round(beside[0]),
            host_upper=None if beside is None else ceil(beside[1]),
            kept=ceil(self._kept * float(volume[0])),
        )

    def of(self, sample: Sample) -> Estimate:
        """Estimate the run of a sample."""
        return self.at(sample.lengths, sample.features, sample.parameters)

    def input_bytes(self, shape: Sequence[int]) -> int:
        """Count the bytes of the inputs, from the lengths of all axes of all inputs, one after the other."""
        return self._weigh(shape)

    def decided_by_output(self, sample: Sample, times: int) -> bool:
        """Return whether an output needs clearly more than the terms say, and is the estimate: of longer axes, too."""
        longer = replace(sample, lengths=tuple(times * length for length in sample.lengths))
        terms = float(self.main.estimate(np.array([longer.point], dtype=float))[0])
        least = self._least(None if self.output is None else self.output(longer.called))
        return least > 1.02 * terms + self.conditions.resolution

    @cached_property
    def host(self) -> Fit:
        """The peaks on the host."""
        return self._fit([sample.host for sample in self._dense], self.conditions.resolution)

    @cached_property
    def device(self) -> Fit | None:
        """The peaks on the device; None for a function of the host."""
        if self.place == "host":
            return None
        return self._fit([sample.device or 0 for sample in self._dense], 512)

    @property
    def main(self) -> Fit:
        """The peaks of the place where the inputs are."""
        return self.host if self.device is None else self.device

    @cached_property
    def output(self) -> OutputShape | None:
        """How the output's shape follows from the input's."""
        shapes = [sample.output_shape for sample in self.samples]
        called = [sample.called for sample in self.samples]
        return learn_output(called, shapes, self.layout.axes, [name for name, _ in self.layout.parameters])

    @cached_property
    def timing(self) -> Timing:
        """How the seconds follow from it."""
        seconds = [sample.seconds for sample in self._dense]
        return learn_timing([sample.called for sample in self._dense], seconds, self.layout)

    @cached_property
    def strays(self) -> Doubts:
        """How far its memory strays by itself: by the data, by chance, or down where shapes grow."""
        resolution = self.conditions.resolution if self.place == "host" else 512
        return find_doubts(self._dense, [sample.peak for sample in self._dense], resolution)

    @cached_property
    def doubts(self) -> Doubts:
        """What the samples show that makes predictions uncertain."""
        doubts = self.strays
        notes = list(doubts.notes)
        if not notes:
            notes += self.main.notes
        if not self.exact:
            notes.append(
                f"measured by {self.conditions.gauge_name}, which misses the scratch memory of libraries: a lower bound"
            )
        if self._unvaried:
            notes.append(
                "the axes of its samples were not varied apart, so that nobody can tell along which its memory grows: "
                "the bound is as wide as that; allow more samples= or seconds="
            )
        return Doubts(doubts.relative, (*notes, *say_company(self.samples, self._more_of_views, self._kept)))

    @property
    def _features(self) -> list[str]:
        return sorted(self.samples[0].features)

    @property
    def _output_dtype(self) -> np.dtype[Any] | None:
        name = self.samples[-1].output_dtype
        return None if name is None else np.dtype(name)

    def _fit(self, peaks: Sequence[float], resolution: float) -> Fit:
        output = self.output
        outputs = None
        if output is not None and (output.names != self.layout.axes or len(self.layout.ndims) > 1):
            called = len(self.layout.axes) + len(self.layout.parameters)
            outputs = lambda point: output.volume(point[:called])  # noqa: E731
            if len({output.volume(sample.called) for sample in self._dense}) == 1:  # it does not grow, nor lead
                outputs = None
        doubts = find_doubts(self._dense, peaks, resolution)
        return fit(
            [sample.point for sample in self._dense],
            [self.layout.volume(sample.lengths) for sample in self._dense],
            peaks,
            candidates(self.layout, self._features, outputs),
            resolution,
            max(RELATIVE, doubts.relative),
        )

    def _least(self, output: tuple[int, ...] | None) -> float:
        """Return the bytes of the output where every sample needed as much: no estimate should be below that."""
        if output is None or self._output_dtype is None:
            return 0.0
        size = self._output_dtype.itemsize
        return float(prod(output) * size) if self._keeps_output else 0.0

    @cached_property
    def _weigh(self) -> Callable[[Sequence[int]], int]:
        return learn_inputs(self.layout, self.dtype.itemsize, self.samples)

    @cached_property
    def _worst_ratio(self) -> float:
        """The most bytes per element of any sample that is not tiny."""
        volumes = [self.layout.volume(sample.lengths) for sample in self._dense]
        pairs = zip(self._dense, volumes, strict=True)
        return max(sample.peak / volume for sample, volume in pairs if volume >= max(volumes) / 16)

    @cached_property
    def _dense(self) -> tuple[Sample, ...]:
        """The samples whose inputs had no gaps."""
        return tuple(sample for sample in self.samples if not sample.strided) or self.samples

    @cached_property
    def _more_of_views(self) -> float:
        """The bytes that a view with gaps takes more for each byte of it; 0 where no sample shows any."""
        return more_of_views(self.samples, self.conditions.resolution)

    @cached_property
    def _kept(self) -> float:
        """The bytes per element by which the process grows with every run."""
        return max(sample.kept / self.layout.volume(sample.lengths) for sample in self.samples)

    @cached_property
    def _unvaried(self) -> bool:
        """Whether axes only grew together from sample to sample."""
        logs = np.log(np.maximum([self._growing(sample.called) for sample in self._dense], TINY))
        apart = np.linalg.svd(logs - logs.mean(axis=0), compute_uv=False)
        return bool((apart > VARIED).sum() < logs.shape[1])

    def _growing(self, called: Sequence[float]) -> list[float]:
        """Return the lengths and parameters that are not always the same."""
        free = [called[axis] for axis in self.layout.free]
        pairs = zip(called[len(self.layout.axes) :], self.layout.parameters, strict=True)
        return free + [value for value, (_, values) in pairs if not values.fixed]

    def _steepest(self, called: Sequence[float]) -> float:
        """Return the peak where memory grows with the volume and once more with what exceeds its samples most.

        That is what samples leave possible whose axes were not varied apart; 0 where they were.
        """
        if not self._unvaried:
            return 0.0
        farthest = np.max([self._growing(sample.called) for sample in self._dense], axis=0)
        growth = max(1.0, float(np.max(np.array(self._growing(called)) / np.maximum(farthest, TINY))))
        return growth * self._worst_ratio * self.layout.volume(called)

    @cached_property
    def _keeps_output(self) -> bool:
        return all(
            sample.output_shape is not None
            and sample.output_dtype is not None
            and sample.peak + self.conditions.resolution
            >= 0.9 * prod(sample.output_shape) * np.dtype(sample.output_dtype).itemsize
            for sample in self.samples
        )
