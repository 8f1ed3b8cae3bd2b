"""Where files go: never into memory uncounted, and never on the word of a lock that other computers do not see."""

import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import forebay as fb
from forebay import filesystems, locks
from forebay.errors import BudgetError, DiskError
from forebay.filesystems import file_system_of, in_memory, keeps_locks, spill_directory
from forebay.locks import DirectoryLock
from forebay.tier import capacity
from forebay.tier.capacity import Capacity
from forebay.tier.disk import Disk

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / {home}/memory rw shared:2 - tmpfs tmpfs rw
24 22 0:22 / {home}/memory/disk rw - xfs /dev/vdb rw
25 22 0:23 / {home}/with\\040blank rw - nfs4 server:/export rw
26 22 0:24 / {home}/lustre rw master:1 - lustre 10.0.0.1@tcp:/fs rw
27 22 0:25 / {home}/twice rw - ext4 /dev/vdc rw
28 22 0:26 / {home}/twice rw - ramfs none rw
damaged
"""


@pytest.fixture
def mounts(tmp_path):
    """A table of mounts, and the directories that it names."""
    for name in ("memory/disk", "memory/inside", "with blank", "lustre", "twice", "home"):
        (tmp_path / name).mkdir(parents=True)
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS.format(home=tmp_path))
    return table


@pytest.mark.parametrize(
    ("name", "kind", "memory", "trusted"),
    [
        ("home", "ext4", False, True),
        ("memory", "tmpfs", True, True),
        ("memory/inside", "tmpfs", True, True),
        ("memory/disk", "xfs", False, True),
        ("with blank", "nfs4", False, False),
        ("lustre", "lustre", False, False),
        ("twice", "ramfs", True, True),
    ],
)
def test_file_systems_are_known_by_where_they_are_mounted(mounts, tmp_path, name, kind, memory, trusted):
    place = tmp_path / name
    assert (file_system_of(place, mounts), in_memory(place, mounts), keeps_locks(place, mounts)) == (
        kind,
        memory,
        trusted,
    )


def test_where_nobody_tells_nothing_is_taken_for_memory(tmp_path):
    assert file_system_of(tmp_path, tmp_path / "none") is None
    assert not in_memory(tmp_path, tmp_path / "none") and keeps_locks(tmp_path, tmp_path / "none")


def test_snapshots_are_not_spilled_into_memory_unless_there_is_nothing_else(mounts, tmp_path, monkeypatch):
    for place, first in (("home", "home"), ("memory", "/var/tmp")):
        monkeypatch.setattr(filesystems.tempfile, "gettempdir", lambda place=place: str(tmp_path / place))
        assert spill_directory(mounts) == tmp_path / first
    everything = tmp_path / "all"
    everything.write_text("22 1 254:0 / / rw - tmpfs none rw\n")
    assert spill_directory(everything) == tmp_path / "memory"


@pytest.mark.skipif(not in_memory(Path("/dev/shm")), reason="no memory that is a directory here")
def test_what_is_spilled_into_memory_counts_as_memory(monkeypatch):
    monkeypatch.setattr(capacity, "host_capacity", lambda: Capacity(10**9, 600_000))

    def reverse(schedule, disk):
        return fb.reverse(
            lambda state, start, stop: (state[0] + stop - start,),
            lambda state, step: None,
            (np.zeros(10_000),),
            10,
            budget=fb.Budget(host=2 * 82_000, disk=disk),
            schedule=schedule,
            costs=fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9)),
            directory="/dev/shm",
        )

    assert reverse("revolve:3", 83_000).plan.tiers == ("host", "disk")
    with pytest.raises(BudgetError, match=r"in /dev/shm, which is no disk but memory \(tmpfs\): .*another directory"):
        reverse("storeall", 900_000)


@pytest.mark.skipif(not in_memory(Path("/dev/shm")), reason="no memory that is a directory here")
def test_of_memory_that_is_a_directory_all_that_is_free_may_be_taken(monkeypatch):
    monkeypatch.setattr(capacity, "host_capacity", lambda: Capacity(10**9, 600_000))
    with Disk("/dev/shm", 600_000):
        pass
    with pytest.raises(BudgetError, match="at most 600000 bytes"):
        Disk("/dev/shm", 600_001)


def shared(directory):
    """Trust nothing, as on a disk that several computers share."""
    return False


@pytest.mark.parametrize("trusted", [keeps_locks, shared])
def test_a_lock_is_held_by_one_and_free_after_it(tmp_path, trusted):
    path = tmp_path / "lock"
    with closing(DirectoryLock(path, trusted)), pytest.raises(DiskError, match="another run works in"):
        DirectoryLock(path, trusted)
    with closing(DirectoryLock(path, trusted)):
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    assert not path.with_name("lock.owner").exists()


def test_without_locks_of_the_kernel_the_owner_is_told_by_a_file(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*about):
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    path = tmp_path / "lock"
    with pytest.raises(DiskError, match="has no file locks"):
        DirectoryLock(path, keeps_locks)
    with closing(DirectoryLock(path, shared)), pytest.raises(DiskError, match=f"process {os.getpid()}"):
        DirectoryLock(path, shared)


def test_an_owner_that_is_dead_here_is_replaced_and_one_elsewhere_is_named(tmp_path):
    path, owner = tmp_path / "lock", tmp_path / "lock.owner"
    us = locks.this_process()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for dead in (replace(us, process=ended.pid), replace(us, started="1"), replace(us, boot="before")):
        owner.write_text(json.dumps(asdict(dead)))
        DirectoryLock(path, shared).close()
    for elsewhere in (replace(us, host="node7"), replace(us, numbered="pid:[1]")):
        owner.write_text(json.dumps(asdict(elsewhere)))
        with pytest.raises(DiskError, match=f"of {elsewhere.host} works in .*: see on .* remove {owner}"):
            DirectoryLock(path, shared)
    for damage in ("", "{", "[]", '{"host": 1}'):
        owner.write_text(damage)
        with pytest.raises(DiskError, match=r"is damaged, .* remove it if nobody does"):
            DirectoryLock(path, shared)


def test_who_dies_while_it_writes_down_its_name_leaves_no_owner(tmp_path, monkeypatch):
    def killed(*about, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr(locks, "open", killed, raising=False)
    with pytest.raises(KeyboardInterrupt):
        locks._own(tmp_path / "lock.owner")
    assert not (tmp_path / "lock.owner").exists()


def test_on_a_disk_without_links_the_owner_is_told_all_the_same(tmp_path, monkeypatch):
    def no_links(*about):
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(os, "link", no_links)
    with closing(DirectoryLock(tmp_path / "lock", shared)):
        assert {entry.name for entry in tmp_path.iterdir()} == {"lock", "lock.owner"}
        with pytest.raises(DiskError, match=r"another run works in"):
            DirectoryLock(tmp_path / "lock", shared)


@pytest.mark.skipif(os.name == "nt", reason="no locks there")
def test_a_lock_that_cannot_be_opened_is_told_with_what_to_do(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    (tmp_path / "folder").mkdir()
    for name, why in (("link", "it is a link"), ("folder", "Is a directory"), ("none/lock", "No such file")):
        with pytest.raises(DiskError, match=rf"{name} cannot be locked \({why}.*name another directory"):
            DirectoryLock(tmp_path / name)
    assert not (tmp_path / "theirs").exists()


def test_a_forked_child_does_not_keep_its_parents_lock(tmp_path):
    script = """
import os, signal, sys
from pathlib import Path
from forebay.locks import DirectoryLock
held = DirectoryLock(Path(sys.argv[1]))
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
signal.pause()
"""
    command = [sys.executable, "-c", script, str(tmp_path / "lock")]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout.readline() == "forked\n"
        with pytest.raises(DiskError, match="another run works in"):
            DirectoryLock(tmp_path / "lock")
        parent.kill()
        parent.wait(60)
        DirectoryLock(tmp_path / "lock").close()
