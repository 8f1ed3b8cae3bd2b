"""What makes a job another one, and what may change between two runs of it; seals over files of any length."""

import os

import pytest
from tests.wave.job.jobs import job_text
from xxhash import xxh3_128_hexdigest

from forebay.wave.files import seal
from forebay.wave.job.job import parse
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
        (EXACT, {"memory": 'host = "9MB"\ncheckpoint = true'}, []),
        (
            {"memory": 'codec = "bounded:1e-4"\nhost = "9MB"'},
            {"memory": 'codec = "bounded:1e-4"\nhost = "9MB"\ncheckpoint = true'},
            ["memory.checkpoint"],
        ),
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
def test_what_is_in_a_file_makes_another_job_not_its_date_nor_its_place(folder, tmp_path):
    name, inside = ("v.zarr", "v.zarr/chunk") if folder else ("v.npy", "v.npy")
    for place in ("here", "there"):
        (tmp_path / place / inside).parent.mkdir(parents=True)
        (tmp_path / place / inside).write_bytes(b"velocities")
    os.utime(tmp_path / "there" / inside, ns=(1, 1))
    here, there = (
        parse(job_text(model=f'velocity = "{name}"\nspacing = 50.0'), tmp_path / place) for place in ("here", "there")
    )
    before = frozen(here)
    assert frozen(there) == before
    (tmp_path / "there" / inside).write_bytes(b"Velocities")
    os.utime(tmp_path / "there" / inside, ns=(1, 1))
    assert differences(before, frozen(there)) == ["model.velocity"]
    if folder:
        (tmp_path / "here" / inside).rename(tmp_path / "here" / name / "other")
        assert differences(before, frozen(here)) == ["model.velocity"]


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
