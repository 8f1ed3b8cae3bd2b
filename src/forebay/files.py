"""Files and folders that are whole or not there, whenever the process dies, and that are their owner's unless told."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex


@contextmanager
def whole(path: Path, *, folder: bool = False, unfinished: Path | None = None, private: bool = True) -> Iterator[Path]:
    """Yield another name for a file or folder until it is whole: a process that dies before leaves the old one.

    What was written under that name is brought to the disk and then renamed.

    Parameters
    ----------
    path
        Where it belongs; the folder around it must be there.
    folder
        Whether a folder is written.
    unfinished
        The other name; unless told, a hidden one that nobody else takes.
    private
        Whether nobody else may read it, or the process's umask decides that, as for results that a user has named.
    """
    unfinished = unfinished or path.with_name(f".{token_hex(4)}.{path.name}")
    remove(unfinished)
    if folder:
        unfinished.mkdir(mode=0o700 if private else 0o777)
    else:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if private else 0o666))
    try:
        yield unfinished
        for entry in (*unfinished.rglob("*"), unfinished) if folder else (unfinished,):
            sync(entry)
        # A folder cannot replace another: the old one gets out of the way, whole.
        old = path.with_name(f".{token_hex(4)}.{path.name}") if path.is_dir() else None
        if old is not None:
            os.replace(path, old)
        os.replace(unfinished, path)
        sync(path.parent)
        if old is not None:
            remove(old)
    except BaseException:
        with suppress(OSError):
            remove(unfinished)
        raise


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
