"""The files without a name that processes keep their spilled snapshots in, as Linux shows them."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def spills(directory, process="self"):
    """List the open files without a name in a directory; each can be opened by its path as long as it is there."""
    found = []
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):
            place = os.readlink(entry)
            if place.startswith(f"{Path(directory).resolve()}/") and place.endswith(" (deleted)"):
                found.append(entry)
    return found


def bytes_on_disk(directory, process="self"):
    """Count the bytes that such files have."""
    return sum(os.stat(entry).st_size for entry in spills(directory, process))


def number_told(script, *arguments):
    """Run a script that spills in a process of its own, and return the number that it prints, and nothing else."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0 and ended.stdout.strip().isdigit(), ended.stdout + ended.stderr
    return int(ended.stdout)
