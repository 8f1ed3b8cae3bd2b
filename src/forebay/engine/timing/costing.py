"""What a plan is made from: the budget, and what the loop, its links and its codecs cost, timed on the first steps."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

from forebay.codec import Codec
from forebay.codec.auto import choices
from forebay.codec.codec import canonical
from forebay.cuda.available import KEPT_FROM, KEPT_PIECE
from forebay.engine.array_memory import ArrayMemory
from forebay.engine.layout import arrays_of
from forebay.engine.loop import TimeLoop
from forebay.engine.timing.host_costs import host_costs, nothing
from forebay.engine.timing.measure import LIMITED, REPEATS, believed, measure_codec, measure_device, measure_host
from forebay.errors import BudgetError
from forebay.machine.packing import Packing
from forebay.planner import CodecCost, Costs, Plan, plan
from forebay.planner.make import check_budget, check_step_costs
from forebay.schedule.weighted import summed
from forebay.tier.capacity import PIECE, disk_capacity, free_host_bytes, less_of_host
from forebay.tier.kept import kept
from forebay.tier.sectors import SECTOR
from forebay.units import Budget, to_text

Rehearsal = Callable[[], Callable[[], None]]
"""Makes arrays, and returns what runs one backward computation on them."""
WORKING_STATES = 4
"""What a loop on the host takes beside snapshots: its state, what `forward` makes of it, and two on the way there."""
SPARE = 16
"""One part of so many of the free memory stays free: huge pages are taken whole, and the interpreter grows too."""


def read_budget(budget: Budget | str | int | None, memory: ArrayMemory) -> tuple[Budget, str]:
    """Read a budget, or take one and say so."""
    note = ""
    if budget is None:
        budget = Budget(**{memory.tier: _rounded(memory.free_bytes() // 2)})
        taken = to_text(budget[memory.tier])
        note = f"no budget was given: taking half of what is free on the {memory.tier}, {taken}"
    budget = Budget.of(budget, first=memory.tier)
    if budget.tiers[0] != memory.tier:
        raise BudgetError(f"the arrays are kept on the {memory.tier}: the budget must start there, not with {budget!r}")
    return budget, note


def _rounded(nbytes: int) -> int:
    """Leave out up to a 32nd: a little more or less memory that is free makes no other budget, and so no other plan."""
    step = 1 << max(0, nbytes.bit_length() - 6)
    return nbytes // step * step


def there_is(budget: Budget | str | int | None, loop: TimeLoop, steps: int | None) -> tuple[Budget, str]:
    """Read a budget for a loop, or take one; where the host has less than it allows and can be used, take that."""
    budget, note = read_budget(budget, loop.memory)
    nbytes, record = loop.layout.nbytes, loop.record_layout.nbytes if loop.record_layout else 0
    usable = inf if steps is None else of_all_steps(loop.coarse_steps, max(nbytes, record))

    def check(budget: Budget) -> None:
        if steps is not None:
            check_budget(steps, nbytes, budget, record_bytes=record or None, every=loop.every)

    return less_where_needed(budget, note, host_room(loop.memory.tier, nbytes), usable, check)


def of_all_steps(steps: int, nbytes: int) -> int:
    """Return the bytes that snapshots of all steps can take: encodings may be longer."""
    return 5 * (steps + 1) * nbytes // 4


def less_where_needed(
    budget: Budget, note: str, free: int | None, usable: float, check: Callable[[Budget], None]
) -> tuple[Budget, str]:
    """Return what the host has of a budget, with a note that says so; where `check` refuses that, say both."""
    there, less = less_of_host(budget, free, usable)
    if not less:
        return budget, note
    try:
        check(there)
    except BudgetError as error:
        raise BudgetError(f"{less}; {error}") from error
    return there, f"{note}; {less}" if note else less


def check_host(planned: Plan, loop: TimeLoop) -> None:
    """Refuse a plan that takes more of the host than is there."""
    need, free = planned.peak_bytes.get("host", 0), host_room(loop.memory.tier, loop.layout.nbytes)
    if free is not None and need > free:
        raise BudgetError(
            f"the plan takes {to_text(need)} of the host, of which {to_text(free)} are there: make another, with a "
            f"host budget of at most {free} bytes, or free some memory"
        )


def host_room(tier: str, state_bytes: int) -> int | None:
    """Return the bytes of the host for snapshots: what is free, less working states and a part to spare.

    None where nobody tells.
    """
    free = free_host_bytes()
    if free is None:
        return None
    if tier == "device":
        from forebay.cuda.slab import kept_bytes  # it needs cuda.core

        return free + kept_bytes()
    return max(0, free - free // SPARE - WORKING_STATES * state_bytes)


def driver_overhead(tier: str, encoded: bool, arrays: int = 0, allowed: int = 0) -> int:
    """Return the bytes of a device that its driver takes beyond snapshots and the working state, at most.

    It gives memory in pieces. Part of one is lost at the end of the slab, and the streams of the first reversal of a
    process take another; a codec takes one for its kernels and part of one for its scratch. Where records are kept,
    each of the `arrays` of the working state has an allocation, and part of a piece, of its own. Where `allowed` bytes
    are so many that the process keeps the slab, its pieces are larger.
    """
    lost = KEPT_PIECE if allowed >= KEPT_FROM else PIECE
    return lost + PIECE * (1 + 2 * encoded + arrays) if tier == "device" else 0


def with_unused(note: str, codec: str | Codec | Sequence[str | Codec] | None, planned: Plan) -> str:
    """Add to a note that a plan does without the codec that was asked for, where it does."""
    encoders, _ = choices(codec)
    if not encoders or planned.codec is not None:
        return note
    asked = codec if isinstance(codec, str) else " or ".join(encoder.name for encoder in encoders)
    unused = f"codec {asked} is not used: no plan with it that fits the budget is predicted to be faster"
    return f"{note}; {unused}" if note else unused


def costs_of(
    loop: TimeLoop,
    given: Costs | None,
    budget: Budget,
    where: Path,
    synchronous: bool,
    step_costs: Sequence[float] | None,
    codecs: tuple[Sequence[Codec], float | None],
    signature: Hashable | None,
    rehearse: Rehearsal | None = None,
) -> Costs:
    """Return what a loop, its links and codecs cost: as given, or measured; with a signature, once in a process.

    Whatever else costs depend on is looked at each time: where the arrays are and how large, how they are computed,
    which tiers there are, and on which disk the directory is.
    """

    def measure() -> Costs:
        costs = given or measured(loop, budget, where, synchronous, step_costs, rehearse)
        return with_codecs(loop, costs, *codecs)

    if signature is None:
        return measure()
    layouts = [layout for layout in (loop.layout, loop.record_layout) if layout is not None]
    arrays = tuple((layout.leaves, tuple(like.device for like in layout.likenesses)) for layout in layouts)
    names = tuple(codec.name for codec in codecs[0]), codecs[1]
    if "disk" in budget.tiers:
        disk_capacity(where)  # or there is no such directory
    disk = where.stat().st_dev if "disk" in budget.tiers else None
    place = loop.memory.tier, synchronous, budget.tiers, disk, _probe(loop.layout.nbytes, budget)
    return kept(("loop", signature, loop.every, loop.encoded, arrays, names, *place), measure)


def plan_for(costs: Costs, signature: Hashable | None, **settings: Any) -> Plan:
    """Make a plan; of the kept costs of loops with a signature, once in a process for each of the settings."""

    def make() -> Plan:
        return plan(costs=costs, hurry=True, **settings)

    if signature is None or not isinstance(settings["schedule"], str):
        return make()
    # The plan refers to its costs, so that no others get their number as long as it is kept.
    return kept(("plan", id(costs), *sorted(settings.items())), make)


def measured(
    loop: TimeLoop,
    budget: Budget,
    where: Path,
    synchronous: bool,
    step_costs: Sequence[float] | None = None,
    rehearse: Rehearsal | None = None,
) -> Costs:
    """Time the loop and the links on the first steps, which may differ from the others in cost, inside the budget."""
    memory, disk = loop.memory, where if "disk" in budget.tiers else None
    check_step_costs(step_costs, loop.steps)
    nbytes, of_steps = _probe(loop.layout.nbytes, budget), _in_mean_steps(step_costs, loop.every)
    with memory.current():
        if memory.tier == "device":
            costs = measure_device(loop, nbytes, disk, synchronous, of_steps)
        else:
            costs = measure_host(loop, nbytes, disk, of_steps)
            costs = costs if rehearse is None else replace(costs, backward=_rehearsed(rehearse()))
        make = partial(memory.machine, disk or Path(), synchronous)
        asks = costs.operations.ahead and costs.forward < LIMITED  # otherwise the host is never the limit
        asked, step = (costs.operations.forward, _stepper(loop)) if asks else (0.0, nothing)
        # Of a device, the tier below is timed whether the budget has it or not.
        tiers = ("device", "host") if memory.tier == "device" else budget.tiers
        host = host_costs(make, loop.arrays, tiers, step, asked)
    steps = {"forward": costs.operations.forward / loop.every, "backward": costs.operations.backward / loop.every}
    return replace(
        costs,
        forward=costs.forward / loop.every,
        backward=costs.backward / loop.every,
        operations=replace(host, **steps, ahead=costs.operations.ahead),
        measured=True,
    )


def _rehearsed(backward: Callable[[], None]) -> float:
    """Return the seconds of a backward computation; the first call may compile."""
    taken = []
    for _ in range(1 + REPEATS):
        start = perf_counter()
        backward()
        taken.append(perf_counter() - start)
    return median(taken[1:])


def _in_mean_steps(step_costs: Sequence[float] | None, every: int) -> tuple[float, ...]:
    """Return how many mean ones each step of a schedule is worth; nothing where that is not known."""
    if step_costs is None:
        return ()
    mean = every * fmean(step_costs)
    return tuple(cost / mean for cost in summed(step_costs, every))


def _stepper(loop: TimeLoop) -> Callable[[], None]:
    """Return what runs the next step of a loop, and after the last the first again."""
    state, reached = loop.fresh(), 0

    def step() -> None:
        nonlocal state, reached
        if reached == loop.coarse_steps:
            state, reached = None, 0  # its memory may be what the next one takes
            state = loop.fresh()
        state, reached = loop.advance_unchecked(state, reached), reached + 1

    return step


def _probe(nbytes: int, budget: Budget) -> int:
    """Return the bytes that links are timed with: those of a state, or what leaves room for all buffers."""
    on_host = budget.tiers[0] == "host"  # two buffers of memory, and none for the disk
    least = min(budget[tier] for tier in budget.tiers if tier != "disk") // (2 if on_host else 5)
    return max(SECTOR, min(nbytes, least // SECTOR * SECTOR))


def with_codecs(loop: TimeLoop, costs: Costs, encoders: Sequence[Codec], error: float | None) -> Costs:
    """Add what the costs do not say of codecs, measured on a snapshot of the first steps."""
    known = {canonical(name): cost for name, cost in costs.codecs.items()}
    if unknown := [encoder for encoder in encoders if encoder.name not in known]:
        step = min(1, loop.coarse_steps - 1)
        layout, memory = loop.record_layout or loop.layout, loop.memory
        with memory.current():
            state = loop.advance(loop.fresh(), 0, step) if step else loop.fresh()
            arrays = arrays_of(loop.record_of(state, step))
            measured: dict[str, CodecCost] = {}
            for codec in unknown:
                machine = memory.machine(Path(), False)
                cost = measure_codec(machine, layout, memory.tier, codec, arrays, error)
                measured |= {codec.name: cost} if cost is not None else {}
            known |= believed(measured)
    for encoder in encoders:
        if encoder.name in known:
            # What a snapshot that does not shrink takes is known, whatever the costs say, and what the codec takes,
            # and whether backward takes encodings.
            kept = [layout for layout in (loop.layout, loop.record_layout) if layout is not None]
            packed = [(Packing.of(layout.leaves, encoder, loop.memory.tier), layout.nbytes) for layout in kept]
            known[encoder.name] = replace(
                known[encoder.name],
                worst=max(packing.most / nbytes for packing, nbytes in packed),
                scratch=max(packing.scratch / nbytes for packing, nbytes in packed),
                handed_encoded=loop.encoded,
            )
    return replace(costs, codecs=known)
