"""Spilled snapshots: nobody can swap, read or delete them, and no kill leaves a byte of them behind."""

import errno
import os
import stat
import threading
from contextlib import suppress
from time import perf_counter

import numpy as np
import pytest
from tests.faults import figures
from tests.spills import number_told, spills

from forebay.errors import DiskError
from forebay.tier.disk import Disk

RUNS = 100


@pytest.fixture(params=["unnamed", "unlinked"])
def file_system(request, monkeypatch):
    """A file system that has files without a name, and one on which they lose it at once."""
    if request.param == "unlinked":
        real = os.open

        def without_unnamed(path, flags, *args, **kwargs):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return real(path, flags, *args, **kwargs)

        monkeypatch.setattr(os, "open", without_unnamed)


@pytest.fixture
def victim(tmp_path):
    """A private directory with files of every name that a run might think its own."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    for name in ("lock", "probe", "0.snapshot", "thesis.tex"):
        (private / name).write_text("precious")
    return private


def swapping(act, undo):
    """Start a thread that does and undoes something until the event is set."""
    ended = threading.Event()

    def swap():
        while not ended.is_set():
            with suppress(FileNotFoundError):  # somebody removed what is swapped
                act()
                undo()

    thread = threading.Thread(target=swap)
    thread.start()
    return ended, thread


@pytest.mark.parametrize("mode", [0o1777, 0o777], ids=["sticky", "open"])
@pytest.mark.parametrize("what", ["an old run's directory", "the directory itself"])
def test_a_hundred_swaps_of_a_directory_for_a_link_delete_nothing(tmp_path, victim, file_system, mode, what):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    old_run, away = shared / "forebay-1-00000000", tmp_path / "away"
    target = shared if what == "the directory itself" else old_run

    def act():
        old_run.mkdir(exist_ok=True)
        (old_run / "lock").touch()
        target.rename(away)
        target.symlink_to(victim, target_is_directory=True)

    def undo():
        target.unlink()
        away.rename(target)

    ended, thread = swapping(act, undo)
    try:
        for _ in range(RUNS):
            with suppress(DiskError, FileNotFoundError), Disk(shared, 10_000) as disk:
                disk.write(0, np.ones(10, np.uint8)).result()
    finally:
        ended.set()
        thread.join()
    assert sorted(path.name for path in victim.iterdir()) == ["0.snapshot", "lock", "probe", "thesis.tex"]
    assert {path.read_text() for path in victim.iterdir()} == {"precious"}
    assert {path.name for path in shared.iterdir()} <= {old_run.name}


def test_the_file_is_its_owners_alone_and_has_no_name(tmp_path, file_system):
    before = os.umask(0)
    try:
        with Disk(tmp_path, 10_000) as disk:
            disk.write(0, np.ones(10, np.uint8)).result()
            (file,) = spills(tmp_path)
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert file.stat().st_nlink == 0 and not list(tmp_path.iterdir())
    finally:
        os.umask(before)


def test_a_thousand_snapshots_take_one_descriptor(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    with Disk(tmp_path, 10**7) as disk:
        for future in [disk.write(step, np.full(5, step % 256, np.uint8)) for step in range(1500)]:
            future.result()
        assert len(os.listdir("/proc/self/fd")) == before + 1


KILLED = """
import os, random, signal, sys, time
import numpy as np
import forebay as fb
from tests.spills import spills

directory, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
choose = random.Random(seed)


def forward(state, start, stop):
    return (state[0] + (stop - start),)


def run():
    budget, cost = fb.Budget(host=4 * 80_000, disk="8MB"), fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9))
    fb.reverse(forward, lambda state, step: None, (np.zeros(10_000),), 60, budget=budget, schedule="storeall",
               costs=cost, directory=directory)


run()  # what is loaded on first use is there
held = 0
for number in range(count):
    child = os.fork()
    while not child:
        run()
    for _ in range(5000):
        if spills(directory, child):
            break
        time.sleep(0.001)
    time.sleep(choose.uniform(0, 0.04))
    held += bool(spills(directory, child))
    os.kill(child, choose.choice([signal.SIGKILL, signal.SIGTERM]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (-9, -15)
    assert os.listdir(directory) == [], os.listdir(directory)
print(held)
"""


def test_no_kill_leaves_a_byte(tmp_path):
    assert number_told(KILLED, tmp_path, 1, 12) >= 4


@pytest.mark.slow
def test_no_kill_of_many_leaves_a_byte(tmp_path):
    begun = perf_counter()
    held = number_told(KILLED, tmp_path, 2, 200)
    counted = {"kills": 200, "with a file open": held, "wrong": 0}
    figures.record("faults", "reversals killed as they spill", counted, perf_counter() - begun)
    assert held >= 60
