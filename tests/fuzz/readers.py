"""Everything that reads what others may have written, each with sound inputs to begin from.

A reader takes bytes and a folder of its own. It may read them or raise a `ForebayError`, and nothing else.
"""

import ctypes
import io
import json
import mmap
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.example_counts import ALL
from tests.fuzz.mutation import mutated, mutated_body, mutated_parts

import forebay as fb
from forebay.codec import Encoded, container, get
from forebay.errors import ForebayError

FIELD = np.sin(np.arange(2400, dtype=np.float32) / 7).reshape(12, 10, 20)
CODECS = ["raw", "cast:float16", "cast:bfloat16", "bounded:1e-3", "dense:1e-3", "zfp:8", "zfp:tol=1e-3", "lossless"]
JOB = """\
[model]
name = "layers"
shape = [40, 60]
smooth = 50.0
[geometry]
shots = 2
source_depth = 20.0
receiver_spacing = 50.0
[data]
dt = 0.02
length = 4.0
mute_velocity = 1500.0
[wavelet]
frequency = 1.0
[physics]
order = 4
absorb = 10
[imaging]
mute = 30.0
[memory]
host = "4MB"
disk = "20MB"
schedule = "auto"
[output]
formats = ["npy"]
"""
INVERSION = """
[inversion]
frequencies = [2.5, "all"]
iterations = [1, 2]
misfit = "envelope"
bounds = [1400.0, 4000.0]
fixed_depth = 100.0
smooth = 10.0
precondition = false
estimate_source = "each"
mini_batch = 1
seed = 3
"""
LEAST_SQUARES = """
[lsrtm]
iterations = 2
parameter = "squared slowness"
precondition = false
"""
SEARCH = JOB.replace("mute = 30.0", "aperture = 500.0")
JOBS = [JOB, JOB.replace('schedule = "auto"', 'image_error = "1%"'), SEARCH + INVERSION, SEARCH + LEAST_SQUARES]


@dataclass(frozen=True)
class Reader:
    """Something that reads, and what it reads."""

    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes, Path], Any]
    mutate: Callable[[bytes, Any], bytes] = mutated


def saved(write):
    """Return the bytes that a function writes into an open file."""
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def all_of(*attempts):
    """Try several things, each of which may be refused."""
    for attempt in attempts:
        with suppress(ForebayError):
            attempt()


def text(value):
    return json.dumps(value).encode()


