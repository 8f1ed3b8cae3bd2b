"""The promises of the disk tier, and what it does when the disk, the process or the user fails."""

import errno
import fcntl
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.spills import bytes_on_disk, spills

from forebay.errors import BudgetError, CorruptionError, DiskError, DiskFullError, PlanError
from forebay.tasks import Workers
from forebay.tier import disk as disk_module
from forebay.tier import sectors
from forebay.tier.disk import CHUNK, Disk
from forebay.tier.sectors import SECTOR, whole_sectors

MB = 10**6
TIMEOUT = 120


def snapshot(size: int, seed: int = 0, *, shift: int = 0) -> NDArray[np.uint8]:
    """Random bytes; `shift` moves them off whatever alignment they had."""
    return np.random.default_rng(seed).integers(0, 256, size + shift, dtype=np.uint8)[shift:]


def fetch(disk: Disk, step: int, size: int) -> NDArray[np.uint8]:
    out = np.full(size, 0xAA, np.uint8)
    disk.read(step, out).result()
    return out


def nothing_in(directory: Path) -> bool:
    """Tell whether neither names nor open files are left."""
    return not list(directory.iterdir()) and not spills(directory)


@pytest.fixture(params=["direct", "buffered"])
def directory(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the disk as it is, and one on a file system that refuses O_DIRECT."""
    if request.param == "buffered":
        real = fcntl.fcntl

        def without_direct(fd: int, command: int, argument: int = 0) -> int:
            if command == fcntl.F_SETFL and argument & os.O_DIRECT:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return real(fd, command, argument)

        monkeypatch.setattr(fcntl, "fcntl", without_direct)
    return tmp_path


@pytest.fixture
def disk(directory: Path) -> Iterator[Disk]:
    with Disk(directory, 64 * MB) as disk:
        yield disk
    assert nothing_in(directory)


# Snapshots come back.


@pytest.mark.slow
@given(
    size=st.one_of(st.integers(0, 3 * SECTOR), st.sampled_from([CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 12345])),
    shift=st.sampled_from([0, 1, 8, 16]),
)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_snapshot_comes_back_as_it_was_whatever_its_size_and_alignment(disk: Disk, size: int, shift: int) -> None:
    data = snapshot(size, shift=shift)
    disk.write(5, data).result()
    assert np.array_equal(fetch(disk, 5, size), data)
    disk.drop(5)


@pytest.mark.parametrize("wrap", [bytearray, memoryview, lambda data: data.view(np.float32).reshape(-1, 4)])
def test_any_contiguous_buffer_will_do(disk: Disk, wrap: Any) -> None:
    data = snapshot(6 * SECTOR)
    disk.write(0, wrap(data)).result()
    out = bytearray(data.size)
    disk.read(0, out).result()
    assert out == data.tobytes()


def test_aligned_buffers_take_no_copy(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    space = np.empty(3 * SECTOR, np.uint8)
    start = -space.ctypes.data % SECTOR
    aligned = space[start : start + 2 * SECTOR]
    aligned[:] = snapshot(2 * SECTOR)
    before = aligned.copy()
    monkeypatch.setattr(sectors, "stage", None)
    disk.write(0, aligned).result()
    aligned[:] = 0
    disk.read(0, aligned).result()
    assert np.array_equal(aligned, before)


def test_what_is_still_being_moved_can_be_neither_read_nor_dropped(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    go, data = threading.Event(), snapshot(2 * SECTOR)
    out = np.empty_like(data)
    for name in ("write_chunk", "read_chunk"):
        real = getattr(disk_module, name)
        monkeypatch.setattr(disk_module, name, lambda *args, real=real: go.wait(TIMEOUT) and real(*args))
    written = disk.write(0, data)
    with pytest.raises(PlanError, match="still being written"):
        disk.read(0, out)
    with pytest.raises(PlanError, match="still being moved"):
        disk.drop(0)
    go.set()
    written.result()
    go.clear()
    read = disk.read(0, out)
    with pytest.raises(PlanError, match="still being moved"):
        disk.drop(0)
    go.set()
    read.result()
    disk.drop(0)
    assert np.array_equal(out, data) and disk.used == 0


def test_many_transfers_at_once_never_mix_snapshots(disk: Disk) -> None:
    choose = random.Random(1)
    steps: dict[int, NDArray[np.uint8]] = {}
    for first in range(0, 200, 10):
        new = range(first, first + 10)
        for step in new:
            data = snapshot(choose.choice([0, 1, 5000, 100_000, CHUNK + 1]), step, shift=choose.choice([0, 3]))
            while sum(kept.size + SECTOR for kept in steps.values()) + data.size + SECTOR > disk.capacity // 2:
                oldest = next(step for step in steps if step < first)
                disk.drop(oldest)
                del steps[oldest]
            steps[step] = data
        asked = [step for step in steps if step < first and choose.random() < 0.7]
        outs = {step: np.empty_like(steps[step]) for step in asked}
        for future in [
            *(disk.write(step, steps[step]) for step in new),
            *(disk.read(step, out) for step, out in outs.items()),
        ]:
            future.result()
        assert all(np.array_equal(out, steps[step]) for step, out in outs.items())
        for step in asked:
            if choose.random() < 0.3:
                disk.drop(step)
                del steps[step]
    assert bytes_on_disk(disk.directory) <= disk.capacity


@pytest.mark.parametrize("size", [3, 5])
def test_a_buffer_of_another_size_is_refused(disk: Disk, size: int) -> None:
    disk.write(0, snapshot(4)).result()
    with pytest.raises(PlanError, match="step 0 has 4 bytes"):
        disk.read(0, np.empty(size, np.uint8))


def test_a_read_only_buffer_is_refused(disk: Disk) -> None:
    disk.write(0, snapshot(4)).result()
    with pytest.raises(PlanError, match="writable"):
        disk.read(0, memoryview(b"1234"))


def test_what_is_not_there_cannot_be_read_or_dropped_and_what_is_cannot_be_written(disk: Disk) -> None:
    with pytest.raises(PlanError, match="not on the disk"):
        disk.read(3, np.empty(1, np.uint8))
    with pytest.raises(PlanError, match="not on the disk"):
        disk.drop(3)
    disk.write(3, snapshot(1))
    with pytest.raises(PlanError, match="drop it before"):
        disk.write(3, snapshot(1))


# Room.


@given(sizes=st.lists(st.integers(0, 5 * SECTOR), max_size=12))
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_snapshot_takes_its_size_rounded_up_to_a_block_and_nothing_else(tmp_path: Path, sizes: list[int]) -> None:
    with Disk(tmp_path, MB) as disk:
        for future in [disk.write(step, snapshot(size)) for step, size in enumerate(sizes)]:
            future.result()
        assert disk.used == bytes_on_disk(tmp_path) == sum(-(-size // SECTOR) * SECTOR for size in sizes)


def test_a_write_above_the_capacity_is_refused_at_once_and_says_what_would_do(tmp_path: Path) -> None:
    with Disk(tmp_path, 3 * SECTOR) as disk:
        disk.write(0, snapshot(2 * SECTOR)).result()
        with pytest.raises(BudgetError, match=f"at least {4 * SECTOR} bytes"):
            disk.write(1, snapshot(SECTOR + 1))
        disk.drop(0)
        disk.write(1, snapshot(SECTOR + 1)).result()
        assert disk.used == 2 * SECTOR


def test_dropped_files_are_written_over_and_never_make_the_disk_fuller_than_snapshots_did(tmp_path: Path) -> None:
    choose = random.Random(2)
    most = 0
    with Disk(tmp_path, 64 * SECTOR) as disk:
        for _ in range(40):
            sizes = [choose.randrange(8 * SECTOR) for _ in range(choose.randrange(8))]
            for future in [disk.write(step, snapshot(size, step)) for step, size in enumerate(sizes)]:
                future.result()
            most = max(most, disk.used)
            assert disk.used <= bytes_on_disk(tmp_path) == most
            assert all(np.array_equal(fetch(disk, step, size), snapshot(size, step)) for step, size in enumerate(sizes))
            for step in range(len(sizes)):
                disk.drop(step)
            assert disk.used == 0


# Some things can only be seen from another process.


PRELUDE = """
import os, resource, sys, threading, time
import numpy as np
from forebay.errors import DiskFullError
from forebay.tier import disk as disk_module
from forebay.tier.disk import Disk

directory = sys.argv[1]
data = np.arange(10**6, dtype=np.uint8)
out = np.empty_like(data)
"""


def child(script: str, directory: Path) -> "subprocess.Popen[str]":
    """Run a script in another process."""
    program = PRELUDE + textwrap.dedent(script)
    command = [sys.executable, "-c", program, str(directory)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for(process: "subprocess.Popen[str]", word: str) -> None:
    assert process.stdout and process.stdout.readline().strip() == word


# Disks that fail.


@pytest.mark.parametrize("size", [100, CHUNK + 100])
def test_one_changed_byte_is_noticed(disk: Disk, size: int) -> None:
    disk.write(7, snapshot(size)).result()
    (file,) = spills(disk.directory)
    with file.open("r+b") as opened:
        opened.seek(size - 1)
        byte = opened.read(1)
        opened.seek(size - 1)
        opened.write(bytes([byte[0] ^ 1]))
    with pytest.raises(CorruptionError, match=f"step 7 in {disk.directory}.*run again"):
        fetch(disk, 7, size)


def test_a_truncated_file_is_noticed(disk: Disk) -> None:
    disk.write(7, snapshot(5 * SECTOR)).result()
    (file,) = spills(disk.directory)
    os.truncate(file, 4 * SECTOR)
    with pytest.raises(CorruptionError, match=f"byte 0 to {5 * SECTOR}"):
        fetch(disk, 7, 5 * SECTOR)


def test_nobody_can_take_the_file_away(disk: Disk) -> None:
    disk.write(7, snapshot(10)).result()
    assert list(disk.directory.iterdir()) == [], "it has no name"
    assert np.array_equal(fetch(disk, 7, 10), snapshot(10))


def assert_a_failed_write_harms_nothing_else(disk: Disk, error: type[Exception], match: str) -> None:
    """Step 0 is written; step 1 cannot be."""
    with pytest.raises(error, match=match):
        disk.write(1, snapshot(3 * MB, 1)).result()
    with pytest.raises((error, PlanError), match=f"{match}|not on the disk"):
        fetch(disk, 1, 3 * MB)
    with suppress(PlanError):
        disk.drop(1)
    assert disk.used == whole_sectors(MB)
    assert np.array_equal(fetch(disk, 0, MB), snapshot(MB))


@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite"])
def test_a_full_disk_is_said_and_harms_nothing_else(disk: Disk, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.write(0, snapshot(MB)).result()

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        assert_a_failed_write_harms_nothing_else(disk, DiskFullError, "step 1.*free some room.*are whole")
    disk.write(1, snapshot(3 * MB)).result()


def test_the_limit_of_the_system_on_files_is_a_full_disk_too(tmp_path: Path) -> None:
    script = """
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * 10**6, 2 * 10**6))
        with Disk(directory, 10**7) as disk:
            disk.write(0, data).result()
            try:
                disk.write(1, np.tile(data, 3)).result()
            except DiskFullError as error:
                assert "File too large" in str(error)
            else:
                raise AssertionError("written above the limit")
            disk.read(0, out).result()
            assert np.array_equal(out, data)
    """
    assert child(script, tmp_path).wait(TIMEOUT) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        with Disk(tmp_path, 5 * MB) as disk:
            disk.write(0, snapshot(MB)).result()
            (tmp_path / "another program").write_bytes(bytes(3 * MB))
            assert_a_failed_write_harms_nothing_else(disk, DiskFullError, "No space left")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_whatever_else_goes_wrong_in_a_thread_comes_out_of_the_future(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write(0, snapshot(MB)).result()

    def broken(*args: Any) -> int:
        raise RuntimeError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", broken)
        assert_a_failed_write_harms_nothing_else(disk, RuntimeError, "boom")


# Directories that cannot be used.


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="create it"):
        Disk(tmp_path / "missing", MB)


def test_a_directory_that_cannot_be_written() -> None:
    with pytest.raises(DiskError, match=r"choose a directory .* in which you may create files"):
        Disk("/proc", 0)


def test_a_capacity_above_what_is_free(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match=r"at most \d+ bytes"):
        Disk(tmp_path, 10**18)
    assert list(tmp_path.iterdir()) == []


# The end, in every way it may come.


def test_close_removes_everything_and_may_be_called_again(directory: Path) -> None:
    disk = Disk(directory, MB)
    disk.write(0, snapshot(1000)).result()
    disk.close()
    disk.close()
    assert nothing_in(directory) and disk.used == 0
    with pytest.raises(PlanError, match="closed"):
        disk.write(1, snapshot(1))
    with pytest.raises(PlanError, match="closed"):
        disk.read(0, np.empty(1000, np.uint8))


def test_close_ends_every_transfer_one_way_or_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "THREADS", 1)
    data = snapshot(5 * MB)
    with Disk(tmp_path, 60 * MB) as disk:
        disk.write(10, data).result()
        monkeypatch.setattr(disk_module, "write_chunk", lambda *args: time.sleep(0.05))
        futures = [disk.write(step, data) for step in range(10)]
        futures += [disk.read(10, np.empty_like(data))]
    assert all(future.done() for future in futures)
    assert {type(future.exception()) for future in futures} <= {type(None), CancelledError}
    assert futures[-1].exception() and nothing_in(tmp_path)


def test_a_disk_that_is_forgotten_is_removed(tmp_path: Path) -> None:
    disk = Disk(tmp_path, MB)
    disk.write(0, snapshot(1000)).result()
    del disk
    deadline = time.monotonic() + TIMEOUT
    while spills(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread may hold on to it for a moment after the result
    assert nothing_in(tmp_path)


def test_a_disk_never_closed_is_removed_at_exit_and_a_forked_child_does_not_touch_it(tmp_path: Path) -> None:
    script = """
        disk = Disk(directory, 10**7)
        disk.write(0, data).result()
        if os.fork() == 0:
            sys.exit()
        os.wait()
        disk.read(0, out).result()
        assert np.array_equal(out, data)
        disk.write(1, np.tile(data, 5))
    """
    assert child(script, tmp_path).wait(TIMEOUT) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_leaves_nothing_and_harms_no_live_one(tmp_path: Path) -> None:
    script = """
        disk = Disk(directory, 10**7)
        disk.write(0, data).result()
        print("written", flush=True)
        sys.stdin.readline()
        disk.read(0, out).result()
        assert np.array_equal(out, data)
    """
    killed, live = child(script, tmp_path), child(script, tmp_path)
    for process in killed, live:
        wait_for(process, "written")
        assert bytes_on_disk(tmp_path, process.pid) >= MB
    killed.kill()
    killed.wait(TIMEOUT)
    assert list(tmp_path.iterdir()) == []
    assert live.communicate("go\n", TIMEOUT) and live.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_who_is_interrupted_as_it_is_made_leaves_no_file_open(tmp_path, monkeypatch):
    submit = Workers.submit

    def interrupted(workers, *what):
        submit(workers, *what).result()
        raise KeyboardInterrupt

    monkeypatch.setattr(Workers, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt) as held:  # its frames hold the disk
        Disk(tmp_path, MB)
    assert nothing_in(tmp_path) and held.traceback


@pytest.mark.parametrize("moment", ["waiting for a transfer", "closing"])
def test_ctrl_c_leaves_no_files_and_no_threads(tmp_path: Path, moment: str) -> None:
    script = f"""
        begun, slowly = threading.Event(), 2.0 if {moment == "closing"} else 0.3
        disk_module.write_chunk = lambda *args: (begun.set(), time.sleep(slowly))
        disk_module.THREADS = 2
        try:
            with Disk(directory, 10**8) as disk:
                futures = [disk.write(step, np.tile(data, 6)) for step in range(9)]
                if {moment == "closing"}:
                    begun.wait()  # closing waits for what has begun, and for nothing else
                    threading.Timer(0.1, print, ["ready"], dict(flush=True)).start()
                else:
                    print("ready", flush=True)
                    futures[-1].result()
        except KeyboardInterrupt:
            assert not [thread for thread in threading.enumerate() if "disk" in thread.name]
            assert all(future.done() for future in futures)
            print("interrupted", flush=True)
    """
    process = child(script, tmp_path)
    wait_for(process, "ready")
    process.send_signal(signal.SIGINT)
    wait_for(process, "interrupted")
    assert process.wait(TIMEOUT) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_is_named_with_what_failed_first(disk, monkeypatch):
    def failing(number):
        def fail(*about):
            raise OSError(number, os.strerror(number))

        return fail

    monkeypatch.setattr("forebay.tier.disk.write_chunk", failing(errno.EIO))
    monkeypatch.setattr(os, "fdatasync", failing(errno.ENOSPC))
    with pytest.raises(DiskError, match=r"failed at step 3 \(Input/output error\): look at it"):
        disk.write(3, bytes(4096)).result()
