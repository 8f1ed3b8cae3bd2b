"""The disk tier against the bare disk: the same sizes, chunks, threads and I/O mode, without checksums or bookkeeping.

Run ``python bench/disk.py [DIRECTORY]``: takes 4 GB there for a minute, prints a table, writes ``bench/out/disk.json``.
"""

import json
import mmap
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from forebay.tier.blocks import CHUNK
from forebay.tier.disk import Disk
from forebay.tier.files import direct_flag

SIZE = 256 << 20
SNAPSHOTS = 4
THREADS = 8
REPETITIONS = 7

Buffers = list[NDArray[np.uint8]]


class Bare:
    """What the tier has to keep up with: aligned buffers, pwrite and preadv in as many threads, nothing else."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor, buffers: Buffers) -> None:
        self.paths = [folder / f"bare{number}" for number in range(SNAPSHOTS)]
        self.pool, self.buffers, self.flag = pool, buffers, direct_flag(folder)

    def delete(self) -> None:
        """Delete all files."""
        for path in self.paths:
            path.unlink(missing_ok=True)

    def write(self) -> None:
        """Write all buffers at once."""
        fds = [os.open(path, os.O_WRONLY | os.O_CREAT | self.flag, 0o600) for path in self.paths]
        for fd in fds:
            os.posix_fallocate(fd, 0, SIZE)
        self._move(fds, os.pwrite)

    def read(self) -> None:
        """Read all buffers at once."""
        self._move([os.open(path, os.O_RDONLY | self.flag) for path in self.paths], _pread_into)

    def read_singly(self) -> None:
        """Read all buffers, each when the one before has come."""
        for number, path in enumerate(self.paths):
            self._move([os.open(path, os.O_RDONLY | self.flag)], _pread_into, first=number)

    def _move(self, fds: list[int], call: Callable[..., int], first: int = 0) -> None:
        moves = [
            self.pool.submit(call, fd, buffer[offset : offset + CHUNK], offset)
            for fd, buffer in zip(fds, self.buffers[first:], strict=False)
            for offset in range(0, SIZE, CHUNK)
        ]
        assert all(move.result() == CHUNK for move in moves)
        for fd in fds:
            os.close(fd)


class Tier:
    """The same moves by the disk tier."""

    def __init__(self, folder: Path, buffers: Buffers) -> None:
        self.disk = Disk(folder, SNAPSHOTS * SIZE, threads=THREADS)
        self.buffers = buffers

    def drop(self) -> None:
        """Drop all snapshots, which keeps their files for the next."""
        for step in range(SNAPSHOTS):
            self.disk.drop(step)

    def write(self) -> None:
        """Write all buffers at once."""
        for future in [self.disk.write(step, buffer) for step, buffer in enumerate(self.buffers)]:
            future.result()

    def read(self) -> None:
        """Read all buffers at once."""
        for future in [self.disk.read(step, buffer) for step, buffer in enumerate(self.buffers)]:
            future.result()

    def read_singly(self) -> None:
        """Read all buffers, each when the one before has come."""
        for step, buffer in enumerate(self.buffers):
            self.disk.read(step, buffer).result()


def main() -> None:
    aligned = [np.frombuffer(mmap.mmap(-1, SIZE), np.uint8) for _ in range(SNAPSHOTS)]
    unaligned = [np.frombuffer(mmap.mmap(-1, SIZE + 16), np.uint8)[16:] for _ in range(SNAPSHOTS)]
    for seed, (one, other) in enumerate(zip(aligned, unaligned, strict=True)):
        one[:] = np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8)
        other[:] = one
    where = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    rates: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=where) as folder, ThreadPoolExecutor(THREADS) as pool:
        bare = Bare(Path(folder), pool, aligned)
        tiers = {"aligned": Tier(Path(folder), aligned), "unaligned": Tier(Path(folder), unaligned)}
        for tier in tiers.values():
            tier.write()  # threads are started, the checksum is compiled
        for repetition in range(REPETITIONS):
            for name, tier in tiers.items():
                fresh = Tier(Path(folder), tier.buffers)
                for what, pair in alternate(bare, tier, fresh, bare_first=bool(repetition % 2)):
                    rates.setdefault(f"{what}, {name}", []).append(pair)
                fresh.disk.close()
        for tier in tiers.values():
            tier.disk.close()
    rows = [summary(what, pairs) for what, pairs in sorted(rates.items())]
    show(rows)
    out = Path(__file__).parent / "out" / "disk.json"
    out.parent.mkdir(exist_ok=True)
    setting = {"size": SIZE, "snapshots": SNAPSHOTS, "threads": THREADS, "chunk": CHUNK, "repetitions": REPETITIONS}
    out.write_text(json.dumps({"setting": setting, "machine": platform.platform(), "rows": rows}, indent=2) + "\n")


def alternate(bare: Bare, tier: Tier, fresh: Tier, *, bare_first: bool) -> Iterator[tuple[str, tuple[float, float]]]:
    """Time each move on the bare disk and on the tier, one right after the other."""

    def rates(on_bare: Callable[[], None], on_tier: Callable[[], None]) -> tuple[float, float]:
        if bare_first:
            return rate(on_bare), rate(on_tier)
        return (rate(on_tier), rate(on_bare))[::-1]

    bare.delete()
    yield "write new files", rates(bare.write, fresh.write)
    tier.drop()
    yield "write over dropped files", rates(bare.write, tier.write)
    bare.read()  # a virtual disk may still be busy with the writes; neither side shall pay for that
    yield "read", rates(bare.read, tier.read)
    yield "read one by one", rates(bare.read_singly, tier.read_singly)


def rate(move: Callable[[], None]) -> float:
    started = time.perf_counter()
    move()
    return SNAPSHOTS * SIZE / (time.perf_counter() - started) / 1e9


def summary(what: str, pairs: list[tuple[float, float]]) -> dict[str, str | float]:
    ratios = [tier / bare for bare, tier in pairs]
    return {
        "what": what,
        "bare_GBps": round(statistics.median(bare for bare, _ in pairs), 2),
        "tier_GBps": round(statistics.median(tier for _, tier in pairs), 2),
        "ratio": round(statistics.median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
    }


def show(rows: list[dict[str, str | float]]) -> None:
    table = Table("", "bare GB/s", "tier GB/s", "ratio", "lowest", "highest", title="disk tier / bare disk, medians")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)


def _pread_into(fd: int, part: NDArray[np.uint8], offset: int) -> int:
    return os.preadv(fd, [part], offset)


if __name__ == "__main__":
    main()
