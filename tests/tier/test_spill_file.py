"""The file of a disk tier: made ready, or closed and told."""

import errno
import os
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from forebay.errors import DiskError, PlanError
from forebay.tier.disk import Disk
from forebay.tier.files import SpillFile, allocate, open_unnamed
from forebay.tier.space import Extent
from forebay.tier.transfer import run_all


@pytest.mark.parametrize("broken", ["unlink", "pwrite", "ftruncate"])
def test_a_file_that_cannot_be_made_ready_is_closed_and_named(tmp_path, broken, monkeypatch):
    real = os.open

    def without_unnamed(path, flags, *about, **more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(path, flags, *about, **more)

    def refuse(*about, **more):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "open", without_unnamed)
    monkeypatch.setattr(os, broken, refuse)
    with pytest.raises(DiskError, match=r"cannot keep snapshots in .*Input/output error"):
        open_unnamed(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_error_that_is_no_want_of_unnamed_files_is_told(tmp_path, monkeypatch):
    def refuse(path, flags, *about, **more):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DiskError, match="Too many open files"):
        open_unnamed(tmp_path)


def test_a_file_that_was_closed_meanwhile_is_not_opened(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    file = SpillFile()
    file.close()
    file.open(tmp_path)
    assert file.fd == -1 and len(os.listdir("/proc/self/fd")) == before
    file.close()


@pytest.mark.parametrize(("code", "raised"), [(errno.EINVAL, False), (errno.EOPNOTSUPP, False), (errno.ENOSPC, True)])
def test_only_file_systems_that_cannot_allocate_are_let_off(code, raised, monkeypatch):
    asked = []

    def refuse(fd, offset, nbytes):
        asked.append((fd, offset, nbytes))
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    allocate(7, Extent(4096, 0))
    assert not asked
    with pytest.raises(OSError, match="No space") if raised else nullcontext():
        allocate(7, Extent(4096, 8192))
    assert asked == [(7, 4096, 8192)]


def test_what_comes_after_its_threads_have_ended_is_cancelled():
    pool, ended = ThreadPoolExecutor(1), []
    pool.shutdown()
    future = run_all(pool, [lambda: ended.append("run")] * 2, lambda error: ended.append(type(error)) or error)
    with pytest.raises(CancelledError, match="closed before this transfer had ended"):
        future.result()
    assert ended == [CancelledError]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes as POSIX has them")
def test_a_forked_child_has_no_disk_and_its_parent_keeps_it(tmp_path):
    with Disk(tmp_path, 8192) as disk:
        disk.write(3, bytearray(b"kept")).result()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                disk.read(3, bytearray(4))
            except PlanError as error:
                code = 0 if "closed" in str(error) and disk._file.fd == -1 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        out = bytearray(4)
        disk.read(3, out).result()
        assert out == b"kept"


def test_a_disk_that_is_abandoned_is_closed_and_knows_nothing(tmp_path):
    disk = Disk(tmp_path, 8192)
    disk.write(3, bytearray(b"kept")).result()
    pool, lock = disk._pool, disk._lock
    with lock:  # whoever had it when the child began
        disk.abandon()
    assert disk._file.fd == -1 and disk._lock is not lock and disk._pool is not pool
    with pytest.raises(PlanError, match="closed"):
        disk.read(3, bytearray(4))
    disk.close()
    pool.close()
