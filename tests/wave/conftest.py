"""Tests of waves are small, and so are their absorbing layers: only the tests of a warning hear it."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning"))
