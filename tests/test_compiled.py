"""What one process keeps on disk no other mixes up, and what is lost is compiled again."""

import fcntl
import os
import runpy
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from forebay.compiled import kept
from forebay.errors import ForebayError

PROGRAM = """
import sys
from forebay.compiled import kept

def twice(x):
    return x + x

function = kept(twice)
print(*(function(eval(text)) for text in sys.argv[1:]), sum(function.stats.cache_hits.values()))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a folder in which three processes have compiled a variant each, all at once."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "program.py").write_text(PROGRAM)
    at_once = [start(folder, value) for value in ("1.5", "2", "2j")]
    assert [result(process)[0] for process in at_once] == ["3.0", "4", "4j"]
    return folder


def start(folder, *values):
    """Start a process that doubles values and then tells how many variants it found compiled."""
    return subprocess.Popen(
        [sys.executable, str(folder / "program.py"), *values],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def result(process):
    text, _ = process.communicate()
    assert process.returncode == 0
    return text.split()


def files(folder, suffix):
    return set((folder / "cache").rglob(f"*.{suffix}"))


@pytest.mark.slow
def test_variants_compiled_at_once_are_kept_apart_and_a_lost_file_is_written_again(folder):
    assert len(files(folder, "nbc")) == 3
    min(files(folder, "nbc")).unlink()  # as if its process had been killed between the list and the file
    assert result(start(folder, "1.5", "2", "2j")) == ["3.0", "4", "4j", "2"]
    assert len(files(folder, "nbc")) == 3


CALLS = """
import sys
from forebay.compiled import kept

@kept
def inner(x):
    return x + x

@kept
def outer(x):
    return inner(x) - x

print("ready", flush=True)
sys.stdin.readline()
print(outer(1.5), *(sum(function.stats.cache_misses.values()) for function in (outer, inner)))
"""


@pytest.mark.slow
def test_what_several_processes_want_at_once_one_of_them_compiles(tmp_path):
    (tmp_path / "program.py").write_text(CALLS)
    processes = [start(tmp_path) for _ in range(3)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    results = sorted(result(process) for process in processes)
    assert results == [["1.5", "0", "0"], ["1.5", "0", "0"], ["1.5", "1", "1"]]


@pytest.mark.slow
def test_nothing_is_written_while_another_process_writes(folder):
    (place,) = {path.parent for path in files(folder, "nbi")}
    before = files(folder, "nb?")
    with open(place / "forebay.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = start(folder, "(2, 3)")
        deadline = time.monotonic() + 100
        while not opened(waiting, "forebay.lock", for_seconds=0.3):
            assert waiting.poll() is None and time.monotonic() < deadline
        assert files(folder, "nb?") == before
    assert result(waiting)[-1] == "0" and files(folder, "nb?") > before


def opened(process, name, for_seconds):
    """Tell whether a process has a file open, and keeps it."""
    end = time.monotonic() + for_seconds
    while time.monotonic() < end:
        names = []
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(OSError):  # it has been closed meanwhile
                names.append(os.path.basename(os.readlink(link)))
        if name not in names:
            return False
    return True


@pytest.mark.slow
def test_changed_sources_are_compiled_anew_under_names_of_their_own(folder):
    before = files(folder, "nbc")
    (folder / "helper.py").write_text("# beside it: it might call what is here\n")
    assert result(start(folder, "1.5")) == ["3.0", "0"]
    (after,) = files(folder, "nbc")  # the outdated ones are gone
    assert after not in before


def test_where_the_folder_vanished_functions_are_kept_nevertheless(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    function = kept(twice)
    shutil.rmtree(function.stats.cache_path)
    assert [function(value) for value in (1.5, 2)] == [3.0, 4]
    assert len(list(tmp_path.rglob("*.nb?"))) == 3


def twice(x):
    return x + x


def test_a_function_that_calls_one_of_another_folder_is_refused(tmp_path):
    (tmp_path / "elsewhere.py").write_text("def thrice(x):\n    return 3 * x\n")
    near, far = kept(twice), kept(runpy.run_path(str(tmp_path / "elsewhere.py"))["thrice"])
    assert kept(lambda x: near(x))(2) == 4
    with pytest.raises(ForebayError, match="calls far of another folder"):
        kept(lambda x: near(x) + far(x))


def test_a_function_without_a_file_is_compiled_and_not_kept():
    space = {}
    exec("def twice(x): return x + x", space)
    assert kept(space["twice"])(2) == 4


def test_what_is_damaged_or_cut_short_is_compiled_again(tmp_path):
    (tmp_path / "program.py").write_text("def twice(x):\n    return x + x\n")
    cache = None

    def found():
        """Call the function as another process would; return how many variants were found compiled."""
        function = kept(runpy.run_path(str(tmp_path / "program.py"))["twice"])
        assert function(1.5) == 3.0
        nonlocal cache
        cache = Path(function.stats.cache_path)
        return sum(function.stats.cache_hits.values())

    def cut(data):
        return data[: len(data) // 2]

    def change(data):
        return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]

    assert (found(), found()) == (0, 1)
    for suffix, damage in (("nbc", change), ("nbi", cut)):
        (path,) = cache.glob(f"*.{suffix}")
        path.write_bytes(damage(path.read_bytes()))
        assert (found(), found()) == (0, 1)
