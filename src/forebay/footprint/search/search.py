"""The search for a footprint: sample, fit, and choose the next, until the bound is tight or the budget is spent."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from forebay.footprint.errors import FootprintError, RunError
from forebay.footprint.measure.inputs import InputLayout
from forebay.footprint.measure.runner import Runner
from forebay.footprint.measure.sample import Sample
from forebay.footprint.model import Model
from forebay.footprint.search.choosing import OVERHEAD, is_tight, pick, pool
from forebay.footprint.search.proposals import Proposal, even, first_side, settings, step, usual
from forebay.footprint.search.spending import Spending
from forebay.footprint.values import POWERS_OF_TWO

ATTEMPTS = ((1, 1), (2, 1), (4, 1), (8, 1), (2, 16), (8, 16))
"""the sides at which a function is tried that does not run at the first, and what lengths are multiples of there"""
CHANNELS = (3, 4)
"""the lengths of an axis of channels that are tried then, at the last axis and at the first; and powers of two"""
NEARLY = 2.5
"""small samples tell little: none that is chosen is so many times smaller than the largest that could be"""
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
    refused: list[tuple[float, ...]] = field(default_factory=list)
    """lengths and parameters with which the function raised after it had run with others"""

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
            shape, called = self.refused[0][: len(self.layout.axes)], self.refused[0][len(self.layout.axes) :]
            also = "".join(
                f", {name}={value:g}" for (name, _), value in zip(self.layout.parameters, called, strict=True)
            )
            self.notes.append(f"it raises at some shapes, like {shape}{also}: nothing is known of it there")
        if len({sample.called for sample in self.samples}) == 1:
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
        largest = max(affordable, key=lambda sample: (self.layout.volume(sample.lengths), sample.peak))
        first = next(sample for sample in affordable if sample.called == largest.called)
        try:
            self.samples.append(self._measure(first.lengths, first.seed, tuple(first.parameters.values()), views=True))
        except RunError:
            self.notes.append("it raises where its input is a view with gaps between the elements")

    def _second(self, side: float) -> tuple[int, ...]:
        """Return the lengths of the second sample: a step larger than the first, or as far as samples may go."""
        grown = side * step(self.layout)
        farthest = self.layout.side(self.limits.elements) / 1.1  # lengths differ by a tenth and more
        return even(self.layout, max(min(grown, farthest), 1.15 * side), self.limits.smallest, self.grain)

    def _try(self, lengths: tuple[int, ...], parameters: tuple[float, ...] | None = None) -> Sample | None:
        """Run a sample; where the function raises, remember with what and go on without."""
        try:
            return self._run(lengths, parameters=parameters)
        except RunError:
            self.refused.append((*lengths, *(usual(self.layout) if parameters is None else parameters)))
            return None

    def _measure(
        self, lengths: tuple[int, ...], seed: int, parameters: tuple[float, ...] | None = None, **how: bool
    ) -> Sample:
        """Run the function, with the usual parameters unless others are given."""
        values = usual(self.layout) if parameters is None else parameters
        named = {name: value for (name, _), value in zip(self.layout.parameters, values, strict=True)}
        called = {"parameters": named} if named else {}
        return self.runner.measure(lengths, seed, self._patience, **called, **how)  # type: ignore[arg-type]

    def _run(
        self, lengths: tuple[int, ...], seed: int | None = None, parameters: tuple[float, ...] | None = None
    ) -> Sample:
        seed = seed if seed is not None else len(self.samples) if self.varied else 0
        sample = self._measure(lengths, seed, parameters)
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
        failure, asked = "", self.blank
        for times, grain, layout in self._ways():
            self.blank = replace(asked, layout=layout)
            side, self.grain = times * float(max(first_side(layout), self.limits.smallest)), grain
            lengths = even(layout, side, self.limits.smallest, grain)
            try:
                self._measure(lengths, 0)  # warms up, and is no sample
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

    def _ways(self) -> Iterator[tuple[int, int, InputLayout]]:
        """Yield what is tried: sides, what lengths are multiples of, and axes of channels or of powers of two."""
        layout = self.layout
        yield from ((times, grain, layout) for times, grain in ATTEMPTS)
        count = len(layout.axes)
        if layout.legal or not self.runner.makes_views:
            return
        if count > 2:
            for axis in (count - 1, 0):
                yield from ((1, 1, layout.only({axis: channels})) for channels in CHANNELS)
        yield 1, 1, layout.only(dict.fromkeys(range(count), POWERS_OF_TWO))

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

    def _note_powers_of_two(self) -> None:
        """Go on at powers of two where it raises at other lengths, and has run at no others."""
        lengths = [length for sample in self.samples for length in sample.lengths]
        if not self.layout.legal and all(length & (length - 1) == 0 for length in lengths):
            count = len(self.layout.axes)
            self.blank = replace(self.blank, layout=self.layout.only(dict.fromkeys(range(count), POWERS_OF_TWO)))
            self._note_ways(self.samples[-1].lengths, "it raised")

    def _note_ways(self, lengths: tuple[int, ...], failure: str) -> None:
        """Note where the function raises, and that it returns nothing."""
        if failure and self.layout.legal:
            legal = [(axis, n) for axis, n in zip(self.layout.axes, self.layout.legal, strict=True) if n is not None]
            rule = f"where {legal[0][0]} has {legal[0][1]} elements" if legal[0][1].fixed else "at powers of two"
            self.notes.append(f"it raises at most lengths: all samples were taken {rule}; give axes= to say otherwise")
        elif failure and self.grain == 1:
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
            if self.model.strays.relative and self.samples_left:
                self._run(odd.lengths, odd.seed)
                without = [sample for sample in self.samples if sample is not odd]
                if not replace(self.blank, samples=tuple(without)).strays.relative:
                    self.samples = without

    def _refine(self, side: float) -> bool:
        """Stretch each axis once, then go where most is learned; return whether a tight bound has foreseen a sample.

        After the long shapes comes an even one as large: long ones alone cannot tell n0*n1 from n0^2 + n1^2.
        """
        axes = self.layout.free
        needed: set[int | None] = set(axes) if len(axes) > 1 else set()
        unset = set(settings(self.layout))
        even_needed = len(axes) > 1
        foreseen = confirmed = False
        while self.samples_left > 0 and self.seconds_left > 0 and len(self.refused) < self.limits.samples:
            model = self.model
            listed = pool(model, self.limits, side, self.grain, set(self.refused), self.seconds_left)
            tight = not needed and not unset and not even_needed and is_tight(model, self.limits)
            if not listed or (tight and foreseen):
                return tight and foreseen
            asked = [proposal for proposal in listed if proposal.lengths == self.limits.target]
            if asked:  # what is small enough to be run needs no foreseeing
                listed = asked
            elif needed:
                listed = [proposal for proposal in listed if proposal.stretched in needed] or listed
            elif unset:
                listed = self._set_apart(listed, unset) or listed
            elif even_needed:
                alike = [proposal for proposal in listed if proposal.alike]
                listed, even_needed = alike or [proposal for proposal in listed if proposal.even] or listed, False
            most = max(self.layout.volume(proposal.lengths) for proposal in listed)
            listed = [proposal for proposal in listed if self.layout.volume(proposal.lengths) >= most / NEARLY]
            chosen = pick(model, self.limits, listed, self.seconds_left, self.samples_left)
            sample = self._try(chosen.lengths, chosen.parameters)
            if sample is None:
                needed.discard(chosen.stretched)
                self._note_powers_of_two()
                continue
            unset.discard(chosen.parameters)
            run = model.of(sample)
            foreseen = tight and run.bytes - (run.upper - run.bytes) <= sample.peak <= run.upper
            needed.discard(chosen.stretched)
            if not needed and not confirmed and self.samples_left:
                confirmed = True
                self._confirm()
        return False

    def _set_apart(self, listed: list[Proposal], unset: set[tuple[float, ...]]) -> list[Proposal]:
        """Return proposals of parameters that were not tried: in shapes about as large as those that were."""
        most = max(self.layout.volume(sample.lengths) for sample in self.samples)
        apart = [proposal for proposal in listed if proposal.parameters in unset]
        sized = [proposal for proposal in apart if most / 8 <= self.layout.volume(proposal.lengths) <= most]
        return sized or apart

    def _confirm(self) -> None:
        """Run the largest shape again where runs differed: is it chance? In small ones two may have agreed by luck."""
        dropped = self.runs > len(self.samples)
        if dropped or self.model.strays.notes:
            largest = max(self.samples, key=lambda sample: sample.peak)
            self._run(largest.lengths, 0, tuple(largest.parameters.values()))
