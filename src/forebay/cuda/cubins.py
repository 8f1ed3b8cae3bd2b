"""Compiled kernels kept on disk for the next process, in a folder that nobody else can write to.

A file is named after all that its code depends on, and begins with a digest of the rest: what is damaged is not used.
"""

import os
import tempfile
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

DIGEST = 32
MOST_FILES = 512
"""Files that are kept; those that have not been used for longest go first."""


def folder() -> Path:
    """Return the folder: ``forebay/cubins`` in ``$XDG_CACHE_HOME``, or in ``~/.cache`` where that is not set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forebay" / "cubins"


def key(*parts: str) -> str:
    """Return the name of what is made of these texts.

    Examples
    --------
    >>> key("sm_90", "source") == key("sm_90", "source") != key("sm_80", "source")
    True
    """
    return blake2b(repr(parts).encode(), digest_size=DIGEST).hexdigest()


def read(name: str) -> bytes | None:
    """Return what was kept under a name; None where nothing was, or where it is damaged or another user's."""
    with suppress(OSError, RuntimeError):  # of a user without a home there is no folder
        path = folder() / name
        if _ours(path.parent):
            data = path.read_bytes()
            if data[:DIGEST] == _digest(data[DIGEST:]):
                with suppress(OSError):  # of a file system that is read alone
                    os.utime(path)
                return data[DIGEST:]
    return None


def write(name: str, code: bytes) -> None:
    """Keep code under a name, whole or not at all; where that cannot be done it is compiled again next time."""
    with suppress(OSError, RuntimeError):
        place = folder()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _ours(place):
            return
        descriptor, part = tempfile.mkstemp(dir=place)  # readable by its owner alone
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_digest(code) + code)
            os.replace(part, place / name)
        except OSError:
            os.unlink(part)
            raise
        _remove_oldest(place)


def _ours(place: Path) -> bool:
    """Tell whether a folder is the user's own, and nobody else may put code into it."""
    status = place.stat()
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)


def _remove_oldest(place: Path) -> None:
    paths = sorted(place.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for path in paths[:-MOST_FILES]:
        path.unlink(missing_ok=True)


def _digest(code: bytes) -> bytes:
    return blake2b(code, digest_size=DIGEST).digest()
