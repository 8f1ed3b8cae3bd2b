"""The plan of a fitted model, from what was measured of its blocks."""

from penstock.errors import BudgetError
from penstock.planner import Link
from penstock.planner.blocks import Chain, choose
from penstock.torch.choices import block_of
from penstock.torch.fitplan import FitPlan
from penstock.torch.known import Known
from penstock.units import Budget, to_text

MARGIN = 0.01
"""The part of the budget that is left for what varies between iterations."""


def make_plan(known: Known, budget: Budget, counts: bool, link: Link | None, choice: str | None) -> FitPlan:
    """Choose what happens to each block.

    Parameters
    ----------
    known
        What was measured.
    budget
        What the user allows.
    counts
        Whether the peaks of the device were measured; else they follow from what blocks save and are given.
    link
        Between device and host, where there is one.
    choice
        The only treatment allowed, if one was asked for.
    """
    grown, given, blocks = known.planned - known.base, 0, []
    for record, timed in zip(known.records, known.times, strict=True):
        given += record.inputs
        peaks = given, given, given + record.saved
        if counts:
            peaks = grown + record.peak_forward, grown + record.peak_after, grown + record.peak_backward
        blocks.append(block_of(record, timed, peaks, bool(budget.host), choice))
    speed = link or Link(1e9, 1e9)
    chain = Chain(tuple(blocks), known.outside, speed.down, speed.up, budget.host or 0)
    picks, foreseen = choose(chain, int(budget["device"] * (1 - MARGIN)))
    if foreseen.excess:
        raise BudgetError(
            f"the step does not fit in {budget!r} with any choice for its blocks: it lacks about "
            f"{to_text(foreseen.excess / (1 - MARGIN))}. Raise the budget of the device, or of the host where it is "
            "small, or make the batch or the blocks smaller (blocks=...)"
        )
    return FitPlan(budget, chain, picks, foreseen, link, counts)
