import errno
import fcntl
import mmap
import os
from dataclasses import fields
from types import SimpleNamespace

import pytest

from forebay.cuda.available import gpu_count, why_not
from forebay.tier import links
from forebay.tier.links import Links, measure_links

OF_A_DEVICE = {field.name for field in fields(Links)} - {"host_copy", "disk_write", "disk_read", "disk_method"}


def test_what_is_absent_is_none(monkeypatch):
    monkeypatch.setattr(links, "gpu_count", lambda: 0)
    found = measure_links(nbytes="1MB")
    assert found == Links(host_copy=found.host_copy)
    assert found.host_copy > 0


def test_a_disk_is_measured_and_left_as_it_was(tmp_path):
    found = measure_links(tmp_path, nbytes="8MiB")
    assert found.disk_write > 0 and found.disk_read > 0
    assert found.disk_method in (links._DIRECT, links._FLUSHED)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_direct_access_is_flushed_instead(tmp_path, monkeypatch):
    called = fcntl.fcntl

    def refuse(file, command, flags=0):
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct access here")
        return called(file, command, flags)

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    found = measure_links(tmp_path, nbytes="8MiB")
    assert found.disk_write > 0 and found.disk_read > 0
    assert found.disk_method == links._FLUSHED
    assert list(tmp_path.iterdir()) == []


def test_another_error_of_the_disk_is_not_hidden(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(OSError, match="no space left"):
        measure_links(tmp_path, nbytes="8MiB")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "disk_capacity", lambda _directory: SimpleNamespace(free=1000))
    found = measure_links(tmp_path, nbytes="8MiB")
    assert (found.disk_write, found.disk_read) == (None, None)
    assert found.disk_method.startswith("not measured")


def test_the_median_is_taken_of_several_repetitions():
    times = iter([(5.0, 1.0), (1.0, 1.0), (9.0, 3.0), (2.0, 1.0), (8.0, 1.0)])
    assert links._medians(lambda: next(times)) == (5.0, 1.0)


def test_a_slow_link_is_not_repeated(monkeypatch):
    monkeypatch.setattr(links, "ENOUGH_SECONDS", 0)
    times = iter([(5.0,)])
    assert links._medians(lambda: next(times)) == (5.0,)


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason=why_not())
def test_links_of_a_device():
    found = measure_links(nbytes="64MB", step=lambda: 1e-3)
    assert all(getattr(found, name) > 0 for name in OF_A_DEVICE)


@pytest.mark.parametrize(("free", "measured"), [(2 * 4096, True), (2 * 4096 - 1, False)])
def test_a_disk_is_measured_where_twice_the_bytes_are_free(free, measured, tmp_path, monkeypatch):
    monkeypatch.setattr(links, "disk_capacity", lambda _directory: SimpleNamespace(free=free))
    assert (measure_links(tmp_path, nbytes=4096).disk_write is not None) is measured


def test_bytes_a_second_are_those_of_the_median_after_a_repetition_to_warm_up(monkeypatch):
    times = iter([100.0, 1.0, 2.0, 4.0, 8.0, 3.0])  # 4 is the median of the first five
    monkeypatch.setattr(links, "perf_counter", lambda: 0.0)
    assert links.speed(3000, lambda: next(times)) == 1000
    assert links.speed(1000, lambda: 0.0) == 1000 / 1e-9


def test_all_bytes_are_written_and_read_whatever_one_call_takes(tmp_path, monkeypatch):
    moved, size = {"writev": 0, "readv": 0}, 3 * 4096

    def short(name):
        def move(file, buffers):
            moved[name] += 4096
            return 4096

        return move

    for name in moved:
        monkeypatch.setattr(os, name, short(name))
    assert measure_links(tmp_path, nbytes=size).disk_write > 0
    assert moved["writev"] == moved["readv"] > 0 and moved["writev"] % size == 0


def test_each_way_is_timed_from_its_start_to_its_end(tmp_path, monkeypatch):
    clock = iter([10.0, 12.0, 20.0, 25.0])
    monkeypatch.setattr(links, "perf_counter", lambda: next(clock))
    with open(tmp_path / "file", "w+b") as file:
        assert links._write_and_read(file.fileno(), 4096, mmap.mmap(-1, 4096)) == (2.0, 5.0)
