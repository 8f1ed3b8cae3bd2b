"""What all tests share."""

import gc
from pathlib import Path

import pytest

SRC, TESTS = (Path(__file__).parents[1] / name for name in ("src", "tests"))
LATE = (TESTS / "cli", TESTS / "examples", TESTS / "test_docs.py", SRC)
"""Tests that run whatever they show: what the tests of its room have compiled by then, they find."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put late tests behind the others, half of them behind each half, which is what two processes begin with."""
    late = [item for item in items if any(item.path.is_relative_to(place) for place in LATE)]
    early = [item for item in items if not any(item.path.is_relative_to(place) for place in LATE)]
    middle, half = len(early) // 2, len(late) // 2
    items[:] = early[:middle] + late[:half] + early[middle:] + late[half:]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what libraries have made so far out of later collections of garbage, which otherwise take 0.3 s each."""
    gc.collect()
    gc.freeze()