def decoded(data):
    """Return text; what is none is no input for what takes text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ForebayError("no text") from None


def arguments(data):
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ForebayError("no arguments") from None
    return value if isinstance(value, dict) else {"x": value}


# Amounts, budgets, schedules, codecs and plans.


def read_amount(data, folder):
    amount = decoded(data)
    fb.units.to_text(fb.units.to_bytes(amount))
    repr(fb.Budget(host=amount))
    try:
        amount = json.loads(amount)
    except (ValueError, RecursionError):
        return
    repr(fb.Budget(host=amount) if amount is not None else None)


def read_names(data, folder):
    name = decoded(data)
    all_of(lambda: get(name), lambda: str(fb.schedule.named(name, 1000)))


PLANS = [
    {"steps": 300, "state_bytes": "1.13GB", "budget": "8GB"},
    {"steps": 40, "state_bytes": 1000, "budget": 9000, "schedule": "revolve:4", "every": 2, "record_bytes": "300"},
    {"steps": 100, "state_bytes": "1MB", "budget": "20MB", "policy": "lru", "slots": 3, "reversals": 4},
    {"steps": 60, "state_bytes": "1MB", "budget": "20MB", "machine": "v100", "schedule": "twolevel:8", "overhead": 10},
    {"steps": 5, "state_bytes": "1MB", "budget": "20MB", "step_costs": [1, 2, 3, 1, 5], "below": 1e9},
    {"steps": 50, "state_bytes": "1MB", "budget": "9MB", "codec": ["bounded:1e-3"], "schedule": "hierarchical:2,3@4"},
]
NAMES = ("steps", "state_bytes", "budget", "schedule", "every", "record_bytes", "policy", "slots", "reversals")
NAMES += ("machine", "overhead", "step_costs", "below", "codec")


def read_plan_arguments(data, folder):
    given = {name: value for name, value in arguments(data).items() if name in NAMES}
    if len(given) < 3 or not {"steps", "state_bytes", "budget"} <= set(given):
        raise ForebayError("some are missing")
    fb.plan(**given).explain()


@cache
def plans():
    return [fb.plan(**given).to_json().encode() for given in PLANS[:5]]


def read_plan(data, folder):
    path = folder / "plan.json"
    path.write_bytes(data)
    plan = fb.Plan.from_json(path)
    plan.explain(), repr(plan), plan.to_json()


COSTS = b'{"forward": 0.001, "backward": 0.002, "copy": 1e10, "disk": {"up": 1e9, "down": 1e9}, "steps": [1.0, 2.0]}'


LINKS = {"host_copy": 8e9, "device_copy": 1e12, "pinned_up": 5e10, "pinned_down": 4e10, "pinned_both": 3e10}
LINKS |= {"pin_seconds_per_byte": 1e-10, "disk_read": 3e9, "disk_write": 2e9, "disk_method": "O_DIRECT"}


def read_machine(data, folder):
    from forebay.cli.machines import costs_of, read_json

    path = folder / "machine.json"
    path.write_bytes(data)
    all_of(
        lambda: costs_of(str(path), 10**9, "host"),
        lambda: costs_of(str(path), 10**9, "device"),
        lambda: read_json(path, fb.Costs, str(path)),
    )


# Footprints.


@cache
def model():
    from forebay.footprint.measure.conditions import Conditions
    from forebay.footprint.measure.inputs import InputLayout
    from forebay.footprint.measure.sample import Sample
    from forebay.footprint.model import Model

    shapes = [(8 * a, 8 * b) for a, b in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (4, 4))]
    samples = [Sample(s, 8 * s[0] * s[1] + 4096, 0.01, output_shape=s, output_dtype="float32") for s in shapes]
    conditions = Conditions("tracemalloc", True, 64, "0" * 64, machine="any", page=4096)
    return Model("f", InputLayout.of(2), np.dtype("float32"), tuple(samples), conditions)


@cache
def model_text():
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        model().save(Path(folder) / "model.json")
        return (Path(folder) / "model.json").read_bytes()


def read_model(data, folder):
    path = folder / "model.json"
    path.write_bytes(data)
    loaded = fb.footprint.load(path, changed="accept")
    loaded.predict((100, 200) if loaded.ndim == 2 else (50,) * loaded.ndim)


def read_shape(data, folder):
    given = arguments(data)
    str(model().predict(given.get("shape")))
    model().chunks(given.get("shape"), given.get("budget"), threads=given.get("threads", 1), halo=given.get("halo"))


# Encodings, whose checksums are repaired.


def resealed(payload):
    """Make lengths and checksum of a stream's header right again."""
    from forebay.codec.nvcomp import seal

    if len(payload) < seal.HEADER:
        return payload
    words = np.frombuffer(payload[: seal.HEADER], np.uint64).copy()
    words[0], words[1] = len(payload), len(payload) - seal.HEADER
    words[seal.CHECKSUM] = seal._checksum(words, np.frombuffer(payload[seal.HEADER :], np.uint8))
    return words.tobytes() + payload[seal.HEADER :]


@cache
def encodings():
    """Return encodings without their headers: what they say of themselves, and their payload."""
    dtype = "float64" if ALL else "float32"  # doubles take long to compile
    arrays = FIELD, np.linspace(-1, 1, 5000, dtype=dtype)
    whole = [container.unpack(get(name).encode(array).to_bytes()) for name in CODECS for array in arrays]
    return [text(about) + b"\n" + bytes(payload) for about, payload in whole]


