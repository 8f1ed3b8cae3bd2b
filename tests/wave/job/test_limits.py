"""What each key of a job may be, to the last value, and what is taken where nothing is said."""

import errno
import os
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.wave.job.jobs import job_text

from forebay.errors import BudgetError, DiskError, DiskFullError, WaveError
from forebay.tier import capacity
from forebay.wave.job.checks import checked_inputs
from forebay.wave.job.job import parse
from forebay.wave.job.prepare import prepare
from forebay.wave.job.workspace.told import ToldJob, ToldShot, ToldTimeline

POSITIVE = [5e-324, 0.5, 999999999999.9], [-0.5, 0, 1e12, float("inf"), float("nan")]
DEPTH = [0, 0.5, 999999999999.9], [-5e-324, 1e12, float("inf")]
FILE, BUILTIN = 'velocity = "v.npy"', 'name = "layers"'
SPREAD, DATA = "shots = 2", "dt = 0.008\nlength = 1.0"

LIMITS = [
    ("model", BUILTIN, "seed", [0, 2**63 - 1], [-1, 2**63]),
    ("model", BUILTIN, "dims", [2, 3], [1, 4]),
    ("model", BUILTIN, "shape", [[2, 10**6], [2, 2, 2]], [[1, 2], [2, 10**6 + 1]]),
    ("model", BUILTIN, "smooth", *DEPTH),
    ("model", FILE, "spacing", *POSITIVE),
    ("model", FILE, "spacing", [[0.5, 0.5], [0.5]], [[0.5, 0]]),
    ("model", FILE, "origin", [[-999999999999.9, 0.0, 999999999999.9]], [[-1e12], [1e12], 0.0]),
    ("geometry", "", "shots", [1, 10**6, [1, 10**6]], [0, 10**6 + 1, [1, 0]]),
    ("geometry", SPREAD, "source_depth", *DEPTH),
    ("geometry", SPREAD, "receiver_depth", *DEPTH),
    ("geometry", SPREAD, "receiver_spacing", *POSITIVE),
    ("geometry", SPREAD, "max_offset", *POSITIVE),
    ("data", "length = 1.0", "dt", *POSITIVE),
    ("data", "dt = 0.008", "length", *POSITIVE),
    ("data", DATA, "mute_velocity", *POSITIVE),
    ("data", DATA + "\nmute_velocity = 1500.0", "mute_delay", *DEPTH),
    ("wavelet", "", "frequency", *POSITIVE),
    ("wavelet", "frequency = 2.5", "delay", *DEPTH),
    ("wavelet", 'file = "w.npy"', "dt", *POSITIVE),
    ("physics", "", "order", [2, 4, 64], [0, 1, 3, 63, 65, 66]),
    ("physics", "", "absorb", [0, 10**4], [-1, 10**4 + 1]),
    ("physics", "", "dt", *POSITIVE),
    ("imaging", "", "every", [1, 10**9], [0, 10**9 + 1]),
    ("imaging", "", "aperture", *DEPTH),
    ("imaging", "", "mute", *DEPTH),
    ("run", "", "workers", [0, 10**4], [-1, 10**4 + 1]),
    ("run", "", "retries", [0, 1000], [-1, 1001]),
    ("memory", "", "host", [0, 1, "8GB"], ["8XB", -1]),
    (
        "memory",
        "",
        "schedule",
        ["AUTO", " zcut ", "uniform:25", "zcut:2000"],
        ["zcut:", "never", "revolve:0", "zcut:1999"],
    ),
    ("run", "", "scheduler", ["tcp://here:8786"], ["here"]),
]


@pytest.mark.parametrize(("table", "beside", "key", "good", "bad"), LIMITS, ids=lambda value: str(value)[:20])
def test_a_key_is_taken_up_to_its_limits_and_named_beyond(table, beside, key, good, bad):
    def read(value):
        told = f'"{value}"' if isinstance(value, str) else value
        return parse(job_text(**{table: f"{beside}\n{key} = {told}"}))

    for value in good:
        assert getattr(getattr(read(value), table), key) is not None
    for value in bad:
        with pytest.raises(WaveError, match=rf"{table}\.{key}.*: expected"):
            read(value)


def test_what_is_taken_where_a_job_says_nothing():
    job = parse(
        '[model]\nname = "salt"\n[geometry]\nshots = 3\n[data]\ndt = 0.004\nlength = 2\n[wavelet]\nfrequency = 9'
    )
    said = {"model": {"name": "salt"}, "geometry": {"shots": (3,)}, "data": {"dt": 0.004, "length": 2.0}}
    said |= {"wavelet": {"frequency": 9.0}}
    said["model"] |= {"smooth": 0.0}
    said["physics"] = {"kind": "acoustic", "order": 8, "free_surface": False, "sends": "explosion", "hears": "pressure"}
    said["imaging"] = {"image": "pp", "zero_phase": False, "mute": 0.0, "include_outliers": False}
    said["memory"] = {"schedule": "auto", "checkpoint": False}
    said["run"] = {"device": "auto", "workers": 0, "retries": 1}
    said["output"] = {"directory": Path("rtm"), "formats": ("npy", "png")}
    told = job.model_dump(exclude_none=True)
    assert {table: {key: told[table].get(key) for key in keys} for table, keys in said.items()} == said
    assert job.memory.budget is None


