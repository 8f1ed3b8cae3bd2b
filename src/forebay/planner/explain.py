"""A plan told in a few lines."""

from forebay.planner.plan import Plan
from forebay.schedule import Schedule
from forebay.schedule.segmented import Segmented
from forebay.units import seconds_to_text, to_text


def explain(plan: Plan) -> str:
    """Tell what was chosen, what else there was, where the time goes, and the peak bytes of each tier."""
    predicted, costs = plan.prediction, plan.costs
    source = f"assumed for {costs.assumed}" if costs.assumed else "measured" if costs.measured else "as given"
    lines = [
        f"{plan.steps} steps, {to_text(plan.state_bytes)} a state, {plan.budget!r}; costs {source}: "
        f"forward {seconds_to_text(costs.forward)}, backward {seconds_to_text(costs.backward)} a step",
        f"plan      {_what(plan)}: {seconds_to_text(plan.seconds)}",
        f"time      {_shares(plan)}",
        f"          forward runs {_passes(plan):.2f} times over the loop; "
        f"keeping everything at no cost would take {seconds_to_text(_least(plan))}",
    ]
    for number, (tier, peak) in enumerate(plan.peak_bytes.items()):
        if not peak:
            lines.append(f"{tier:<9} not used")
            continue
        lines.append(
            f"{tier:<9} {predicted.peak[number]} of {plan.slots[number]} slots, "
            f"{to_text(peak)} of {to_text(plan.budget[tier])}"
        )
        if number:
            up, down = predicted.fetched[number - 1], predicted.stored[number - 1]
            busy = predicted.link_seconds[number - 1] / predicted.seconds
            lines.append(
                f"          {up} snapshots come up and {down} go down; the link is busy {busy:.0%} of the time"
            )
    for other in plan.alternatives[:1]:
        more, least = other.seconds / plan.seconds, "" if other.exact else "at least "
        lines.append(f"runner-up {other.name}: {least}{seconds_to_text(other.seconds)} ({more:.2f} times)")
    return "\n".join(lines)


def _what(plan: Plan) -> str:
    kept = "records" if plan.keep == "records" else "states"
    codec = f", {plan.codec} ({plan.costs.codecs[plan.codec].ratio:.3g} times smaller)" if plan.codec else ""
    every = f", counted in {plan.every} steps" if plan.every > 1 else ""
    return f"{plan.schedule} ({_meaning(plan.schedule)}{every}) of {kept}, policy {plan.policy}{codec}"


def _meaning(schedule: Schedule) -> str:
    if not isinstance(schedule, Segmented):
        return f"{schedule.peak_snapshots} snapshots"
    if schedule.interval == 1:
        return "every step kept"
    if schedule.majors == 1:
        return f"{schedule.peak_snapshots} snapshots"
    inner = "all" if schedule.inner >= schedule.interval - 2 else schedule.inner
    return f"a snapshot every {schedule.interval} steps" + (f", {inner} inside a segment" if schedule.inner else "")


def _passes(plan: Plan) -> float:
    return plan.schedule.forward_steps / plan.schedule.steps


def _least(plan: Plan) -> float:
    return plan.steps * (plan.costs.forward + plan.costs.backward)


def _shares(plan: Plan) -> str:
    predicted = plan.prediction
    parts = {name: getattr(predicted, name) for name in ("forward", "backward", "save", "restore", "stall")}
    shared = f" (its share of {plan.reversals} reversals)" if plan.reversals > 1 else ""
    parts["pinning" + shared] = plan.pinning
    return ", ".join(f"{name} {seconds_to_text(part)}" for name, part in parts.items() if part > 5e-4 * plan.seconds)
