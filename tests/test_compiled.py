"""What one process keeps on disk no other overwrites, and what is lost is compiled again."""

import os
import subprocess
import sys

PROGRAM = """
import sys
from forebay.compiled import kept

def twice(x):
    return x + x

function = kept(twice)
print(function(float(sys.argv[1]) if sys.argv[2] == "float" else int(sys.argv[1])))
"""


def run(folder, value, kind):
    if not (folder / "program.py").exists():  # Numba looks at its date
        (folder / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(folder / "program.py"), value, kind],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), set((folder / "cache").rglob("*.nbc"))


def test_a_process_that_does_not_see_anothers_list_overwrites_none_of_its_files(tmp_path):
    said, first = run(tmp_path, "1.5", "float")
    assert said == "3.0" and len(first) == 1
    code = next(iter(first)).read_bytes()
    for index in (tmp_path / "cache").rglob("*.nbi"):
        index.unlink()  # as if the second had begun before the first was done
    said, both = run(tmp_path, "2", "int")
    assert said == "4" and len(both) == 2 and next(iter(first)).read_bytes() == code


def test_a_file_that_was_never_written_is_compiled_again(tmp_path):
    _, files = run(tmp_path, "1.5", "float")
    next(iter(files)).unlink()  # killed between the list and the file
    said, files = run(tmp_path, "1.5", "float")
    assert said == "3.0" and len(files) == 1


def test_what_was_kept_is_found(tmp_path):
    run(tmp_path, "1.5", "float")
    assert len(run(tmp_path, "2.5", "float")[1]) == 1
