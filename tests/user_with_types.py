"""A user's file, whose types `make lint` checks: what is right passes, and what is wrong, or not there, is told."""

import forebay as fb


def seconds(budget: fb.Budget) -> float:
    return fb.plan(100, 1000, budget).seconds


def wrong(budget: fb.Budget) -> str:
    return fb.plan(100, 1000, budget).seconds  # type: ignore[return-value]


def missing() -> object:
    return fb.turbine  # type: ignore[attr-defined]
