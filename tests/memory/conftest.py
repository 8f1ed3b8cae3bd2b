"""What the tests of this folder share: skipping without a GPU."""

import pytest

from forebay.cuda.available import gpu_count, why_not


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and gpu_count() == 0:
        pytest.skip(why_not())
