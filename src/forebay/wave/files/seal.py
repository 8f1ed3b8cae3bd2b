"""Seals of a workspace's files: whose each file is, and a checksum of all its bytes.

A JSON text has its seal as the first entry. An archive of NumPy has it as the comment that a zip file may end with, so
that NumPy reads it as ever. The checksum is the XXH3-128 of the whole file, with zeros for its own digits.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile, ZipFile

from numpy.typing import NDArray
from pydantic import BaseModel

from forebay.checksums import checksum_of
from forebay.errors import CorruptionError, WaveError
from forebay.wave.files.npy import load_arrays

Told = TypeVar("Told", bound=BaseModel)

FORMAT = 2
"""Of sealed files; another one must keep where its checksum stands and how it is made, to be told from damage."""
BLANK = b"0" * 32
"""In place of a checksum while it is computed."""
BEGIN = b'{"checksum": "'
"""How a seal begins."""
LONGEST = 1024
"""Bytes of an archive's seal, at most."""
CHUNK = 2**20
"""Bytes that are read at a time: caches hold them."""


def checksum_of_file(path: Path, hole: int | None = None) -> str:
    """Return the checksum of a file, with zeros for the digits of the checksum that begin at a place."""
    return checksum_of(_chunks(path, hole))


def _chunks(path: Path, hole: int | None) -> Iterator[memoryview]:
    """Read a file piece by piece, each into the memory of the one before."""
    place, room = 0, memoryview(bytearray(CHUNK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(room):
            if hole is not None and place - len(BLANK) < hole < place + count:
                low, high = max(hole - place, 0), min(hole + len(BLANK) - place, count)
                room[low:high] = BLANK[: high - low]
            yield room[:count]
            place += count


def sealed_text(content: Mapping[str, Any], **whose: Any) -> str:
    """Return JSON with a seal that tells whose it is."""
    text = json.dumps({"seal": {"checksum": BLANK.decode(), "format": FORMAT, **whose}, **content}, indent=2)
    return text.replace(BLANK.decode(), checksum_of([text.encode()]), 1)


def open_text(path: Path, **whose: Any) -> dict[str, Any]:
    """Read sealed JSON, refusing what is damaged or belongs elsewhere."""
    check_regular(path)
    try:
        data = path.read_bytes()
        content = json.loads(data)
        seal = content.pop("seal")
        written = str(seal["checksum"])
    except OSError as error:
        raise damaged(path, f"it cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is no JSON ({error})") from error
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise damaged(path, "it carries no seal") from error
    whole = re.fullmatch("[0-9a-f]{32}", written) is not None
    if not whole or checksum_of([data.replace(written.encode(), BLANK, 1)]) != written:
        raise damaged(path, "its checksum does not match")
    _check(path, seal, whose)
    return dict(content)


def open_told(path: Path, kind: type[Told], *, file: str, job: str) -> Told | None:
    """Read what sealed JSON tells of one kind; return None where there is no file, and refuse other contents."""
    if not path.exists():
        return None
    content = open_text(path, file=file, job=job)
    try:
        return kind.model_validate_json(json.dumps(content))
    except ValueError as error:
        raise damaged(path, f"it tells of no {file}") from error


def seal_archive(path: Path, **whose: Any) -> None:
    """Append a seal to an archive that NumPy has written."""
    comment = json.dumps({"checksum": BLANK.decode(), "format": FORMAT, **whose}).encode()
    with path.open("rb+") as file:
        file.seek(-2, os.SEEK_END)  # the last two bytes of an archive are the length of its comment
        file.write(len(comment).to_bytes(2, "little") + comment)
        file.flush()
        hole = file.tell() - len(comment) + len(BEGIN)
        written = checksum_of_file(path, hole)
        file.seek(hole)
        file.write(written.encode())


def open_archive(path: Path, **whose: Any) -> dict[str, Any]:
    """Return the seal of an archive, refusing one that is damaged or belongs elsewhere."""
    check_regular(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(-min(LONGEST, size), os.SEEK_END)
            tail = file.read()
        start = tail.rfind(BEGIN)
        seal = json.loads(tail[start:]) if start >= 0 else None
        written = checksum_of_file(path, size - len(tail) + start + len(BEGIN))
    except OSError as error:
        raise damaged(path, f"it cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, "its seal cannot be read") from error
    if not isinstance(seal, dict):
        raise damaged(path, "it carries no seal")
    if seal["checksum"] != written:
        raise damaged(path, "its checksum does not match")
    _check(path, seal, whose)
    return seal


def arrays_in(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays of an archive by their names."""
    try:
        return load_arrays(path, *names)
    except Exception as error:  # an archive may be wrong in any way
        raise damaged(path, f"its arrays cannot be read ({type(error).__name__}: {error})") from error


def is_unsealed(path: Path) -> bool:
    """Tell whether a file is an archive that never had a seal."""
    if not path.is_file():
        return False
    try:
        with ZipFile(path) as archive:
            return not archive.comment
    except (OSError, ValueError, BadZipFile):
        return False


def check_regular(path: Path) -> None:
    """Refuse a pipe or a folder in the place of a file: to open a pipe is to wait for its writer."""
    if path.exists() and not path.is_file():
        raise damaged(path, "it is no file")


def damaged(path: Path, why: str) -> CorruptionError:
    """Return the error that names a damaged file."""
    return CorruptionError(f"{path} is damaged: {why}")


def of_another_version(path: Path) -> WaveError:
    """Return the error that refuses what this version neither reads nor may remove."""
    return WaveError(
        f"{path} was written by another version of Forebay: go on with that version, or choose another output.directory"
    )


def _check(path: Path, seal: Mapping[str, Any], whose: Mapping[str, Any]) -> None:
    if seal.get("format") != FORMAT:
        raise of_another_version(path)
    for what, expected in whose.items():
        if seal.get(what) != expected:
            other = {"job": "it belongs to another job", "run": "it was written by another run"}
            raise damaged(path, other.get(what, f"it is {what} {seal.get(what)}, not {expected}"))
