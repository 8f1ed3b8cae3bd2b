"""What makes a job another one, and what may change between two runs of it; seals over files of any length."""

import os

import numpy as np
import pytest
from tests.wave.job.jobs import job_text
from xxhash import xxh3_128_hexdigest

from forebay.wave.job.job import parse
from forebay.wave.job.workspace import seal
from forebay.wave.job.workspace.description import differences, frozen

EXACT, LOSSY = {"memory": None, "imaging": ""}, {"memory": 'codec = "bounded:1e-4"'}


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (EXACT, {"run": "retries = 7\nworkers = 2"}, []),
        (EXACT, {"output": 'directory = "elsewhere"\nformats = ["png"]'}, []),
        (EXACT, {"memory": 'directory = "fast"'}, []),
        (EXACT, {"memory": 'host = "9MB"\ndisk = "1GB"\ndevice = "3MB"'}, []),
        (EXACT, {"imaging": "include_outliers = true"}, []),
        (EXACT, {"memory": 'schedule = "revolve:3"'}, ["memory.schedule"]),
        (EXACT, LOSSY, ["memory.codec"]),
        (LOSSY, {"memory": 'codec = "bounded:1e-4"\nhost = "9MB"'}, ["memory.host"]),
        (LOSSY, {"memory": 'codec = "bounded:1e-4"\ndirectory = "fast"'}, []),
        (EXACT, {"imaging": "every = 3"}, ["imaging.every"]),
        (EXACT, {"imaging": "aperture = 300.0\nmute = 9.0"}, ["imaging.aperture", "imaging.mute"]),
        (EXACT, {"physics": "absorb = 11"}, ["physics.absorb"]),
        (EXACT, {"data": "dt = 0.008\nlength = 1.1"}, ["data.length"]),
        (EXACT, {"geometry": "shots = 3"}, None),
    ],
)
def test_what_decides_the_image_of_a_shot_makes_another_job(before, after, names, tmp_path):
    one, other = (frozen(parse(job_text(**tables), tmp_path)) for tables in (before, {**before, **after}))
    found = differences(one, other)
    assert found == names if names is not None else any(name.startswith("geometry.shots") for name in found)


@pytest.mark.parametrize("folder", [False, True])
def test_a_file_of_the_same_size_and_another_date_makes_another_job(folder, tmp_path):
    file = tmp_path / "v.npy"
    if folder:
        (tmp_path / "v.npy").mkdir()
        file = tmp_path / "v.npy" / "chunk"
    np.save(file.open("wb"), np.full((48, 96), 2000, np.float32))
    job = parse(job_text(model='velocity = "v.npy"\nspacing = 50.0'), tmp_path)
    before, told = frozen(job), file.stat()
    assert frozen(job) == before and before["files"][str(tmp_path / "v.npy")][0] == told.st_size
    os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns + 1))
    assert differences(before, frozen(job)) == [f"files.{tmp_path / 'v.npy'}"]
    os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert frozen(job) == before
    file.write_bytes(file.read_bytes() + b"x")
    os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert differences(before, frozen(job)) == [f"files.{tmp_path / 'v.npy'}"]


def test_only_tables_are_looked_into_for_differences():
    assert differences({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 3}, "e": 4}) == ["a.c", "d", "e"]
    assert differences({"a": {"b": 1}}, {"a": 1}) == differences({"a": 1}, {"a": {"b": 1}}) == ["a"]
    assert differences({"a": [1]}, {"a": [1]}) == []


@pytest.mark.parametrize("chunk", [7, 16, 31, 32, 33, 64, 2**24])
def test_zeros_stand_for_the_checksum_wherever_files_are_cut(chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(seal, "CHUNK", chunk)
    data, path = bytes(range(1, 151)), tmp_path / "file"
    path.write_bytes(data)
    assert seal.checksum_of_file(path) == xxh3_128_hexdigest(data)
    for hole in (0, 1, 30, 31, 32, 33, 64, 100, 118):
        blank = data[:hole] + seal.BLANK + data[hole + len(seal.BLANK) :]
        assert seal.checksum_of_file(path, hole) == xxh3_128_hexdigest(blank)
