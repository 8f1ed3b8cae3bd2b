"""Deepwave's gradients inside a budget are its own, in a tenth of the memory."""

import inspect
import sys
from pathlib import Path

import pytest

pytest.importorskip("deepwave")
inside = pytest.importorskip("deepwave_inside_a_budget")  # of the examples

PAGE = Path(__file__).parents[2] / "docs" / "peers.md"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what a process takes at most is asked of Linux")
@pytest.mark.parametrize("kind", ["scalar", "elastic"])
def test_gradients_are_deepwaves_own_in_a_tenth_of_the_memory(kind):
    apart, own, within = inside.beside(kind)
    assert apart < 1e-5  # sums of float32 in another order
    assert within < own / 10 and own > 100e6


def test_the_page_shows_the_function_of_the_example():
    source = inspect.getsource(inside.heard_inside)
    assert source in PAGE.read_text()
    statements = [line for line in source.splitlines() if line.strip() and '"""' not in line]
    assert len(statements) <= 15
