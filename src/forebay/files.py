"""Files and folders that are whole or not there, whenever the process dies, and that are their owner's unless told."""

import ctypes
import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

UNFINISHED = r"\.[0-9a-f]{8}\."
"""How the name of a file or folder begins, as a regular expression, until it is whole."""
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What a system says where there is no room left."""
_HERE, _EXCHANGE = -100, 2
"""Of Linux: paths begin at the working directory, and two names change places in one step."""


def text_of(path: Path, most: int = 2**27) -> str:
    """Read a file of text, and refuse one that is longer than what is read here ever is."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path} is longer than the {most} bytes that are read of such a file")
    return data.decode()


@contextmanager
def whole(path: Path, *, folder: bool = False, private: bool = True, synced: bool = True) -> Iterator[Path]:
    """Yield another name for a file or folder until it is whole: a process that dies before leaves the old one.

    What was written under that name is brought to the disk and then renamed. Where the system cannot exchange folders
    in one step, only a process killed between two renames leaves the old folder under a hidden name beside its place.

    Parameters
    ----------
    path
        Where it belongs; the folder around it must be there. A folder that is there is replaced by a folder alone.
    folder
        Whether a folder is written.
    private
        Whether nobody else may read it, or the process's umask decides that, as for results that a user has named.
    synced
        Whether it is brought to the disk. Else whoever asks does that, and can tell it from what a machine that fails
        before has left of it.
    """
    if not folder and path.is_dir() and not path.is_symlink():
        raise IsADirectoryError(
            errno.EISDIR, "there is a folder of this name: move it away, or name another file", path
        )
    unfinished = unfinished_name(path)
    if folder:
        unfinished.mkdir(mode=0o700 if private else 0o777)
    else:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if private else 0o666))
    try:
        yield unfinished
        for entry in () if not synced else (*unfinished.rglob("*"), unfinished) if folder else (unfinished,):
            sync(entry)
        if folder and path.is_dir():
            _replace_folder(unfinished, path)
        else:
            os.replace(unfinished, path)
        if synced:
            sync(path.parent)
        remove(unfinished)  # the old folder, where they were exchanged
    except BaseException:
        with suppress(OSError):
            remove(unfinished)
        raise


def unfinished_name(path: Path) -> Path:
    """Return a hidden name beside a path, which nobody else takes: for what is not whole yet, or not any more."""
    return path.with_name(f".{token_hex(4)}.{path.name}")


def remove_unfinished(folder: Path) -> None:
    """Remove what dead processes left unfinished in a folder, in which its caller alone is at work."""
    # Others may keep hidden files there: only names of this form are ours.
    for path in [entry for entry in folder.glob(".*") if re.fullmatch(f"{UNFINISHED}.+", entry.name)]:
        remove(path)


def _replace_folder(new: Path, path: Path) -> None:
    """Bring a folder into the place of another, which is removed or has the name of the new one then."""
    if exchange(new, path):
        return
    old = unfinished_name(path)
    try:
        os.replace(path, old)
        os.replace(new, path)
    except BaseException:
        if old.is_dir() and not path.exists():
            os.replace(old, path)
        raise
    finally:
        if path.exists():
            remove(old)


def exchange(one: Path, other: Path) -> bool:
    """Have two names change places in one step; return whether the system can."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):  # pragma: no cover - an old C library
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    if os.name == "nt" and path.is_dir():  # pragma: no cover - names are on the disk there without it
        return
    opened = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def remove(path: Path) -> None:
    """Remove a file or a folder, where it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
