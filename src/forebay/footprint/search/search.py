"""The search for a footprint: sample, fit, and choose the next, until the bound is tight or the budget is spent."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from forebay.footprint.errors import FootprintError, RunError
from forebay.footprint.measure.inputs import InputLayout
from forebay.footprint.measure.runner import Runner
from forebay.footprint.measure.sample import Sample
from forebay.footprint.model import Model
from forebay.footprint.search.proposals import Proposal, choose, even, first_side, gains, horizon, proposals, step
from forebay.footprint.search.spending import Spending

Array = NDArray[np.float64]

AMPLE = 32e6
FAR_SHARE = 0.005
MOST = 256e6
"""peak bytes that a sample may have: the first, or that share of what is to be foreseen, but never above the last"""
REACH = 32.0
"""where no shape is asked for, the bound is to be tight for arrays so many times larger than the largest sample"""
ATTEMPTS = ((1, 1), (2, 1), (4, 1), (8, 1), (2, 16), (8, 16))
"""the sides at which a function is tried that does not run at the first, and what lengths are multiples of there"""
OVERHEAD = 0.01
VIEW_FROM = 6
"""where so many samples may be taken, one of them is a view"""


@dataclass
class Search:
    """What was run so far, and what that says."""

    runner: Runner
    blank: Model
    """the model but for its samples"""
    limits: Spending
    varied: bool
    """whether every sample is to have other data: features are learned from their differences"""
    samples: list[Sample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    runs: int = 0
    """samples taken, with those that were dropped again"""
    grain: int = 1
    """what lengths must be multiples of, as far as is known"""
    refused: list[tuple[int, ...]] = field(default_factory=list)
    """lengths at which the function raised after it had run at others"""

    @property
    def model(self) -> Model:
        """What the samples say."""
        return replace(self.blank, samples=tuple(self.samples), notes=tuple(self.notes))

    @property
    def layout(self) -> InputLayout:
        """The inputs."""
        return self.blank.layout

    @property
    def seconds_left(self) -> float:
        """Seconds that may still be spent."""
        return self.limits.deadline - time.perf_counter()

    @property
    def samples_left(self) -> int:
        """Samples that may still be taken, but for the one that is to be a view."""
        return self.limits.samples - self.runs - self.view_due

    @property
    def view_due(self) -> bool:
        """Whether a sample is kept back for a view with gaps, and has not been taken."""
        taken = any(sample.strided for sample in self.samples)
        return self.runner.makes_views and self.limits.samples >= VIEW_FROM and not taken

    def go(self) -> Model:
        """Search to the end."""
        side = self._begin()
        try:
            if self.samples_left and self.seconds_left > 0:
                self._try(self._second(side))
            if self.samples_left > 1:
                self._repeat()
            sure = self._refine(side)
            if not sure and self.seconds_left <= self.limits.least:
                self.notes.append(
                    f"its seconds= ran out after {self.runs} samples, before the bound was tight and had foreseen a "
                    "further one: allow more"
                )
            if self.view_due:
                self._view()
        except TimeoutError as error:
            self.notes.append(f"learning stopped early: {error}")
        if not self.runner.apart and self.runner.gpu is None and self.blank.conditions.library != "jax":
            self.notes.append(
                "it starts threads when it is loaded, so that all samples had to share a process: memory that one of "
                "them left free there is not seen in the next"
            )
        if self.refused:
            self.notes.append(f"it raises at some shapes, like {self.refused[0]}: nothing is known of it there")
        if len({sample.lengths for sample in self.samples}) == 1:
            raise FootprintError(
                f"{self.blank.name} ran only at lengths {self.samples[0].lengths}, too little to learn from: allow "
                "more seconds=, or give inputs=, a function that makes its input of any lengths"
            )
        return self.model

    def _view(self) -> None:
        """Run the largest sample that there is time for again, on a view with gaps, of which it may take a copy."""
        affordable = [sample for sample in self.samples if 2 * sample.seconds <= max(self.seconds_left, OVERHEAD)]
        if not affordable:
            return
        lengths = max(affordable, key=lambda sample: (self.layout.volume(sample.lengths), sample.peak)).lengths
        seed = next(sample.seed for sample in affordable if sample.lengths == lengths)
        try:
            self.samples.append(self.runner.measure(lengths, seed, self._patience, views=True))
        except RunError:
            self.notes.append("it raises where its input is a view with gaps between the elements")

    def _second(self, side: float) -> tuple[int, ...]:
        """Return the lengths of the second sample: a step larger than the first, or as far as samples may go."""
        grown = side * step(self.layout)
        farthest = self.limits.elements ** (1 / max(self.layout.ndims)) / 1.1  # lengths differ by a tenth and more
        return even(self.layout, max(min(grown, farthest), 1.15 * side), self.limits.smallest, self.grain)

    def _try(self, lengths: tuple[int, ...]) -> Sample | None:
        """Run a sample; where the function raises, remember the shape and go on without."""
        try:
            return self._run(lengths)
        except RunError:
            self.refused.append(lengths)
            return None

    def _run(self, lengths: tuple[int, ...], seed: int | None = None) -> Sample:
        seed = seed if seed is not None else len(self.samples) if self.varied else 0
        sample = self.runner.measure(lengths, seed, self._patience)
        if self.samples and set(sample.features) != set(self.samples[0].features):
            raise FootprintError(
                f"features= gave {sorted(self.samples[0].features)} for one input and {sorted(sample.features)} for "
                "another: give the same names every time"
            )
        self.samples.append(sample)
        self.runs += 1
        return sample

    @property
    def _patience(self) -> float:
        return 2 * max(self.seconds_left, 1.0) + 10

    def _begin(self) -> float:
        """Warm up and take the first sample, at a larger side where the function does not run at the first."""
        first = float(max(first_side(self.layout), self.limits.smallest))
        failure = ""
        for times, grain in ATTEMPTS:
            side, self.grain = times * first, grain
            lengths = even(self.layout, side, self.limits.smallest, grain)
            try:
                self.runner.measure(lengths, 0, self._patience)  # warms up, and is no sample
                sample = self._run(lengths)
            except TimeoutError as error:
                raise FootprintError(f"{error} at its first, tiny lengths {lengths}: allow more seconds=") from None
            except RunError as error:
                failure = str(error)
                continue
            side = self._grow_until_visible(side, sample)
            self._note_ways(self.samples[-1].lengths, failure)
            return side
        together = " (several inputs whose shapes hang together must come from inputs=)"
        raise FootprintError(
            f"{self.blank.name} does not run at any small shape: give smallest=, the least length of an axis that it "
            f"takes, or inputs=, a function that makes its input{together if len(self.layout.ndims) > 1 else ''}. "
            f"It said:\n{failure}"
        )

    def _grow_until_visible(self, side: float, sample: Sample) -> float:
        """Go on to larger sides while what starts a command hides whatever is smaller than itself."""
        while sample.host < 1.02 * sample.floor:
            side *= 2
            lengths = even(self.layout, side, self.limits.smallest, self.grain)
            if self.layout.volume(lengths) > self.limits.elements or self.seconds_left <= 0:
                raise FootprintError(
                    f"{self.blank.name} needs too little memory to be measured, up to lengths {sample.lengths}: allow "
                    "larger samples by largest= or shape=, or check that {0}, {1}, ... stand in the command"
                )
            self.samples.clear()
            sample = self._run(lengths)
        self.runs = 1
        return side

    def _note_ways(self, lengths: tuple[int, ...], failure: str) -> None:
        """Note where the function raises, and that it returns nothing."""
        if failure and self.grain == 1:
            self.notes.append(f"it raises at smaller shapes than {lengths}, where samples begin")
        elif failure:
            self.notes.append(f"it raises at most lengths: all samples are multiples of {self.grain}")
        if self.runner.returned == "NoneType":
            self.notes.append(
                "it returns nothing: its memory is learned, but it has no output to plan further steps with"
            )

    def _repeat(self) -> None:
        """Run the latest shape again on other data, and if that differs, on the same: to tell data from chance.

        Where only the first of the three differs, it also paid for what a library keeps, and is dropped. So is the
        second, where it differs from another run on its own data.
        """
        first = self.samples[-1]
        second = self._run(first.lengths, first.seed + 1)
        for odd in (first, second):
            if self.model.doubts.relative and self.samples_left:
                self._run(odd.lengths, odd.seed)
                without = [sample for sample in self.samples if sample is not odd]
                if not replace(self.blank, samples=tuple(without)).doubts.relative:
                    self.samples = without

    def _refine(self, side: float) -> bool:
        """Stretch each axis once, then go where most is learned; return whether a tight bound has foreseen a sample.

        After the long shapes comes an even one as large: long ones alone cannot tell n0*n1 from n0^2 + n1^2.
        """
        axes = len(self.layout.axes)
        needed: set[int | None] = set(range(axes)) if axes > 1 else set()
        even_needed = axes > 1
        foreseen = confirmed = False
        while self.samples_left > 0 and self.seconds_left > 0 and len(self.refused) < self.limits.samples:
            model = self.model
            pool = self._pool(model, side)
            tight = not needed and not even_needed and self._is_tight(model)
            if not pool or (tight and foreseen):
                return tight and foreseen
            asked = [proposal for proposal in pool if proposal.lengths == self.limits.target]
            if asked:  # what is small enough to be run needs no foreseeing
                pool = asked
            elif needed:
                pool = [proposal for proposal in pool if proposal.stretched in needed] or pool
            elif even_needed or tight:  # try the model where it is least sure of itself
                listed = [proposal for proposal in pool if proposal.even] if even_needed else []
                listed, even_needed = listed or pool, False
                most = max(self.layout.volume(proposal.lengths) for proposal in listed)
                pool = [proposal for proposal in listed if self.layout.volume(proposal.lengths) >= most / 2]
            chosen = self._choose(model, pool)
            sample = self._try(chosen.lengths)
            if sample is None:
                needed.discard(chosen.stretched)
                continue
            run = model.at(sample.lengths, sample.features)
            foreseen = tight and run.bytes - (run.upper - run.bytes) <= sample.peak <= run.upper
            needed.discard(chosen.stretched)
            if not needed and not confirmed and self.samples_left:
                confirmed = True
                self._confirm()
        return False

    def _confirm(self) -> None:
        """Run the largest shape again where runs differed: is it chance? In small ones two may have agreed by luck."""
        dropped = self.runs > len(self.samples)
        if dropped or self.model.doubts.notes:
            self._run(max(self.samples, key=lambda sample: sample.peak).lengths, 0)

    def _pool(self, model: Model, side: float) -> list[Proposal]:
        """List what may be run next: nothing that was run before, or would take too much memory or time."""
        layout, limits = self.layout, self.limits
        largest = max(layout.volume(sample.lengths) for sample in self.samples)
        most = min(limits.elements, largest * step(layout) ** max(layout.ndims))  # no leaps: the fit may still be wrong
        done = {sample.lengths for sample in self.samples} | set(self.refused)
        proposed = [*proposals(layout, side, most ** (1 / max(layout.ndims)), limits.smallest, self.grain)]
        if limits.target is not None:
            proposed.append(Proposal(limits.target, None))
        listed = [
            proposal
            for proposal in proposed
            if proposal.lengths not in done
            and layout.volume(proposal.lengths) <= most
            and model.timing(proposal.lengths) <= max(self.seconds_left / 3, OVERHEAD)
        ]
        if not listed:
            return []
        peaks = model.main.estimate(self._points([proposal.lengths for proposal in listed]))
        far = float(model.main.estimate(self._goals()).max())
        ample = min(max(AMPLE, FAR_SHARE * far), MOST)
        return [proposal for proposal, peak in zip(listed, peaks, strict=True) if peak <= ample]

    def _choose(self, model: Model, pool: Sequence[Proposal]) -> Proposal:
        gain = gains(model.main, self._points([proposal.lengths for proposal in pool]), self._goals())
        seconds = np.array([model.timing(proposal.lengths) + OVERHEAD for proposal in pool])
        return choose(pool, gain, seconds, self.seconds_left, self.samples_left)

    def _is_tight(self, model: Model) -> bool:
        """Return whether the bound is near enough, and rests on what grows rather than on what is always there."""
        fit, goals = model.main, self._goals()
        volumes = np.array([self.layout.volume([int(n) for n in goal[: len(self.layout.axes)]]) for goal in goals])
        estimate, upper = fit.predict(goals, volumes, model.risk)
        near = upper <= (1 + self.limits.tight) * np.maximum(estimate, 1.0)
        largest = max(sample.peak for sample in self.samples)
        fixed = fit.coefficients["1"]
        return bool(near.all()) and fixed <= largest / 2

    def _goals(self) -> Array:
        """Return the points at which the bound is to be tight."""
        if self.limits.target is not None:
            return self._points([self.limits.target])
        largest = max(self.layout.volume(sample.lengths) for sample in self.samples)
        return self._points([tuple(int(n) for n in shape) for shape in horizon(self.layout, REACH * largest)])

    def _points(self, lengths: Sequence[tuple[int, ...]]) -> Array:
        """Add features to lengths, at the density they had in the samples."""
        points = np.array(lengths, dtype=float)
        volumes = np.array([self.layout.volume(row) for row in lengths], dtype=float)
        sampled = np.array([self.layout.volume(sample.lengths) for sample in self.samples], dtype=float)
        for name in sorted(self.samples[0].features):
            density = np.array([sample.features[name] for sample in self.samples]).sum() / sampled.sum()
            points = np.column_stack([points, density * volumes])
        return points
