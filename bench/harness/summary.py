"""What a reversal tells of itself, the same keys in every benchmark."""

from typing import Any

PHASES = ("forward", "backward", "save", "restore", "stall")


def summary(result: Any) -> dict[str, Any]:
    """Return what a result and its plan say; seconds are from the first action to the last."""
    plan, metrics = result.plan, result.metrics
    return {
        "schedule": str(plan.schedule),
        "keep": plan.keep,
        "codec": plan.codec or "none",
        "seconds": metrics.seconds,
        "predicted": plan.prediction.seconds,
        "over_predicted": metrics.seconds / plan.prediction.seconds,
        "stall": metrics.phases["stall"],
        "phases": dict(metrics.phases),
        "predicted_phases": {phase: getattr(plan.prediction, phase) for phase in PHASES},
        "moved": sum(metrics.moved.values()),
        "ratio": metrics.mean_ratio if metrics.ratios else None,
        "worst_ratio": metrics.ratios.worst if metrics.ratios else None,
        "peak": dict(metrics.peak),
        "late": metrics.late,
        "spilled": metrics.spilled,
        "recomputed": metrics.recomputed,
    }
