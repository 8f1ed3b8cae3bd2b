"""The plan of a fitted model: what happens to each block, what that should cost, and why."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from forebay.drawing import Chart
from forebay.drawing.bars import bars_chart
from forebay.drawing.page import Drawn, Section, TextTable
from forebay.drawing.tables import preformatted
from forebay.metrics import Metrics
from forebay.planner import Link
from forebay.planner.blocks import BlockChoice, Chain, Forecast, simulate
from forebay.planner.blockwise import uniform_picks
from forebay.planner.drawn.counters import explained, write_counters
from forebay.planner.drawn.timeline import COLOURS
from forebay.units import Budget, seconds_to_text, to_text


@dataclass(frozen=True, repr=False)
class FitPlan:
    """What a fitted model does with what its blocks save.

    A few are made from what the first iteration with these shapes told, and run; the fastest stays.
    """

    budget: Budget
    chain: Chain
    picks: tuple[BlockChoice, ...]
    foreseen: Forecast
    link: Link | None
    counts: bool
    """whether the budget covers all of the device's memory, as on a GPU, or saved tensors and inputs of blocks alone"""
    base: int = 0
    """bytes of the device before the first block, where they are counted"""
    behind: int = 0
    """bytes that came behind the last block, at most, beside these and the inputs of blocks"""
    count: int = 0
    """the blocks of the model, some of which may be taken together"""
    measured: float | None = None
    """seconds of the iteration with this plan that was timed, forward and backward; once a plan stays, none is"""
    metrics: Metrics = field(default_factory=Metrics, compare=False)
    """what moved since `fit`, over all shapes"""

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name} {count}" for name, count in Counter(self.names).items())
        predicted = f"{seconds_to_text(self.seconds)} a step predicted, {to_text(self.foreseen.peak)} at most"
        return f"FitPlan({len(self.picks)} blocks, {self.budget!r}: {chosen}; {predicted})"

    @property
    def seconds(self) -> float:
        """Predicted seconds of forward and backward."""
        return self.foreseen.seconds

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its choices."""
        return tuple(pick.name for pick in self.picks)

    @cached_property
    def moving(self) -> tuple[int, ...]:
        """The blocks of which something moves, in their order."""
        return tuple(number for number, pick in enumerate(self.picks) if pick.moved)

    @property
    def choices(self) -> dict[str, str]:
        """What is done with each block, by name; one that is called several times appears with a number."""
        return dict(zip(numbered(block.name for block in self.chain.blocks), self.names, strict=True))

    def explain(self) -> str:
        """Tell in a few lines what was chosen, what it costs, and what else there was."""
        foreseen, chain = self.foreseen, self.chain
        least = sum(block.forward + block.backward for block in chain.blocks) + chain.outside
        together = f" made of {self.count} neighbours" if self.count > len(chain.blocks) else ""
        lines = [
            f"{len(chain.blocks)} blocks{together}, {self.budget!r}: {seconds_to_text(self.seconds)} a step predicted, "
            f"{seconds_to_text(least)} with memory for everything",
            *(f"  {name}: {_numbers(positions)}" for name, positions in _grouped(self.picks).items()),
            f"device    {to_text(foreseen.peak)} at most, of {'all memory' if self.counts else 'what blocks save'}",
        ]
        if foreseen.moved and self.link:
            lines.append(
                f"host      {to_text(foreseen.moved)} go down and come up, at {to_text(self.link.down)}/s "
                f"and {to_text(self.link.up)}/s; the computation waits {seconds_to_text(foreseen.stall)}"
            )
        if self.counts:
            lines.append(f"beside    {besides(self.base, self.behind)}")
        for name, seconds, peak in self.alternatives():
            fits = "" if peak <= self.budget["device"] else ", which does not fit"
            lines.append(f"instead   {name} for all: {seconds_to_text(seconds)}, {to_text(peak)}{fits}")
        if self.measured is not None:
            lines.append(
                f"measured  {seconds_to_text(self.measured)} "
                f"({self.measured / self.seconds:.2f} times what was predicted)"
            )
        return "\n".join(lines)

    def plot(self) -> Chart:
        """Draw what the blocks of each treatment compute, forward and backward; notebooks show the chart."""
        treatments = list(dict.fromkeys(self.names))
        series: dict[str, list[float]] = {"forward": [0.0] * len(treatments), "backward": [0.0] * len(treatments)}
        for block, name in zip(self.chain.blocks, self.names, strict=True):
            series["forward"][treatments.index(name)] += block.forward
            series["backward"][treatments.index(name)] += block.backward
        return bars_chart(series, treatments, "blocks that are", "seconds", COLOURS)

    def report(self, path: Path | str, title: str = "A model inside a budget") -> None:
        """Write a page about it, which any browser opens from the disk."""
        rows = list(self.choices.items())
        more: list[Section] = [
            ("What is done with the blocks", [Drawn(self.plot()), TextTable(("block", "choice"), rows)]),
            explained(self.explain()),
        ]
        write_counters(self.metrics, path, title, f"{len(self.chain.blocks)} blocks inside {self.budget!r}.", more)

    def _repr_html_(self) -> str:
        return preformatted(self.explain()) + self.plot().markup

    def alternatives(self) -> list[tuple[str, float, int]]:
        """Return name, predicted seconds and peak bytes of each choice made for all blocks alike.

        A block that does not have it has the one with the fewest bytes.
        """
        alternatives = []
        for name in dict.fromkeys(choice.name for block in self.chain.blocks for choice in block.choices):
            places = zip(self.chain.blocks, uniform_picks(self.chain, name), strict=True)
            picks = [block.choices[place] for block, place in places]
            foreseen = simulate(self.chain, picks, self.budget["device"])
            alternatives.append((name, foreseen.seconds, foreseen.peak))
        return alternatives


def besides(base: int, behind: int) -> str:
    """Tell what of the device's memory is in no block, and what can be done about it."""
    return (
        f"{to_text(base)} are there before the first block: parameters, and what an optimizer keeps (offloaded moves "
        f"that); {to_text(behind)} come behind the last, such as logits (linear_cross_entropy makes some at a time)"
    )


def numbered(names: Iterable[str]) -> list[str]:
    """Tell names that come again apart.

    Examples
    --------
    >>> numbered(["first", "shared", "shared"])
    ['first', 'shared', 'shared (2)']
    """
    times: Counter[str] = Counter()
    apart = []
    for name in names:
        times[name] += 1
        apart.append(name if times[name] == 1 else f"{name} ({times[name]})")
    return apart


def _grouped(picks: tuple[BlockChoice, ...]) -> dict[str, list[int]]:
    grouped = defaultdict[str, list[int]](list)
    for number, pick in enumerate(picks):
        grouped[pick.name].append(number)
    return grouped


def _numbers(positions: list[int]) -> str:
    """Write positions with runs of them shortened.

    Examples
    --------
    >>> _numbers([0, 1, 2, 5])
    'blocks 0-2, 5'
    """
    apart = [position - place for place, position in enumerate(positions)]  # the same along a run
    runs = [[p for p, each in zip(positions, apart, strict=True) if each == one] for one in dict.fromkeys(apart)]
    return "blocks " + ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
