"""What one process keeps on disk no other mixes up, and what is lost is compiled again."""

import fcntl
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

PROGRAM = """
import sys
from forebay.compiled import kept

def twice(x):
    return x + x

function = kept(twice)
print(*(function(eval(text)) for text in sys.argv[1:]), sum(function.stats.cache_hits.values()))
"""


@pytest.fixture
def start(tmp_path):
    """Start a process that doubles values and then tells how many variants it found compiled."""
    (tmp_path / "program.py").write_text(PROGRAM)

    def begin(*values):
        return subprocess.Popen(
            [sys.executable, str(tmp_path / "program.py"), *values],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            stdout=subprocess.PIPE,
            text=True,
        )

    return begin


def result(process):
    text, _ = process.communicate()
    assert process.returncode == 0
    return text.split()


def files(folder, suffix):
    return set((folder / "cache").rglob(f"*.{suffix}"))


def test_processes_that_compile_at_once_keep_their_variants_apart(start, tmp_path):
    at_once = [start("1.5"), start("2"), start("2j")]
    assert [result(process)[0] for process in at_once] == ["3.0", "4", "4j"]
    assert len(files(tmp_path, "nbc")) == 3
    assert result(start("1.5", "2", "2j")) == ["3.0", "4", "4j", "3"]
    # As if one had been killed between its list and its file.
    min(files(tmp_path, "nbc")).unlink()
    assert result(start("1.5", "2", "2j")) == ["3.0", "4", "4j", "2"]
    assert len(files(tmp_path, "nbc")) == 3


def test_nothing_is_written_while_another_process_writes(start, tmp_path):
    result(start("1.5"))
    (place,) = {path.parent for path in files(tmp_path, "nbi")}
    before = files(tmp_path, "nb?")
    with open(place / "forebay.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = start("2")
        deadline = time.monotonic() + 100
        while not opened(waiting, "forebay.lock", for_seconds=0.3):
            assert waiting.poll() is None and time.monotonic() < deadline
        assert files(tmp_path, "nb?") == before
    assert result(waiting)[0] == "4" and len(files(tmp_path, "nbc")) == 2


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


def test_changed_sources_are_compiled_anew_under_names_of_their_own(start, tmp_path):
    result(start("1.5"))
    (before,) = files(tmp_path, "nbc")
    (tmp_path / "helper.py").write_text("# beside it: it might call what is here\n")
    assert result(start("1.5")) == ["3.0", "0"]
    (after,) = files(tmp_path, "nbc")  # the outdated one is gone
    assert after.name != before.name
