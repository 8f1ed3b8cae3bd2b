"""The seal of a job's results: the checksums of image, sums, pictures and report, in `results.json`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay.checksums import checksum_of
from forebay.files import whole
from forebay.wave.files.seal import checksum_of_file, damaged, open_text, sealed_text

SEAL = "results.json"
RESULT = re.compile(
    r"(image|stack|illumination|model|difference|report|velocity|vp|vs|rho|start|update|gathers-[0-9]+)"
    r"\.(npy|zarr|segy|png|html)"
)
"""The names that results have."""


@contextmanager
def sealing(root: Path, identity: str) -> Iterator[list[Path]]:
    """Yield a list for the results that are written, and seal them when all of them are.

    Until then there is no seal: results of two runs would pass for those of one.
    """
    (root / SEAL).unlink(missing_ok=True)
    written: list[Path] = []
    yield written
    files = {path.name: _checksum(path) for path in written}
    with whole(root / SEAL) as path:
        path.write_text(sealed_text({"files": files}, file="results", job=identity))


def sealed_results(root: Path, identity: str) -> dict[Path, str]:
    """Return the checksums of the results that the last run wrote; none where it wrote none, or not all."""
    path = root / SEAL
    if not path.exists():
        return {}
    files = open_text(path, file="results", job=identity).get("files")
    if not isinstance(files, dict) or not all(RESULT.fullmatch(name) for name in files):
        raise damaged(path, "it tells of no results")
    if not all(isinstance(checksum, str) for checksum in files.values()):
        raise damaged(path, "it tells of no results")
    return {root / name: checksum for name, checksum in files.items()}


def reseal(root: Path, identity: str, path: Path) -> None:
    """Seal a result anew that was written once more; one that is no result of the last run stays as it is."""
    files = sealed_results(root, identity)
    if path not in files:
        return
    checksums = {each.name: checksum for each, checksum in files.items()} | {path.name: _checksum(path)}
    with whole(root / SEAL) as unfinished:
        unfinished.write_text(sealed_text({"files": checksums}, file="results", job=identity))


def check_result(path: Path, checksum: str) -> None:
    """Refuse a result that is not as it was written."""
    if not path.exists():
        raise damaged(path, "it is missing")
    try:
        found = _checksum(path)
    except OSError as error:
        raise damaged(path, f"it cannot be read ({error.strerror})") from error
    if found != checksum:
        raise damaged(path, "its checksum does not match")


def _checksum(path: Path) -> str:
    """Return the checksum of a file; of a folder, that of the names and checksums of its files."""
    if not path.is_dir():
        return checksum_of_file(path)
    below = sorted(entry for entry in path.rglob("*") if entry.is_file())
    return checksum_of(f"{file.relative_to(path)} {checksum_of_file(file)}\n".encode() for file in below)
