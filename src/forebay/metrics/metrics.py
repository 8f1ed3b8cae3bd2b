"""The counters of a reversal: seconds per phase, bytes per link, hits and misses, peaks, and the timeline."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from forebay.metrics.timeline import Timeline, write_trace
from forebay.units import seconds_to_text, to_text

if TYPE_CHECKING:
    from rich.table import Table

PHASES = ("forward", "backward", "use", "save", "restore", "compress", "decompress", "stall")


class Distortion(NamedTuple):
    """What a lossy codec did to what backward saw of one step, at the points that were looked at."""

    step: int
    max_error: float
    relative: float
    """the largest error over the range of its array"""
    psnr: float
    """decibels over the range"""
    ssim: float


@dataclass
class Ratios:
    """How many times smaller encodings were: all together, and at worst.

    Examples
    --------
    >>> ratios = Ratios()
    >>> ratios.add(800, 100)
    >>> ratios.add(800, 400)
    >>> ratios.count, ratios.mean, ratios.worst
    (2, 3.2, 2.0)
    """

    count: int = 0
    nbytes: int = 0
    """of all before"""
    encoded: int = 0
    """of all after"""
    worst: float = inf

    def add(self, nbytes: int, encoded: int) -> None:
        """Count one more."""
        self.count, self.nbytes, self.encoded = self.count + 1, self.nbytes + nbytes, self.encoded + encoded
        self.worst = min(self.worst, nbytes / max(1, encoded))

    def __iadd__(self, other: "Ratios") -> Self:
        self.count, self.nbytes = self.count + other.count, self.nbytes + other.nbytes
        self.encoded, self.worst = self.encoded + other.encoded, min(self.worst, other.worst)
        return self

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def mean(self) -> float:
        """Bytes of all before, over those after: a mean of ratios would praise empty fields. 1 where there are none."""
        return self.nbytes / max(1, self.encoded) if self else 1.0


@dataclass
class Metrics:
    """What a reversal did, or a pool of arrays, filled by whoever runs it."""

    seconds: float = 0.0
    """of the whole reversal, from the first action to the last"""
    phases: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """seconds of each of PHASES on the computation"""
    moved: Counter[str] = field(default_factory=Counter)
    """bytes over each link, by lane: "up 1" is from tier 1 to tier 0"""
    avoided: Counter[str] = field(default_factory=Counter)
    """bytes that would have moved over the first link had every save gone down and every restore come up"""
    hits: int = 0
    """restores that found their snapshot in the first tier without a fetch"""
    misses: int = 0
    """restores whose snapshot had to be fetched"""
    late: int = 0
    """misses whose fetch had not ended when the computation needed it"""
    peak: Counter[str] = field(default_factory=Counter)
    """bytes of snapshots in each tier, at most, as allocated"""
    ratios: Ratios = field(default_factory=Ratios)
    """how many times smaller those snapshots became that were encoded"""
    samples: list[Distortion] = field(default_factory=list)
    """the errors of a lossy codec at sampled steps"""
    generations: int = 0
    """lossy encodings, at most, between an exact state and one that was kept: each is of what the last gave back"""
    spilled: int = 0
    """times that a snapshot was moved down because encodings were larger than planned"""
    lost: int = 0
    """times that one was dropped for that reason, there being no room below"""
    recomputed: int = 0
    """steps run again to have those back"""
    advanced: int = 0
    """(coarse) steps run forward, again or for the first time"""
    replanned: int = 0
    """times that a plan was left, because snapshots were larger or smaller than it assumed"""
    timeline: Timeline = field(default_factory=Timeline)
    title: str = "reversal"
    """what it is that was done"""

    def __repr__(self) -> str:
        return f"Metrics({self.title} in {seconds_to_text(self.seconds)}, {len(self.timeline)} spans)"

    @property
    def peak_device(self) -> int:
        """Bytes on the device, at most."""
        return self.peak["device"]

    @property
    def mean_ratio(self) -> float:
        """Bytes of all encoded snapshots before, over those after; 1 where none was encoded."""
        return self.ratios.mean

    def add(self, lane: str, what: str, step: int, start: float, stop: float) -> None:
        """Count something that happened: on the computation its phase grows, and the timeline always does."""
        if lane in ("compute", "codec"):
            self.phases[what] += stop - start
        self.timeline.add(lane, what, step, start, stop)

    def add_counts(self, part: "Metrics") -> None:
        """Add the counters of a part, such as a segment of a reversal; its samples and timeline stay its own."""
        for name, spent in part.phases.items():
            self.phases[name] += spent
        self.moved += part.moved
        self.avoided += part.avoided
        self.peak |= part.peak
        self.ratios += part.ratios
        self.generations = max(self.generations, part.generations)
        for name in ("hits", "misses", "late", "spilled", "lost", "recomputed", "advanced", "replanned"):
            setattr(self, name, getattr(self, name) + getattr(part, name))

    def table(self) -> "Table":
        """Lay the counters out for a terminal."""
        from rich.table import Table  # it takes its time to load

        table = Table("what", "seconds", "bytes", "count", title=f"{self.title} in {seconds_to_text(self.seconds)}")
        for phase in PHASES:
            if self.phases[phase]:
                table.add_row(phase, seconds_to_text(self.phases[phase]), "", "")
        for lane, moved in sorted(self.moved.items()):
            spent = sum(span.stop - span.start for span in self.timeline if span.lane == lane)
            count = sum(span.lane == lane for span in self.timeline)
            table.add_row(f"moved {lane}", seconds_to_text(spent), to_text(moved), str(count))
        for lane, avoided in sorted(self.avoided.items()):
            table.add_row(f"avoided {lane}", "", to_text(avoided), "")
        for tier, peak in self.peak.items():
            table.add_row(f"peak {tier}", "", to_text(peak), "")
        if self.ratios:
            table.add_row(
                "compressed", "", f"{self.mean_ratio:.3g} times smaller, {self.ratios.worst:.3g} at worst", ""
            )
        if self.samples:
            worst = max(self.samples, key=lambda sample: sample.relative)
            kept = (
                f"{worst.max_error:.2g}, {worst.relative:.2g} of the range; {worst.psnr:.1f} dB, SSIM {worst.ssim:.4f}"
            )
            table.add_row("largest error", "", f"{kept} (at step {worst.step} of {len(self.samples)} sampled)", "")
        for name in ("spilled", "lost", "recomputed", "replanned"):
            if getattr(self, name):
                table.add_row(name, "", "", str(getattr(self, name)))
        for name in ("hits", "misses", "late"):
            table.add_row(name, "", "", str(getattr(self, name)))
        return table

    def write_trace(self, path: Path | str) -> None:
        """Write the timeline for a trace viewer."""
        write_trace(self.timeline, path)