def guarded(data):
    """Copy bytes to where whoever reads on after their end, or before their page, is ended by the processor."""
    if sys.platform != "linux":
        return data
    pages = -(-len(data) // mmap.PAGESIZE) + 2
    room = np.frombuffer(mmap.mmap(-1, pages * mmap.PAGESIZE), np.uint8)
    for page in (0, pages - 1):
        address = ctypes.c_void_p(room.ctypes.data + page * mmap.PAGESIZE)
        assert ctypes.CDLL(None).mprotect(address, mmap.PAGESIZE, 0) == 0
    end = (pages - 1) * mmap.PAGESIZE
    room[end - len(data) : end] = np.frombuffer(data, np.uint8)
    return memoryview(room[end - len(data) : end])


def read_encoding(data, folder):
    about, _, payload = data.partition(b"\n")
    if b"lossless" in about:
        payload = resealed(payload)
    digest = container.xxh3_128_digest(about + payload)
    lengths = len(about) & 0xFFFF, len(payload)
    header = container.HEADER.pack(container.MAGIC, container.VERSION, *lengths, digest)
    encoded = Encoded.from_bytes(guarded(header + about + payload))
    encoded.codec.decode(encoded)
    encoded.to_bytes()


def read_damaged_encoding(data, folder):
    encoded = Encoded.from_bytes(data)
    encoded.codec.decode(encoded)


# Arrays of waves.


def npy(array):
    return saved(lambda file: np.save(file, array))


def read_npy(data, folder):
    from forebay.wave.files.formats import look_at_shots, read_field, read_shot

    path = folder / "x.npy"
    path.write_bytes(data)
    all_of(
        lambda: np.array(read_field(path).values),
        lambda: look_at_shots(path, 2),
        lambda: read_shot(path, 0, np.arange(1)),
    )


def segy_seeds():
    from tempfile import TemporaryDirectory

    from forebay.wave.files.segy import writing
    from forebay.wave.survey.geometry import geometry_of

    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.segy"
        writing.write_volume(path, FIELD[:, 0], (10.0, 10.0), (0.0, 0.0))
        volume = path.read_bytes()
        spread = geometry_of([(10, 0), (10, 50)], [(10, x) for x in range(0, 51, 25)])
        writing.write_shots(path, spread, [FIELD[0, :, :3]] * 2, 0.004)
        return [volume, path.read_bytes()]


def read_segy(data, folder):
    from forebay.wave.files.formats import look_at_shots, read_field, read_shot

    path, bare = folder / "x.segy", folder / "x.su"
    path.write_bytes(data)
    bare.write_bytes(data[3600:])
    all_of(
        lambda: read_field(path),
        lambda: look_at_shots(path, 2),
        lambda: read_shot(path, 0, np.arange(1)),
        lambda: look_at_shots(bare, 3),
    )


@cache
def zarr_files():
    from tempfile import TemporaryDirectory

    from forebay.wave.files.formats import write_field, write_shots
    from forebay.wave.survey.geometry import geometry_of

    with TemporaryDirectory() as folder:
        write_field(Path(folder) / "field.zarr", FIELD[:, 0], (10.0, 10.0), (0.0, 0.0))
        spread = geometry_of([(10, 0), (10, 50)], [(10, x) for x in range(0, 51, 25)])
        write_shots(Path(folder) / "shots.zarr", spread, [FIELD[0, :, :3]] * 2, 0.004)
        paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def named_seeds(files):
    return [name.encode() + b"\n" + content for name, content in files.items()]


def damaged_files(files, data, folder):
    """Write sound files, and the one that an input names, damaged; return its name."""
    name, _, content = data.partition(b"\n")
    try:
        name = name.decode()
    except UnicodeDecodeError:
        name = ""
    if name not in files:
        raise ForebayError("no file of these")
    for other, sound in files.items():
        path = folder / other
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != sound:
            path.write_bytes(sound)
    (folder / name).write_bytes(content)
    return name


def read_zarr(data, folder):
    from forebay.wave.files.formats import look_at_shots, read_field, read_shot

    damaged_files(zarr_files(), data, folder)
    all_of(
        lambda: read_field(folder / "field.zarr"),
        lambda: look_at_shots(folder / "shots.zarr", 2),
        lambda: read_shot(folder / "shots.zarr", 0, np.arange(3)),
    )


# Jobs.


def command_of(data):
    """Return the command whose job it may be."""
    return "fwi" if b"[inversion" in data else "lsrtm" if b"[lsrtm" in data else "rtm"


def read_job(data, folder):
    from forebay.wave.job import parse
    from forebay.wave.job import read_job as read

    path = folder / "job.toml"
    path.write_bytes(data)
    read(path, command_of(data))
    parse(decoded(data), folder, command=command_of(data))


def read_job_whole(data, folder):
    from forebay.wave.job import read_job as read
    from forebay.wave.job.checks import inspect

    path = folder / "job.toml"
    path.write_bytes(data)
    inspect(read(path, command_of(data)))


@cache
def workspace_files():
    """Run a job of two shots, and return what it leaves."""
    from tempfile import TemporaryDirectory

    from forebay.wave.job import parse, run_job

    with TemporaryDirectory() as folder:
        run_job(parse(JOB, Path(folder)))
        root = Path(folder) / "rtm"
        paths = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size]
        return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def read_workspace(data, folder):
    from forebay.wave.job.work import steps_of
    from forebay.wave.job.workspace import Workspace

    damaged_files(workspace_files(), data, folder)
    space = Workspace(folder)
    all_of(
        lambda: (vars(space.described), space.identity),
        lambda: (space.geometry, space.boxes, space.geometry.receivers_of(0), space.geometry.traces_of(0)),
        lambda: (space.wavelet, space.fields("model"), space.fields("true", space.boxes[0]), steps_of(space)),
        lambda: space.plan(),
        lambda: space.timeline(),
        lambda: (space.part(0), space.summary(0)),
        lambda: space.sweep(),
    )


# The command line.

