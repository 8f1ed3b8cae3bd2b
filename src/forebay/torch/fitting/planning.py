"""The plan of a fitted model, from what was measured of its blocks."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import median

from forebay.errors import BudgetError
from forebay.planner import Link
from forebay.planner.blocks import BlockChoice, Chain, Forecast, simulate
from forebay.planner.blockwise import choose
from forebay.torch.fitting.choices import LOW_OVERHEAD, block_of
from forebay.torch.fitting.fitplan import FitPlan, numbered
from forebay.torch.fitting.profile import Profile
from forebay.units import Budget, to_text

MARGIN = 0.01
"""The part of the budget that is left for what varies between iterations."""
ALLOCATOR_SLACK = 2**23
"""Bytes of a GPU that are left besides: torch's allocator may hand out up to a mebibyte too many with each tensor.

It does so in the iteration that is measured too. Mixtures of choices went up to 3.5 MiB above that, emulated for
networks of 8 to 26 blocks.
"""
RIVALS = 3
"""So many of the plans that were tried, and one that was not, take turns before one stays."""
NEAR = 0.02
"""Where times have changed by less than this part of a step, the choices stay."""

Picked = tuple[tuple[BlockChoice, ...], Forecast]
"""Choices, and what they come to."""


def make_plan(
    profile: Profile, budget: Budget, counts: bool, link: Link | None, choice: str | None, low_overhead: bool = False
) -> FitPlan:
    """Choose what happens to each block, or keep what was chosen where little has changed.

    Parameters
    ----------
    profile
        What was measured.
    budget
        What the user allows.
    counts
        Whether the peaks of the device were measured; else they follow from what blocks save and are given.
    link
        Between device and host, where there is one.
    choice
        The only treatment allowed, if one was asked for.
    low_overhead
        Whether to take choices of low overhead alone, where that is possible.
    """
    chain = _chain(profile, budget, counts, link, choice)

    def find(room: int) -> list[Picked]:
        picked = _kept(profile.plan, chain, room) or choose(chain, room)
        if low_overhead and not LOW_OVERHEAD.issuperset(_names(picked)):
            return [_low_overhead(chain, room) or picked]
        return [picked]

    (picked,), _ = _within(profile, budget, counts, choice, find)
    return _fitting(profile, budget, counts, link, chain, picked)


def last_plans(
    profile: Profile, budget: Budget, counts: bool, link: Link | None, choice: str | None
) -> tuple[FitPlan, ...]:
    """Make the plans that whole iterations have to decide between, or the only one where they have.

    They are the fastest of those that were tried and that fit, or a new one where none does; and the best with
    choices of low overhead alone, unless all of them are: on a fast GPU what a mixture takes of the host shows in a
    whole iteration only. One that stayed after its turns goes on to stay where it fits. The parameters are those of
    `make_plan`.
    """
    chain = _chain(profile, budget, counts, link, choice)
    tried = sorted(profile.tried, key=lambda names: median(profile.tried[names]))
    if profile.settled and profile.plan is not None:
        tried.insert(0, profile.plan.names)

    def find(room: int) -> list[Picked]:
        return [picked for names in tried if (picked := _named(names, chain, room))] or [choose(chain, room)]

    picked, room = _within(profile, budget, counts, choice, find)
    picked = picked[: 1 if profile.settled else RIVALS]
    if not profile.settled and not all(LOW_OVERHEAD.issuperset(_names(picks)) for picks in picked):
        plain = _low_overhead(chain, room)
        if plain is not None and _names(plain) not in map(_names, picked):
            picked.append(plain)
    return tuple(_fitting(profile, budget, counts, link, chain, picks) for picks in picked)


def given_plan(
    profile: Profile, budget: Budget, counts: bool, link: Link | None, choice: str | None, given: Mapping[str, str]
) -> FitPlan | None:
    """Return the plan with the choices that were given; None where they are of other blocks, or do not fit any more.

    The other parameters are those of `make_plan`.
    """
    chain = _chain(profile, budget, counts, link, choice)
    if list(given) == numbered(block.name for block in chain.blocks):
        for room in _rooms(profile, budget, counts):
            picked = _named(list(given.values()), chain, room)
            if picked is not None:
                return _fitting(profile, budget, counts, link, chain, picked)
    warnings.warn(
        f"the plan that was given for {len(given)} blocks is followed no further: the model has others, or it needs "
        f"more than {budget!r} by now. Another is made",
        stacklevel=2,
    )
    return None


def _within(
    profile: Profile, budget: Budget, counts: bool, choice: str | None, find: Callable[[int], list[Picked]]
) -> tuple[list[Picked], int]:
    """Return what is found in the first room that is enough, and that room."""
    for room in _rooms(profile, budget, counts):
        picked = find(room)
        if not picked[0][1].excess:
            return picked, room
    what = "any choice" if choice is None else f"{choice!r}"
    raise BudgetError(
        f"the step does not fit in {budget!r} with {what} for its blocks: it lacks about "
        f"{to_text(picked[0][1].excess)}. Raise the budget of the device, or of the host where it is "
        "small, or make the batch or the blocks smaller (blocks=...)"
    )


def _fitting(
    profile: Profile, budget: Budget, counts: bool, link: Link | None, chain: Chain, picked: Picked
) -> FitPlan:
    return FitPlan(budget, chain, *picked, link, counts, count=sum(record.count for record in profile.records))


def foreseen_anew(profile: Profile, plan: FitPlan, counts: bool) -> FitPlan:
    """Return a plan with what is known by now of the times of its choices."""
    chain = _chain(profile, plan.budget, counts, plan.link, None)
    rooms = _rooms(profile, plan.budget, counts)
    room = next((room for room in rooms if room >= plan.foreseen.peak), rooms[-1])
    picked = _named(plan.names, chain, room)
    return plan if picked is None else replace(plan, chain=chain, picks=picked[0], foreseen=picked[1])


def _rooms(profile: Profile, budget: Budget, counts: bool) -> tuple[int, ...]:
    """List the bytes to plan with: some are left where that is possible, and all are taken where nothing else is."""
    device = budget["device"]
    most = int(device * (1 - MARGIN))
    cautious = (most - max(ALLOCATOR_SLACK, profile.shortfall), device - profile.shortfall) if counts else ()
    return tuple(sorted({*cautious, most, device}))


def _chain(profile: Profile, budget: Budget, counts: bool, link: Link | None, choice: str | None) -> Chain:
    """Describe what was measured to the planner."""
    grown, input_bytes, blocks, parts = profile.plan_base - profile.base, 0, [], profile.timing
    for record, timed in zip(profile.records, parts.blocks, strict=True):
        input_bytes += record.inputs
        peaks = input_bytes, input_bytes, input_bytes + record.saved
        if counts:
            peaks = grown + record.peak_forward, grown + record.peak_after, grown + record.peak_backward
        blocks.append(block_of(record, timed, peaks, bool(budget.host), choice))
    speed = link or Link(1e9, 1e9)
    return Chain(tuple(blocks), parts.outside, speed.down, speed.up, budget.host or 0)


def _names(picked: Picked) -> tuple[str, ...]:
    return tuple(pick.name for pick in picked[0])


def _low_overhead(chain: Chain, room: int) -> Picked | None:
    """Choose the best treatments of low overhead, of the blocks that have such, where they fit."""
    blocks = []
    for block in chain.blocks:
        plain = tuple(choice for choice in block.choices if choice.name in LOW_OVERHEAD)
        blocks.append(replace(block, choices=plain or block.choices))
    picked = choose(replace(chain, blocks=tuple(blocks)), room)
    return None if picked[1].excess else picked


def _kept(plan: FitPlan | None, chain: Chain, room: int) -> Picked | None:
    """Return the choices of an earlier plan, as they are now, where they fit and its times still hold."""
    if plan is None or _apart(plan.chain, chain) > NEAR * plan.seconds:
        return None
    return _named(plan.names, chain, room)


def _named(names: Sequence[str], chain: Chain, room: int) -> Picked | None:
    """Return the choices with some names, where blocks have them and they fit."""
    offered = ({choice.name: choice for choice in block.choices} for block in chain.blocks)
    picks = tuple(choices[name] for choices, name in zip(offered, names, strict=True) if name in choices)
    foreseen = simulate(chain, picks, room) if len(picks) == len(chain.blocks) else None
    return None if foreseen is None or foreseen.excess else (picks, foreseen)


def _apart(before: Chain, after: Chain) -> float:
    """Add up by how many seconds the blocks of two chains differ, with the choices that differ most; or infinity."""
    total = 0.0
    for old, new in zip(before.blocks, after.blocks, strict=True):
        if [choice.name for choice in old.choices] != [choice.name for choice in new.choices]:
            return inf
        total += abs(old.forward - new.forward) + abs(old.backward - new.backward)
        total += max(
            abs(first.forward + first.backward - second.forward - second.backward)
            for first, second in zip(old.choices, new.choices, strict=True)
        )
    return total
