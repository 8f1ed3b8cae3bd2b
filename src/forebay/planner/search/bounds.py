"""What a schedule cannot take less than, in closed form: how `choose` knows which plans need no simulation."""

from collections.abc import Sequence

from forebay.planner.search.coarse import Coarse, misses
from forebay.planner.simulate import Prediction, Work
from forebay.schedule import Hierarchical, Schedule, binomial
from forebay.schedule.segmented import Segmented


def computed(work: Work, steps: int, forward_steps: float, saves: float) -> float:
    """Return the seconds of a reversal in which nothing stalls, without the host's part."""
    restore = saves * work.take + (steps - saves) * work.restore
    return forward_steps * work.forward + steps * work.backward + saves * work.save + restore


def unstalled(
    work: Work, steps: int, forward_steps: float, saves: float, fetched: float = 0, stored: float = 0
) -> float:
    """Return the least seconds of a reversal in which nothing stalls, with the host's part."""
    asked = work.host.seconds(steps, forward_steps, saves, fetched, stored)
    return work.host.beside(computed(work, steps, forward_steps, saves), asked)


def slowed(work: Work, whole: float, asked: float, away: float, stored: float, fetched: float) -> float:
    """Return the least seconds of a reversal on two tiers whose computation is slower beside its movements.

    While the link is busy, the computation goes on more slowly, or waits. The computation and the host's part take
    `whole` and `asked` seconds. So many snapshots go down during the first sweep, which are `away` at the turn. Later
    so many are stored and fetched, perhaps at the same time. On three tiers the simulation counts less.
    """
    idle = work.host.start + (0.0 if work.host.ahead else asked)
    if len(work.up) != 1 or not work.beside:
        return whole + idle
    (times,), (down,), (up,) = work.beside, work.down, work.up
    return whole + idle / times + (1 - 1 / times) * (away * down + max(stored * down, fetched * up))


def least_of_all(work: Work, steps: int) -> float:
    """Bound the seconds of every reversal of a loop from below, whatever its schedule.

    Each state that is not saved is reached once more, by a forward step of its own. Both the computation and the host's
    part are linear in how many are saved, so that the least of each is at one end.
    """
    ends = [(2 * steps - saves, saves) for saves in (0, steps)]
    whole = min(computed(work, steps, *counts) for counts in ends)
    return work.host.beside(whole, min(work.host.seconds(steps, *counts) for counts in ends))


def unmoved(schedule: Schedule, work: Work, tiers: int) -> Prediction:
    """Return the exact prediction of a schedule whose snapshots all stay in the first tier."""
    saves, steps, forward_steps = schedule.saves, schedule.steps, schedule.forward_steps
    forward, backward = forward_steps * work.forward, steps * work.backward
    save, restore = saves * work.save, saves * work.take + (steps - saves) * work.restore
    nothing = (0,) * (tiers - 1)
    seconds = unstalled(work, steps, forward_steps, saves)
    return Prediction(
        seconds=seconds,
        forward=forward,
        backward=backward,
        save=save,
        restore=restore,
        stall=0.0,
        fetched=nothing,
        stored=nothing,
        link_seconds=tuple(map(float, nothing)),
        peak=(schedule.peak_snapshots, *nothing),
        host=seconds - computed(work, steps, forward_steps, saves),
    )


def in_last_tier(schedule: Schedule, slots: Sequence[int], policy: str) -> int | None:
    """Return how many snapshots the last tier holds at one time at most; None where only a simulation tells.

    The live snapshots of our schedules are a stack, and the policy "min" keeps its upper end in the tiers above. What
    goes down is what has no room there when the stack is highest.
    """
    if not isinstance(schedule, Segmented | Hierarchical) or policy != "min":
        return None
    return max(0, schedule.peak_snapshots - sum(slots[:-1]))


def least_misses(visits: int, snapshots: int, slots: int) -> int:
    """Bound from below how many restores of one binomial reversal find their snapshot evicted from `slots`.

    A restore misses where the reversal of the stretch behind it filled all the slots.

    Examples
    --------
    >>> [least_misses(3752, 8, slots) for slots in (2, 3, 4, 6)]
    [923, 461, 209, 27]
    """
    if visits < 2 or snapshots <= slots:
        return 0
    repeats = binomial.repeats_for(visits, snapshots)
    unused = binomial.beta(snapshots, repeats) - visits
    most = binomial.beta(snapshots - slots, repeats) - unused
    return max(most, binomial.beta(snapshots - slots, repeats - 1), 1) - 1


def least_seconds(schedule: Segmented, work: Work, slots: tuple[int, ...], coarse: Coarse | None = None) -> float:
    """Bound the simulated seconds from below; with `coarse`, take longer and come closer.

    All snapshots alive at the turn, but those that fit in the upper tiers, have gone down each link before it. After
    it they come up again, and with them the snapshots inside segments that do not stay in the first tier.
    """
    alive = schedule.alive_at_turn
    counts = schedule.steps, schedule.forward_steps, schedule.saves
    whole = computed(work, *counts)  # stalls may hide the host's part
    sweep = schedule.steps * work.forward + alive * work.save
    down = up = 0.0
    above = 0
    for tier in range(len(slots) - 1):
        above += slots[tier]
        down = max(down, (alive - above) * work.down[tier])
        up = max(up, (alive - above) * work.up[tier])
    stall_of_last = stall_of_others = 0.0
    fetched = 0
    if len(slots) > 1 and schedule.inner >= slots[0]:
        count = misses if coarse else least_misses
        last, inside = schedule.each_stretch(lambda visits, snapshots: count(visits, snapshots, slots[0]))
        fetched = max(0, last + (schedule.majors - 1) * (1 + inside) - slots[0])
        up = max(up, fetched * work.up[0])
        if coarse:
            stall_of_last, stall_of_others = schedule.each_stretch(coarse.least_stall)
            stall_of_others *= schedule.majors - 1
    after_turn = max(whole - sweep + stall_of_others, up)
    stalled = max(whole + stall_of_last + stall_of_others, max(sweep, down) + after_turn)
    away = max(0, alive - slots[0]) if len(slots) > 1 else 0
    asked = unstalled(work, *counts, max(fetched, away), away)
    beside = slowed(work, whole, work.host.seconds(*counts), away, 0, max(fetched, away))
    return max(asked, beside, work.host.start + stalled)
