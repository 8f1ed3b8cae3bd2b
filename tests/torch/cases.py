"""Parametrisations of which a few run fast: the others show what those show, and are left to `make test-slow`."""

from collections.abc import Mapping

import pytest


def crossed(firsts, seconds):
    """Pair all cases of two lists; a diagonal, in which each of them is, runs fast."""
    firsts, seconds = _named(firsts), _named(seconds)
    longer = max(len(firsts), len(seconds))
    diagonal = {(number % len(firsts), number % len(seconds)) for number in range(longer)}
    return [
        pytest.param(first, second, id=f"{name}-{other}", marks=() if (at, by) in diagonal else pytest.mark.slow)
        for at, (name, first) in enumerate(firsts)
        for by, (other, second) in enumerate(seconds)
    ]


def mostly_slow(cases, *fast):
    """Leave all cases but those that are named to the slow tests."""
    named = _named(cases)
    if unknown := set(fast) - {name for name, _ in named}:
        raise ValueError(f"no case is called {', '.join(map(repr, sorted(unknown)))}")
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), id=name, marks=() if name in fast else pytest.mark.slow
        )
        for name, case in named
    ]


def _named(cases):
    if isinstance(cases, Mapping):
        return list(cases.items())
    return [(getattr(case, "__name__", str(case)), case) for case in cases]
