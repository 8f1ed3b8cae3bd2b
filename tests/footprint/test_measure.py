"""Peaks are exact: whoever allocates, however shortly, in a process that has run other things before."""

import os
import signal
import subprocess
import sys
import time
import types
from contextlib import suppress

import numpy as np
import pytest
from tests.footprint import functions
from tests.footprint.functions import twice_and_back

from forebay.footprint import FootprintError
from forebay.footprint.measure.command import Command
from forebay.footprint.measure.gauge import device_gauge, host_gauge
from forebay.footprint.measure.inputs import InputLayout, InputRecipe
from forebay.footprint.measure.process import Child, Workload, environment

VOLUME = InputRecipe(InputLayout.of(3), "float32")
NOISE = 2 * 2 * 32 * 4096
"""each of two readings may be short by 32 pages on each of two processors"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells exact peaks")


def child(function, **how):
    return Child(Workload(function, VOLUME, **how))


def ends_itself(x):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@linux
def test_a_child_counts_arrays_and_temporaries_to_the_page_however_often_it_is_used():
    runs = child(twice_and_back)
    try:
        shapes = ((16, 16, 16), (100, 100, 100), (20, 20, 20), (100, 100, 100))
        _, first, _, again = (runs.measure(shape) for shape in shapes)
        versions = runs.versions()
    finally:
        runs.close()
    assert first.host == pytest.approx(4 * 4_000_000 + 4_000_000, abs=NOISE)
    assert again.host == pytest.approx(first.host, abs=NOISE)
    assert first.output_shape == (100, 100, 100) and first.output_dtype == "float32"
    assert runs.gauge_name == "VmHWM" and runs.exact
    assert versions["numpy"] == np.__version__


def passing(x):
    """Touch twelve bytes an element that are gone before the function ends."""
    room = np.empty(12 * x.size, np.uint8)
    room[:: os.sysconf("SC_PAGE_SIZE")] = 1
    return x[:1]


@pytest.mark.slow
@linux
def test_a_peak_that_has_passed_is_told_to_half_of_what_a_processor_counts_before_it_hands_in():
    """Marks were short by what all processors had not handed in: 44 pages of 4 kB of two, in the mean."""
    sizes = [(40 + 3 * step, 41, 47) for step in range(12)]
    runs = child(passing)
    try:
        runs.measure((8, 8, 8))
        errors = [runs.measure(shape).host - 12 * np.prod(shape) for shape in sizes]
    finally:
        runs.close()
    assert abs(np.median(errors)) < runs.resolution / 4
    assert np.abs(errors).max() < 1.1 * runs.resolution


@pytest.mark.slow
@linux
@pytest.mark.parametrize(
    ("function", "bytes_each", "kept"),
    [
        (functions.pooled, 16, 0),
        (functions.leaking_in_place, 4, 4),
        pytest.param(functions.leaking, 4, 4, marks=pytest.mark.slow),
        pytest.param(functions.threaded, 4, 0, marks=pytest.mark.slow),
    ],
)
def test_what_a_sample_leaves_behind_hides_nothing_from_the_next(function, bytes_each, kept):
    """Shared by all samples, a pool took 4 kB for 16 MB; a thread that stays must not stop the forks."""
    runs = child(function)
    try:
        runs.measure((8, 8, 8))
        samples = [runs.measure((100, 100, 100)) for _ in range(2)]
    finally:
        runs.close()
    assert [sample.host for sample in samples] == pytest.approx([bytes_each * 10**6] * 2, rel=0.04)
    assert [sample.kept for sample in samples] == pytest.approx([kept * 10**6] * 2, abs=NOISE)


@pytest.mark.slow
@linux
def test_the_processes_of_a_function_are_counted_with_it():
    runs = child(functions.pool_of_processes)
    try:
        runs.measure((8, 8, 8))
        sample = runs.measure((200, 100, 100))
    finally:
        runs.close()
    # And what each of the two changes of the pages of Python itself.
    assert 2 * 16_000_000 - NOISE <= sample.children <= sample.host <= 2 * (16_000_000 + 12_000_000)


@pytest.mark.slow
@linux
def test_pages_that_a_program_borrows_until_it_starts_are_counted_once():
    """The child of a `vfork` has its parent's: 80 MB were 160."""
    runs = child(functions.by_programs)
    try:
        runs.measure((8, 8, 8))
        sample = runs.measure((100, 100, 100))
    finally:
        runs.close()
    assert sample.started and 80_000_000 - NOISE <= sample.host <= 100_000_000


