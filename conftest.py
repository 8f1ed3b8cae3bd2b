"""What all tests share."""

import ctypes
import gc
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from tests.example_counts import ALL

MOST_CASES = 3
"""Of one test, in the fast run."""
WHOLE = ("tests/test_docs.py", "tests/test_house.py", "tests/cli/test_bench.py")
"""Tests of which every case has to run: each is of a page, a rule or a benchmark."""

# Shared machines are slow at times: no example fails for its duration.
settings.register_profile("default", deadline=None, print_blob=True)
settings.load_profile("default")

# The operators of the examples are what footprints are tried on; child processes find them on the same path.
sys.path.append(str(Path(__file__).parent / "examples"))

# Code that Devito compiles with -ffast-math makes the thread that loads it flush denormal numbers to zero from then on,
# in all that it computes; threads that are started later begin like that too.
os.environ.setdefault("DEVITO_SAFE_MATH", "1")

# Threads that spin while they wait for others take the cores that tests in other processes need: on two cores, two such
# tests at once took more than twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# JAX would take three quarters of a GPU that other tests use at the same time.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# XLA's compiler takes most of the time of the tests of JAX, a quarter of it to make fast code of what runs once.
if not ALL:
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# What checkpoint_schedules has Numba compile takes seconds in every process, and milliseconds as it stands.
if "checkpoint_schedules" not in sys.modules:
    sys.modules["numba"] = None
    with suppress(ImportError):
        import checkpoint_schedules  # noqa: F401
    del sys.modules["numba"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: the processes that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the collector from looking through all that is imported again and again, now and whenever tests ask it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(20_000, 20, 20)  # looks for cycles took a twentieth of all time


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave to the slow run, of a test with many cases, all but some, evenly spread."""
    cases = {}
    for item in items:
        if not item.nodeid.startswith(WHOLE) and not [*item.iter_markers("slow"), *item.iter_markers("gpu")]:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for own in cases.values():
        kept = {len(own) * number // MOST_CASES for number in range(MOST_CASES)}
        for number, item in enumerate(own):
            if len(own) > MOST_CASES and number not in kept:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def floating_point_environment():
    """Undo what Devito's operators do to this thread, on x86 also without -ffast-math."""
    library, before = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    if not hasattr(library, "fegetenv"):
        library = ctypes.CDLL("libm.so.6")
    library.fegetenv(before)
    yield
    library.fesetenv(before)
