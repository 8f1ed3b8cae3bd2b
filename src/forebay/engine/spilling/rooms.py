"""How a plan's snapshots are encoded, and how many bytes of each tier they get: more where their sizes are a guess."""

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.codec import Codec
from forebay.codec.raw import Raw
from forebay.engine.layout import Layout
from forebay.engine.loop import TimeLoop
from forebay.errors import PlanError
from forebay.machine.packing import Packing
from forebay.planner import Plan
from forebay.planner.settings import fillable, staging
from forebay.units import Budget

MARGIN = 1.1
"""How much more room than planned encoded snapshots begin with: some are larger than others."""


@dataclass(frozen=True)
class Rooms:
    """Bytes for snapshots, by tier."""

    first: tuple[int, ...]
    """taken at the start, because pinning them costs time"""
    most: tuple[int, ...]
    """what the budget leaves, into which they grow as they are needed"""


@dataclass(frozen=True)
class SnapshotCoding:
    """How snapshots are encoded, and what a plan takes for granted of that."""

    packing: Packing
    states: tuple[Layout, Packing] | None
    """how states are kept where records have no room"""
    snapshot_bytes: float
    snapshots: int
    """that are alive at one time, at most"""
    forward_steps: int
    steps: int
    """of the schedule"""

    @classmethod
    def of(cls, plan: Plan, loop: TimeLoop, kept: Layout, codec: Codec) -> "SnapshotCoding":
        """Return what becomes of a plan's snapshots with a codec; what is computed from states stays exact."""
        tier, states = loop.memory.tier, None
        if plan.keep == "records":
            states = loop.layout, Packing.of(loop.layout.leaves, Raw() if codec.lossy else codec, tier)
        packing = Packing.of(kept.leaves, codec, tier)
        schedule = plan.schedule
        counts = schedule.peak_snapshots, schedule.forward_steps, schedule.steps
        return cls(packing, states, plan.snapshot_bytes, *counts)


def rooms_of(plan: Plan, kept: Layout, packing: Packing | None, overhead: int) -> Rooms:
    """Return the rooms of a plan: exactly its peak, or, where sizes are a guess, as much of the budget as is needed."""
    peak = plan.prediction.peak
    if packing is None:
        exact = tuple(count * kept.nbytes for count in peak)
        return Rooms(exact, exact)
    most = rooms_of_budget(plan.budget, plan.tiers, plan.keep, kept, packing, overhead).most
    first = [max(int(MARGIN * count * plan.snapshot_bytes), packing.most) for count in peak]
    first[0] += packing.most  # for the one that is being encoded
    first = [min(wanted, allowed) for wanted, allowed in zip(first, most, strict=True)]
    for number, tier in enumerate(plan.tiers):
        if tier == "disk" or (tier == "host" and number == 0):
            first[number] = most[number]  # files, and pages that need not be pinned, are there once they are used
    return Rooms(tuple(first), tuple(most))


def rooms_of_budget(
    budget: Budget, tiers: Sequence[str], keep: str, kept: Layout, packing: Packing, overhead: int
) -> Rooms:
    """Return all the room that a budget leaves for encoded snapshots and what is on its way."""
    first = budget[tiers[0]]
    left = first - staging(keep, kept.nbytes, True, tiers[0])
    # A codec has to find what it takes for itself outside of the rooms, unless no snapshot could be kept then.
    taken = packing.scratch + first - fillable(first, overhead)
    most = (max(left - taken, min(left, 2 * packing.most)), *(budget[tier] for tier in tiers[1:]))
    return Rooms(most, most)


def check_plan(plan: Plan, loop: TimeLoop, kept: Layout, packing: Packing | None, rooms: Rooms) -> None:
    """Refuse a plan that was made for another loop, or whose snapshots have no room."""
    if (plan.steps, plan.every) != (loop.steps, loop.every):
        raise PlanError(
            f"the plan was made for {plan.steps} steps, every {plan.every}; "
            f"the loop has {loop.steps}, every {loop.every}"
        )
    if plan.budget.tiers[0] != loop.memory.tier:
        raise PlanError(f"the plan starts on the {plan.budget.tiers[0]}, but the arrays are on the {loop.memory.tier}")
    if packing is not None:
        needed = [2 * packing.most, *(packing.most for _ in rooms.first[1:])]
        for tier, room, least in zip(plan.tiers, rooms.first, needed, strict=True):
            if room < least:
                raise PlanError(
                    f"a snapshot that does not shrink takes {packing.most} bytes, for which the plan leaves too little "
                    f"of the {tier} budget; make a plan for this state"
                )
        return
    for tier, peak in zip(plan.tiers, plan.prediction.peak, strict=True):
        if peak * kept.nbytes > plan.budget[tier]:
            raise PlanError(
                f"the plan was made for snapshots of {plan.snapshot_bytes} bytes, but they have {kept.nbytes}: "
                f"{peak} of them exceed the {tier} budget; make a plan for this state"
            )
