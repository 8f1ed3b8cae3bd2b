"""From bytes and bytes a second to slots and seconds: the ways in which a problem's snapshots can be kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil

from forebay.errors import BudgetError, PlanError
from forebay.planner.choose import Setting
from forebay.planner.costs import CodecCost, Costs
from forebay.planner.simulate import Work
from forebay.schedule.weighted import summed
from forebay.units import Budget

HOST_SLOTS = tuple(4**power for power in range(10))
"""Slots of the host that are tried where pinning them costs time and a disk lies below."""


@dataclass(frozen=True)
class Problem:
    """A loop, a budget and what everything costs."""

    steps: int
    every: int
    state_bytes: int
    record_bytes: int | None
    budget: Budget
    costs: Costs
    policy: str
    slots: int | None
    reversals: int
    overhead: int = 0
    encode_states: bool = True

    @property
    def coarse_steps(self) -> int:
        """Steps of the schedule, each of `every` steps of the loop but perhaps the last."""
        return -(-self.steps // self.every)

    def raw_bytes(self, keep: str) -> int:
        """Return the bytes of a snapshot before any codec."""
        return self.state_bytes if keep == "states" else self.record_bytes or 0

    def codings(self, keep: str, codecs: Sequence[str]) -> tuple[str | None, ...]:
        """Return None, for no codec, and those that may encode what is kept."""
        return (None, *codecs) if keep == "records" or self.encode_states else (None,)

    def settings(self, codecs: Sequence[str]) -> Iterator[Setting]:
        """Yield every way to keep snapshots: states or records, with no codec or one of those asked for."""
        for keep, raw in (("states", self.state_bytes), ("records", self.record_bytes)):
            for codec in self.codings(keep, codecs):
                if raw is not None:
                    yield from self._settings(keep, raw, codec)

    def _settings(self, keep: str, raw: int, codec: str | None) -> Iterator[Setting]:
        cost = self.costs.codecs[codec] if codec is not None else None
        size = snapshot_size(raw, cost)
        left = [self.budget[tier] for tier in self.budget.tiers]
        left[0] = fillable(left[0], self.overhead) - reserved(keep, raw, cost, self.budget.tiers[0])
        # Every tier can take one snapshot that does not shrink.
        room = [nbytes // slot_size(raw, cost) if nbytes >= worst_size(raw, cost) else 0 for nbytes in left]
        if self.slots is not None and room[0] > 0:
            if self.slots > room[0]:
                return
            room[0] = self.slots
        usable = next((number for number, count in enumerate(room) if count < 1), len(room))
        room = room[: max(1, usable)]  # a tier without room cannot be passed through
        pins = self.budget.tiers[0] == "device" and len(room) > 1
        pin = self.costs.pin * size / self.reversals if pins else 0.0
        choices: list[tuple[int, ...]] = [tuple(room)]
        if len(room) == 3:
            if pin:  # more host slots may cost more time than they save; what is tried does not depend on the budget
                choices = [(room[0], host, room[2]) for host in HOST_SLOTS if host <= room[1]]
            choices.append((room[0], room[1]))  # on two tiers more schedules are tried: a third must not make it worse
        for slots in choices:
            work = self.work(keep, codec, len(slots))
            yield Setting(keep, codec, size, work, slots, pin, self.policy)

    def reach(self) -> tuple[float, ...]:
        """Return the forward seconds up to each step of the schedule; nothing where all steps take the same."""
        if not self.costs.steps:
            return ()
        seconds = self.costs.forward * self.steps / sum(self.costs.steps)
        return tuple(seconds * total for total in accumulate(summed(self.costs.steps, self.every), initial=0.0))

    def work(self, keep: str, codec: str | None, tiers: int) -> Work:
        """Turn bytes a second into seconds a snapshot and a (coarse) step."""
        raw = self.raw_bytes(keep)
        cost = self.costs.codecs[codec] if codec is not None else None
        moved = snapshot_size(raw, cost)
        links = [getattr(self.costs, tier) for tier in self.budget.tiers[1:tiers]]
        copy = raw / self.costs.copy
        encode, decode = (raw / cost.encode, raw / cost.decode) if cost else (copy, copy)
        is_handed = cost is not None and cost.handed_encoded and keep == "records"
        decode = moved / self.costs.copy if is_handed else decode
        pace = self.steps / self.coarse_steps  # the last step of the schedule may be shorter than the others
        host = self.costs.operations
        if host.ahead:
            host = replace(host, forward=pace * host.forward, backward=pace * host.backward)
            if cost:
                decode_host = host.restore + (0.0 if is_handed else cost.decode_host)
                host = replace(host, save=host.save + cost.encode_host, restore=decode_host, take=decode_host)
        return Work(
            forward=pace * self.costs.forward,
            backward=pace * self.costs.backward,
            # Encodings are copied once more, from the place that all are made in.
            save=encode + (moved / self.costs.copy if cost else 0.0),
            restore=decode if cost or keep == "states" else 0.0,
            # At its last use a raw snapshot becomes the working state by a swap; a record is read where it lies.
            take=decode if cost else 0.0,
            up=tuple(moved / link.up for link in links),
            down=tuple(moved / link.down for link in links),
            both=tuple(1 / link.both - 1 for link in links) if any(link.both < 1 for link in links) else (),
            beside=tuple(link.beside for link in links),
            host=host,
            reach=self.reach(),
            settles=host.ahead and cost is not None and cost.spread > 1,
        )


SMALL_BUDGET = 4 * 2**20
"""Bytes up to which a budget is filled whatever the overhead, which would leave nothing of it."""


def fillable(budget: int, overhead: int) -> int:
    """Return the bytes of a budget that can be filled; more budget never leaves less.

    Examples
    --------
    >>> [fillable(budget * 2**20, overhead=4 * 2**20) // 2**20 for budget in (1, 4, 5, 8, 9, 100)]
    [1, 4, 4, 4, 5, 96]
    """
    return min(budget, max(SMALL_BUDGET, budget - overhead))


def budget_to_fill(nbytes: int, overhead: int) -> int:
    """Return the smallest budget of which so many bytes can be filled."""
    return nbytes if nbytes <= SMALL_BUDGET else nbytes + overhead


def reserved(keep: str, raw_bytes: int, codec: CodecCost | None, tier: str) -> int:
    """Return the bytes of the first tier that snapshots cannot use."""
    encoding = worst_size(raw_bytes, codec) + ceil(raw_bytes * codec.scratch) if codec else 0
    return encoding + staging(keep, raw_bytes, codec is not None, tier)


def staging(keep: str, raw_bytes: int, encoded: bool, tier: str) -> int:
    """Return the bytes of the first tier that hold no snapshot but something on its way.

    A record is read, and decoded to be read, in a place of its own. On a host, threads encode a copy.
    """
    return raw_bytes * ((keep == "records") + (encoded and tier == "host"))


def snapshot_size(raw_bytes: int, codec: CodecCost | None) -> int:
    """Return the bytes of a snapshot as it is kept, rounded up."""
    return max(1, ceil(raw_bytes / codec.ratio)) if codec else raw_bytes


def slot_size(raw_bytes: int, codec: CodecCost | None) -> int:
    """Return the bytes that are planned for a snapshot, some of which are larger than others."""
    return ceil(snapshot_size(raw_bytes, codec) * codec.spread) if codec else raw_bytes


def worst_size(raw_bytes: int, codec: CodecCost | None) -> int:
    """Return the bytes of a snapshot that does not shrink."""
    return ceil(raw_bytes * codec.worst) if codec else raw_bytes


def check_tiers(budget: Budget, costs: Costs) -> None:
    """Refuse tiers that cannot work together, or whose links are unknown."""
    tiers = budget.tiers
    if tiers[0] == "disk":
        raise BudgetError("a budget of disk alone: name the bytes of the host too, where the loop computes")
    if tiers == ("device", "disk"):
        raise BudgetError("between device and disk everything passes through the host: give it a budget too")
    for lower in tiers[1:]:
        if getattr(costs, lower) is None:
            raise PlanError(f"the costs do not say what the link to the {lower} carries: give {lower}=Link(...)")
