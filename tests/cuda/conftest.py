"""What the tests of this folder share: skipping without a GPU, kernels to run, and streams to run them on."""

from pathlib import Path

import pytest

from forebay.cuda.available import gpu_count, why_not

PROBE = Path(__file__).parent / "probe.cu"


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and gpu_count() == 0:
        pytest.skip(why_not())


@pytest.fixture
def probe(streams):
    from forebay.cuda.kernels import load

    module = load(PROBE)
    # The driver may wait for the whole device when a kernel is first launched: not in the middle of a test.
    module.launch("spin", 1, 1, (1,), streams.compute)
    module.launch("fill", 1, 1, (0, 0, 0), streams.compute)
    streams.compute.sync()
    return module


@pytest.fixture
def streams():
    from forebay.cuda.stream import create_streams

    return create_streams()