@pytest.mark.slow
@linux
def test_a_function_that_leaves_processes_behind_is_measured_and_they_end_with_the_measuring():
    psutil = pytest.importorskip("psutil")
    runs = child(functions.with_a_pool_that_stays)
    try:
        runs.measure((8, 8, 8))
        sample = runs.measure((100, 100, 100))
        group = os.getpgid(runs._process.pid)
    finally:
        runs.close()
    assert sample.host >= 4_000_000 - NOISE
    left = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):  # it has ended meanwhile
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                left.append(process)
    assert not psutil.wait_procs(left, timeout=20)[1]  # they were told to


@linux
@pytest.mark.slow
def test_views_with_gaps_can_be_measured_too():
    runs = child(functions.raveled)
    try:
        runs.measure((8, 8, 8))
        dense, view = (runs.measure((100, 100, 100), views=views) for views in (False, True))
    finally:
        runs.close()
    assert (dense.host, view.host) == pytest.approx((4_000_000, 8_000_000), abs=NOISE)


def test_tracemalloc_is_labelled_a_lower_bound():
    gauge = host_gauge("traced")
    gauge.start()
    np.ones(10_000_000)  # so large that what threads of other tests allocate meanwhile is nothing beside it
    assert gauge.stop() == pytest.approx(80_000_000, rel=0.01)
    assert gauge.gauge_name == "tracemalloc" and not gauge.exact


NOTEBOOK = """
import os
import numpy as np

def zeros(x):
    print("a line that must not get into the answers")
    return helper(x)

def helper(x):
    return np.zeros(int(os.environ["MALLOC_MMAP_THRESHOLD_"]))
"""


def test_functions_of_modules_that_the_child_cannot_import_travel_whole_to_its_environment(monkeypatch):
    assert environment()["MALLOC_MMAP_THRESHOLD_"] == "65536"
    module = types.ModuleType("written_in_a_notebook")
    exec(NOTEBOOK, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    runs = child(module.zeros)
    assert runs.measure((8, 8, 8)).output_shape == (65536,)
    runs.close()


def test_a_process_that_is_killed_is_told_with_its_likely_reason():
    runs = child(ends_itself)
    with pytest.raises(FootprintError, match="want of memory"):
        runs.measure((8, 8, 8))
    runs.close()


def sleeps_on_more(x):
    import wave  # noqa: F401 - as libraries load on first use

    time.sleep(60 if x.size > 1000 else 0)


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_ended_and_what_was_learned_before_is_kept():
    runs = child(sleeps_on_more)
    runs.measure((8, 8, 8))
    with pytest.raises(TimeoutError, match="took more than"):
        runs.measure((20, 20, 20), timeout=0.2)
    assert runs.versions()["numpy"] == np.__version__
    runs.close()


@linux
def test_a_command_is_measured_whole():
    line = f"{sys.executable} -S -c 'x = bytearray({{0}} * {{1}} * 10**6)'"
    small, large = Command(line).measure((1, 20)), Command(line).measure((4, 20))
    assert large.host - small.host == pytest.approx(60_000_000, abs=NOISE)
    assert small.host > small.floor > 0


@pytest.mark.parametrize(
    ("line", "says"),
    [("./no-such-thing {0}", "no executable"), ("false {0}", "status 1"), ("true {7}", "fill lengths")],
)
def test_commands_that_fail_say_so(line, says):
    with pytest.raises(FootprintError, match=says):
        Command(line).measure((3,))


WATCHED = """
import numpy as np

from forebay.footprint import watch

with watch() as outer:
    first = np.ones(4_000_000)
    del first
    with watch() as inner:
        np.ones(1_000_000)
print(inner.bytes, outer.bytes, outer.exact)
"""


@linux
def test_watch_tells_the_peak_of_code_and_of_code_within():
    # By itself: threads that other tests have left behind would count too.
    run = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=True)
    inner, outer, exact = run.stdout.split()
    assert int(inner) == pytest.approx(8_000_000, abs=NOISE)
    assert int(outer) == pytest.approx(32_000_000, abs=NOISE) and exact == "True"


def test_gauges_that_do_not_exist_are_refused():
    with pytest.raises(FootprintError, match="resident, traced"):
        host_gauge("guess")
    assert device_gauge("numpy") is None


def test_the_torch_gauge_is_absent_without_a_gpu():
    torch = pytest.importorskip("torch")
    assert (device_gauge("torch") is None) == (not torch.cuda.is_available())