@pytest.mark.parametrize(
    ("table", "beside", "without"),
    [
        ("model", 'name = "layers"', ['velocity = "v.npy"', "spacing = 5", "origin = [0, 0]", 'true = "t.npy"']),
        ("model", 'velocity = "v.npy"', ["dims = 2", "shape = [9, 9]", 'size = "small"', "seed = 0"]),
        ("geometry", "shots = 2", ['sources = "s.npy"', 'receivers = "r.npy"']),
        ("geometry", 'sources = "s.npy"\nreceivers = "r.npy"', ["shots = 2", "source_depth = 0", "receiver_depth = 0"]),
        ("geometry", 'sources = "s.npy"\nreceivers = "r.npy"', ["receiver_spacing = 5"]),
        ("data", 'file = "d.npy"', ["length = 1.0"]),
        ("data", DATA, ["mute_delay = 0"]),
        ("wavelet", "frequency = 5", ["dt = 0.004", 'file = "w.npy"']),
        ("wavelet", 'file = "w.npy"', ["delay = 0", "frequency = 5"]),
        ("physics", "", ['vs = "s.npy"', 'density = "d.npy"', 'sends = "force z"', 'hears = "velocity x"']),
        ("run", "workers = 1", ['scheduler = "tcp://here:8786"']),
    ],
)
def test_keys_that_do_not_go_together_are_refused_and_each_alone_is_taken(table, beside, without):
    parse(job_text(**{table: beside, **({"geometry": ""} if beside.startswith('file = "d') else {})}))
    for line in without:
        with pytest.raises(WaveError, match=rf"{table}: expected"):
            parse(job_text(**{table: f"{beside}\n{line}"}))


SPAN = ("compute", "forward", 0, 0.0, 1.0)
MOST, MORE = 10**15, 1e15 + 0.125
SECONDS, COUNT = ([-1e15, 0.0, 1e15], [-MORE, MORE, float("nan"), "1"]), ([0, MOST], [-1, MOST + 1, 0.5, True])
RATIO = [2e-15, 1e15, None], [1e-15, 0.0, MORE, float("inf")]


@pytest.mark.parametrize(
    ("model", "key", "good", "bad"),
    [
        (ToldShot, "shot", *COUNT),
        *((ToldShot, key, *SECONDS) for key in ("seconds", "data", "reversal")),
        *((ToldShot, key, [1, MOST], [0, MOST + 1]) for key in ("every", "steps")),
        (ToldShot, "phases", [{"a": -1e15}, {"a": 1e15}], [{"a": MORE}, {"a": -MORE}]),
        *((ToldShot, key, [{"a": 0}, {"a": MOST}], [{"a": -1}, {"a": MOST + 1}]) for key in ("peak", "moved")),
        *((ToldShot, key, *RATIO) for key in ("ratio", "worst")),
        (ToldShot, "strength", [0.0, 1e300], [-5e-324, 1.1e300, float("inf"), float("nan")]),
        (ToldShot, "other", [], [1]),
        (ToldTimeline, "shot", *COUNT),
        (ToldTimeline, "spans", [[SPAN, ("up 1", "", -MOST, -1e15, 1e15)]], [[]]),
        *(
            (ToldTimeline, "spans", [], [[(*SPAN[:at], value, *SPAN[at + 1 :])]])
            for at, value in enumerate(("up 0", 1, MOST + 1, -MORE, MORE))
        ),
        (ToldTimeline, "other", [], [1]),
        *((ToldJob, key, [2e-15, 1e15], [1e-15, 0.0, MORE]) for key in ("sampling", "step")),
        (ToldJob, "lead", *COUNT),
        (ToldJob, "device", ["gpu"], ["tpu"]),
        (ToldJob, "other", [1], []),
    ],
)
def test_what_files_tell_is_taken_up_to_its_limits(finished, model, key, good, bad):
    described = vars(finished.workspace.described)
    tells = {ToldShot: finished.summaries[0], ToldTimeline: {"shot": 0, "spans": [SPAN]}, ToldJob: described}
    whole = tells[model]
    model.model_validate(whole)
    for value in good:
        model.model_validate({**whole, key: value})
    for value in bad:
        with pytest.raises(ValidationError):
            model.model_validate({**whole, key: value})


def test_shots_longer_than_memory_are_refused_before_their_wavelet_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(capacity, "free_host_bytes", lambda: 10**7)
    job = parse(job_text(data="dt = 0.008\nlength = 8000.0"), tmp_path)
    with pytest.raises(BudgetError, match=r"^data.length: a shot of 1000001 samples takes .* of which 10MB are free"):
        checked_inputs(job)


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EROFS, DiskError)])
@pytest.mark.parametrize(
    "writer", ["forebay.files.sync", "os.replace", "forebay.wave.job.workspace.description.Description.to_json"]
)
def test_a_disk_that_does_not_take_the_inputs_of_a_job_is_named(code, kind, writer, monkeypatch, tmp_path):
    def refuse(*given, **named):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(writer, refuse)
    with pytest.raises(DiskError, match=rf"^output.directory: .*out does not take .*\({os.strerror(code)}\)") as raised:
        prepare(parse(job_text(), tmp_path))
    assert type(raised.value) is kind and isinstance(raised.value.__cause__, OSError)
