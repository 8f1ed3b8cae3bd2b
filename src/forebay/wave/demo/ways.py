"""The three ways in which the demo migrates its shots, and what each of them took."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.engine import Result
from forebay.errors import BudgetError
from forebay.planner import Costs, Plan, plan
from forebay.units import Budget, to_text
from forebay.wave.demo.salt import RecordedLine
from forebay.wave.job.stack import PartialImage, finish, tree_sum
from forebay.wave.migrate import migrate

CODEC = "dense:1e-4"
SHARE = 10
"""What everything takes, over the memory of the two other ways."""


@dataclass(eq=False)
class Strategy:
    """One way of keeping the histories of shots, and what it has done so far."""

    name: str
    budget: Budget
    codec: str | None = None
    costs: Costs | None = None
    """known before, where they are"""
    schedule: str = "auto"
    seconds: list[float] = field(default_factory=list)
    """of each shot, by the clock"""
    results: list[Result] = field(default_factory=list)
    parts: list[PartialImage] = field(default_factory=list)

    def migrate(self, line: RecordedLine, number: int) -> None:
        """Migrate one shot."""
        start = perf_counter()
        known = {} if self.costs is None else {"costs": self.costs}
        migration = migrate(
            line.shots[number],
            line.smooth,
            budget=self.budget,
            codec=self.codec,
            schedule=self.schedule,
            encode_states=False,
            reversals=len(line.shots),
            **line.options,
            **known,
        )
        self.seconds.append(perf_counter() - start)
        self.results.append(migration.result)
        box = tuple(slice(0, points) for points in line.grid.shape)
        self.parts.append(PartialImage(migration.image, migration.illumination, box))

    def image(self, line: RecordedLine) -> NDArray[Any]:
        """Make the picture of all shots."""
        return finish(tree_sum(self.parts), line.grid, line.job.imaging.mute)

    @property
    def predicted(self) -> float:
        """Seconds of all shots."""
        return sum(result.plan.prediction.seconds for result in self.results)

    @property
    def measured(self) -> float:
        """Seconds of all shots, of what is predicted: without their data, and without costs that are measured once."""
        return sum(result.metrics.seconds for result in self.results)

    @property
    def peak(self) -> int:
        """Bytes of snapshots, at most."""
        return max(result.metrics.peak["host"] for result in self.results)

    @property
    def passes(self) -> float:
        """How many times the loops went forward over their steps."""
        result = self.results[0]
        return (result.metrics.advanced or result.plan.schedule.forward_steps) / result.plan.schedule.steps


def ways_of(line: RecordedLine, tell: Callable[[str], object], codec: str = CODEC) -> list[Strategy]:
    """Migrate all shots in three ways, which take turns shot by shot; `tell` hears what comes next.

    What a codec makes of a history is not known before one was made, and the first steps, nearly empty, say little. So
    a pilot with more memory comes first, whose costs the codec's way is given. Where that way has room for every
    record it is told to keep them, so that a codec in place of recomputation is seen: which of both is quicker depends
    on the machine.
    """
    everything, tenth = Budget(host=line.history * 5 // 4), Budget(host=line.history // SHARE)
    tell(f"a pilot: how small {codec} makes a history")
    pilot = Strategy("pilot", Budget(host=line.history // 2), codec, schedule="storeall")
    pilot.migrate(line, len(line.shots) // 2)
    encoded = Strategy(f"a tenth, with {codec}", tenth, codec, pilot.results[0].costs, "storeall")
    if not _has_room(encoded, pilot.results[0].plan):
        encoded.schedule = "auto"
    ways = [
        Strategy("everything kept", everything),
        Strategy("a tenth of the memory", tenth),
        encoded,
    ]
    for number in range(len(line.shots)):
        for way in ways:
            tell(f"shot {number + 1} of {len(line.shots)}: {way.name}, {to_text(way.budget['host'])}")
            way.migrate(line, number)
    return ways


def _has_room(way: Strategy, like: Plan) -> bool:
    """Return whether a way's schedule fits its budget, in a loop like another."""
    about: dict[str, Any] = {"state_bytes": like.state_bytes, "record_bytes": like.record_bytes, "every": like.every}
    about |= {"costs": way.costs, "codec": like.codec, "schedule": way.schedule, "encode_states": False}
    try:
        plan(like.steps, budget=way.budget, **about)
    except BudgetError:
        return False
    return True


def off_by(image: NDArray[Any], exact: NDArray[Any]) -> float:
    """Return the 2-norm of the difference over that of the exact image."""
    return float(np.linalg.norm(image - exact) / np.linalg.norm(exact))
