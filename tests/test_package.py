"""The package as a user takes it in: light to import, wherever Python runs, with types that a user's mypy sees."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import forebay

ROOT = Path(__file__).parents[1]

HEAVY = "numba llvmlite scipy matplotlib torch jax cupy cuda dask distributed devito pandas zarr segyio blosc2"

ROOMS = ["cli.main", "codec", "engine", "footprint", "machine", "memory", "planner", "report", "schedule", "tier"]
"""Those that load no such library before it is used."""


def python(code):
    """Run code in a fresh process and return what it prints; its errors are printed too."""
    return subprocess.run(
        [sys.executable, "-c", code], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ).stdout


def loaded_by(code):
    """Return which of the heavy libraries a fresh process has loaded after some code."""
    return python(f"{code}\nimport sys\nprint(*(name for name in {HEAVY!r}.split() if name in sys.modules))").split()


def test_no_room_loads_a_library_before_it_is_used():
    assert loaded_by("".join(f"import forebay.{room}\n" for room in ROOMS)) == []


def test_a_room_is_the_module_of_its_name():
    assert forebay.codec.__name__ == "forebay.codec"
    assert {"codec", "footprint", "memory", "wave", "plan", "reverse", "Plan", "Revolve"} <= set(dir(forebay))
    with pytest.raises(AttributeError, match="no attribute 'turbine'"):
        forebay.turbine  # noqa: B018 - reading it is what is tested


def test_rooms_are_there_without_being_imported_in_whatever_order():
    rooms = "codec engine footprint memory metrics planner schedule tier"
    for order in (rooms, " ".join(reversed(rooms.split()))):
        code = f"import forebay as fb\nprint(*(getattr(fb, room).__name__ for room in {order!r}.split()))"
        assert python(code).split() == [f"forebay.{room}" for room in order.split()]


def test_a_star_brings_what_is_public_and_no_door():
    brought = "plan reverse Plan Result Costs Link CodecCost Budget Revolve ForebayError codec footprint __version__"
    code = f"from forebay import *\nprint(all(name in globals() for name in {brought!r}.split()), 'torch' in globals())"
    assert loaded_by(code) == ["True", "False"]


@pytest.mark.parametrize(
    ("room", "name", "today"),
    [("dask", "Limits", "WorkerLimits"), ("dasf", "Task", "TaskPeak"), ("metrics", "Sample", "Distortion")],
)
def test_classes_are_found_under_their_earlier_names(room, name, today):
    home = import_module(f"forebay.{room}")
    assert getattr(home, name) is getattr(home, today)


def test_silent_until_the_application_asks_for_its_log():
    code = "import forebay, logging; logging.getLogger('forebay.jax').error('not shown'); print('quiet')"
    assert python(code) == "quiet\n"


def test_a_users_mypy_is_told_that_there_are_types():
    """Which types it sees is told by `make lint`, of the user's file beside this one."""
    assert (Path(forebay.__file__).parent / "py.typed").is_file()


def test_all_takes_every_extra_but_a_second_cuda_and_what_is_built_from_source():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (gathered,) = extras["all"]
    assert set(gathered[len("forebay[") : -1].split(",")) == set(extras) - {"all", "test", "docs", "cuda12", "devito"}


def test_the_version_stands_alike_wherever_it_is_written():
    assert f"\nversion: {forebay.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"dist/forebay-{forebay.__version__}-py3" in (ROOT / "README.md").read_text()


ELSEWHERE = """
import asyncio, concurrent.futures, multiprocessing, subprocess, numpy, pydantic, rich.progress, typer
import mmap, os, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
missing = {
    os: "O_DIRECT fork geteuid getuid posix_fadvise posix_fallocate preadv pwritev sched_getaffinity statvfs sysconf",
    mmap: "MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED MADV_DONTFORK MADV_DONTNEED MADV_HUGEPAGE PROT_READ PROT_WRITE",
    signal: "SIGHUP SIGKILL SIGUSR1 pthread_sigmask",
}
for module, names in missing.items():
    for name in names.split():
        delattr(module, name)
"""
"""Take away what macOS or Windows lack, once the libraries that adapt to them are loaded."""


def test_rooms_import_where_there_is_no_linux():
    code = "".join(f"import forebay.{room}\n" for room in [*ROOMS, "wave"]) + "print('imported')"
    assert python(f"{ELSEWHERE}\n{code}") == "imported\n"


def test_reversals_run_where_there_is_no_linux():
    code = """
import numpy as np
import forebay as fb

def forward(state, start, stop):
    return (state[0] + (stop - start),)

visited = []
budget = fb.Budget(host="40kB")
fb.reverse(forward, lambda state, step: visited.append(state[0][0] == step), (np.zeros(1000),), steps=20, budget=budget)
print(len(visited), all(visited))
"""
    assert python(ELSEWHERE + code) == "20 True\n"