LINES = [
    "plan --steps 300 --state 1.13GB --device 8GB --host 64GB",
    "plan --steps 30 --state 1MB --host 9MB --disk 1GB --schedule revolve:4 --policy lru --every 2 --record 10kB",
    "plan --steps 30 --state 1MB --device 9MB --codec bounded:1e-4=8,1300,1500 --machine h200 --reversals 3 --json",
    "plan --steps 2 --state 1MB --host 9MB --costs costs.json --output plan.json",
    "plan --steps 2 --state 1MB --device 9MB --machine machine.json --picture plan.png",
    "rtm job.toml --check --workers 1 --output x",
    "doctor --quick --json --directory .",
    "footprint os:nothing --shape 651,951,462 --budget 4GB --halo 8,8,8 --stored 64,64,64 --picture x.png",
    "footprint os:nothing --shape 6 --model model.json --samples 4 --seconds 1 --dtype float32 --library numpy",
    "bench --list",
    "bench nothing --tiny",
]


def read_command_line(data, folder):
    import os

    from forebay.cli.main import main

    line = [part for part in decoded(data).split() if "\0" not in part]
    if line[:1] == ["demo"] or (line[:1] == ["bench"] and "--list" not in line) or "--all" in line:
        raise ForebayError("it would take long")
    for name, content in (
        ("costs.json", COSTS),
        ("machine.json", text({"links": LINKS})),
        ("job.toml", JOB.encode()),
        ("model.json", model_text()),
    ):
        (folder / name).write_bytes(content)
    told, shown, before = io.StringIO(), io.StringIO(), os.getcwd()
    arguments, sys.argv = sys.argv, ["forebay", *line]
    os.chdir(folder)
    try:
        with redirect_stderr(told), redirect_stdout(shown):
            main()
    except SystemExit as end:
        if end.code not in (0, 1, 2) or "Traceback" in told.getvalue():
            raise RuntimeError(f"exit {end.code}: {told.getvalue()[-400:]}") from None
        if end.code and not told.getvalue().strip() and not shown.getvalue().strip():
            raise RuntimeError(f"exit {end.code} without a word") from None
    finally:
        sys.argv = arguments
        os.chdir(before)


# Progress of reversals.


@cache
def progress_file():
    from tempfile import TemporaryDirectory

    from forebay.engine.resume.files import write_arrays

    with TemporaryDirectory() as folder:
        path = Path(folder) / "state-1"
        write_arrays(path, {"step": 1}, {"a": FIELD, "b": np.arange(3)})
        return path.read_bytes()


def read_progress(data, folder):
    """Read arrays whose header's checksum is repaired."""
    from forebay.checksums import checksum_of
    from forebay.engine.resume.files import read_arrays

    path = folder / "state-1"
    if len(data) > 32 and data[:8] == b"forebay1":
        length = min(int.from_bytes(data[8:16], "little"), len(data) - 32)
        header = data[32 : 32 + length]
        data = data[:8] + length.to_bytes(8, "little") + bytes.fromhex(checksum_of([header])) + data[32:]
    path.write_bytes(data)
    read_arrays(path)


READERS = {
    "amount": Reader(lambda: [b"8GB", b"1.5 GiB", b"4096", b"1_000e3 kB"], read_amount),
    "name": Reader(lambda: [name.encode() for name in (*CODECS, "revolve:20", "hierarchical:2,14@30")], read_names),
    "plan arguments": Reader(lambda: [text(given) for given in PLANS], read_plan_arguments),
    "plan": Reader(plans, read_plan),
    "machine": Reader(lambda: [text({"python": "3.12", "links": LINKS}), COSTS], read_machine),
    "model": Reader(lambda: [model_text()], read_model),
    "shape": Reader(lambda: [text({"shape": [651, 951], "budget": "4GB", "threads": 2, "halo": [8, 8]})], read_shape),
    "encoding": Reader(encodings, read_encoding, mutated_parts),
    "damaged encoding": Reader(lambda: [get(name).encode(FIELD).to_bytes() for name in CODECS], read_damaged_encoding),
    "npy": Reader(lambda: [npy(FIELD), npy(FIELD[:, 0].astype(">f8")), npy(np.arange(3))], read_npy),
    "segy": Reader(segy_seeds, read_segy),
    "zarr": Reader(lambda: named_seeds(zarr_files()), read_zarr, mutated_body),
    "job": Reader(lambda: [job.encode() for job in JOBS], read_job),
    "whole job": Reader(lambda: [job.encode() for job in JOBS], read_job_whole),
    "workspace": Reader(lambda: named_seeds(workspace_files()), read_workspace, mutated_body),
    "command line": Reader(lambda: [line.encode() for line in LINES], read_command_line),
    "progress": Reader(lambda: [progress_file()], read_progress),
}
