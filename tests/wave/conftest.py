"""What all tests of waves share: kernels are built once, and only the tests of a warning hear it."""

import os
from pathlib import Path

import pytest
from tests.wave import emulator


@pytest.fixture(scope="session", autouse=True)
def emulated_kernels(tmp_path_factory):
    """Have the emulator of a GPU build each kernel once for all processes of a run."""
    own = tmp_path_factory.getbasetemp()
    emulator.BUILT.append(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning"))
