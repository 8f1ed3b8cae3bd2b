"""Sweeps over arrays three times as large as the device's budget: the pool beside its bound and beside copies per use.

Every array is used once a round, by a kernel that only reads it or one that changes it. The bound is what the farthest
next use has to move (Belady, with the whole budget) over what the link carries, measured in the same run: one way for
sweeps that read, both ways at once for those that write. Beside it stand what the least recently used order moves, and
a loop that copies each array from pinned memory before its kernel and back after it. With a codec the same bytes are
used and fewer move. Last, what the host spends on a use of an array that is there.

Run ``python bench/pool.py [--device 4GB] [--codec bounded:1e-4]``: takes four times the device's budget of host memory,
prints a table, and writes ``bench/out/pool.json`` as it goes; ``--tiny`` takes less time.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import cupy
import numpy as np
from rich.console import Console
from rich.table import Table

import forebay as fb
from forebay.cuda.driver import describe_gpus
from forebay.cuda.slab import PinnedSlab
from forebay.memory import Pool, ThrashWarning
from forebay.memory.sequence import Use
from forebay.memory.traffic import traffic
from forebay.tier.links import measure_links
from forebay.units import seconds_to_text, to_bytes, to_text

WARM, ROUNDS = 3, 4
OUT = Path(__file__).parent / "out" / "pool.json"
console = Console(width=180)


@dataclass
class Row:
    """What was measured of one way to sweep."""

    sweep: str
    way: str
    seconds: float
    """a round"""
    up: int
    down: int
    """bytes that moved in a round"""
    used_bytes_per_second: float
    """bytes that kernels read or changed, over the time"""
    of_bound: float
    """the time of the bound over this one's"""
    stall: float = 0.0
    """the part of its time that the computation stood still"""
    peak_device: int = 0
    ratio: float = 1.0


@dataclass(frozen=True)
class Setting:
    """Arrays and budget."""

    count: int
    shape: tuple[int, ...]
    device: int

    @property
    def nbytes(self) -> int:
        """Bytes of an array."""
        return 4 * int(np.prod(self.shape))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="4GB")
    parser.add_argument("--times", type=int, default=3, help="the data's bytes over the budget's")
    parser.add_argument("--slots", type=int, default=32, help="arrays that the budget holds")
    parser.add_argument("--codec", default="bounded:1e-4")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ThrashWarning)
    device = to_bytes("256MB" if options.tiny else options.device)
    plane = device // options.slots // 4 // (128 * 128)
    setting = Setting(options.times * options.slots, (plane, 128, 128), device)
    links = measure_links(nbytes="256MB")
    assert links.pinned_up and links.pinned_both
    console.print(
        f"{setting.count} arrays of {to_text(setting.nbytes)}, budget {to_text(device)}; link "
        f"{links.pinned_up / 1e9:.1f} GB/s up, {links.pinned_both / 1e9:.1f} GB/s each way at once"
    )
    about: dict[str, Any] = {
        "date": str(date.today()),
        "gpus": [asdict(gpu) for gpu in describe_gpus()],
        "cupy": cupy.__version__,
        "setting": asdict(setting),
        "links": asdict(links),
    }
    rows: list[Row] = []
    for sweep in ("read", "write"):
        speed = links.pinned_up if sweep == "read" else links.pinned_both
        bound = bound_of(setting, sweep, "min")
        seconds = max(bound) / speed
        rows.append(_row(setting, sweep, "bound, farthest next use", seconds, bound, seconds))
        least = bound_of(setting, sweep, "lru")
        rows.append(_row(setting, sweep, "bound, least recently used", max(least) / speed, least, seconds))
        rows.append(pool_sweeps(setting, sweep, None, seconds))
        console.print(f"  {sweep}: pool at {rows[-1].of_bound:.3f} of the bound", highlight=False)
        write(about, rows)
        rows.append(copies_per_use(setting, sweep, seconds))
        rows.append(pool_sweeps(setting, sweep, options.codec, seconds))
        console.print(f"  {sweep}: with {options.codec} at {rows[-1].of_bound:.3f} of the raw bound", highlight=False)
        write(about, rows)
    overhead = {library: overhead_of_a_use(library) for library in ("cupy", "torch")}
    show(setting, rows, overhead)
    write(about | {"host_seconds_per_use": overhead}, rows)


def write(about: dict[str, Any], rows: list[Row]) -> None:
    """Keep what was measured so far."""
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(about | {"rows": [asdict(row) for row in rows]}, indent=1))


def bound_of(setting: Setting, sweep: str, policy: str) -> tuple[int, int]:
    """Give the bytes of a round, up and down, in the long run."""
    rounds = 40
    roles = [Use((key,)) if sweep == "read" else Use((), (key,)) for key in range(setting.count)]
    sizes = dict.fromkeys(range(setting.count), setting.nbytes)
    found = traffic(roles * rounds, sizes, setting.device, policy, warm=setting.count * 2)
    return found.up // (rounds - 2), found.down // (rounds - 2)


def pool_sweeps(setting: Setting, sweep: str, codec: str | None, bound: float) -> Row:
    """Sweep with the pool."""
    host = int(1.3 * setting.count * setting.nbytes) + 2**28
    with Pool(fb.Budget(device=setting.device, host=host), codec, "cupy") as pool:
        arrays = [pool.put(field(setting, number), name=f"field {number}") for number in range(setting.count)]
        total = cupy.zeros(setting.shape, "float32")
        kernel = kernel_of(sweep, total)
        role = "reads" if sweep == "read" else "writes"

        def one_round() -> None:
            for array in arrays:
                with pool.use(**{role: [array]}) as (values,):
                    kernel(values)

        for _ in range(WARM):
            one_round()
        pool.wait()
        before, stalled = dict(pool.metrics.moved), pool.metrics.phases["stall"]
        start = perf_counter()
        for _ in range(ROUNDS):
            one_round()
        pool.wait()
        seconds = (perf_counter() - start) / ROUNDS
        metrics = pool.metrics
        moved = tuple((metrics.moved[lane] - before.get(lane, 0)) // ROUNDS for lane in ("up 1", "down 1"))
        row = _row(setting, sweep, f"pool, {codec}" if codec else "pool", seconds, moved, bound)
        row.stall = (metrics.phases["stall"] - stalled) / ROUNDS / seconds
        row.peak_device, row.ratio = metrics.peak_device, metrics.mean_ratio if metrics.ratios else 1.0
        check(setting, pool, arrays, sweep, lossy=codec is not None)
        return row


def copies_per_use(setting: Setting, sweep: str, bound: float) -> Row:
    """Copy each array up before its kernel and, where it was changed, down after it."""
    total = cupy.zeros(setting.shape, "float32")
    kernel, room = kernel_of(sweep, total), cupy.empty(setting.shape, "float32")
    slab = PinnedSlab(setting.count * setting.nbytes)
    try:
        every = slab.array.view(np.float32).reshape(setting.count, *setting.shape)
        every[:] = 1

        def one_round() -> None:
            for array in every:
                room.set(array)
                kernel(room)
                if sweep == "write":
                    room.get(out=array)
            cupy.cuda.get_current_stream().synchronize()

        one_round()
        start = perf_counter()
        for _ in range(ROUNDS):
            one_round()
        seconds = (perf_counter() - start) / ROUNDS
        moved = setting.count * setting.nbytes, setting.count * setting.nbytes * (sweep == "write")
        return _row(setting, sweep, "pinned copies per use", seconds, moved, bound)
    finally:
        slab.close()


def overhead_of_a_use(library: str) -> float:
    """Time what the host does for a use of two arrays that are there."""
    with Pool(fb.Budget(device="64MB", host="64MB"), arrays=library) as pool:
        a, b = pool.put(np.zeros(1000, "float32")), pool.put(np.zeros(1000, "float32"))
        for repeat in range(2):
            start = perf_counter()
            for _ in range(2000):
                with pool.use(reads=[a], writes=[b]):
                    pass
            seconds = (perf_counter() - start) / 2000
            if repeat == 0:
                pool.wait()
    return seconds


def field(setting: Setting, number: int) -> Any:
    """Make a smooth array, on the device."""
    axes = [cupy.linspace(0, 1, extent, dtype="float32") for extent in setting.shape]
    z, y, x = axes[0][:, None, None], axes[1][None, :, None], axes[2][None, None, :]
    return cupy.sin(9 * z + 7 * y + 0.1 * number) * cupy.cos(11 * x - 5 * y) + cupy.float32(number % 7)


def kernel_of(sweep: str, total: Any) -> Callable[[Any], None]:
    """Give what is computed on an array: it is bound by memory in both sweeps."""
    if sweep == "read":
        return lambda values: cupy.add(total, values, out=total)
    return lambda values: cupy.add(values, cupy.float32(0.5), out=values)


def check(setting: Setting, pool: Pool, arrays: list[Any], sweep: str, lossy: bool) -> None:
    """Make sure that the last array has the values it should have."""
    expected = field(setting, setting.count - 1)
    if sweep == "write":
        for _ in range(WARM + ROUNDS):
            expected += cupy.float32(0.5)
    error = float(np.abs(pool.get(arrays[-1]) - expected.get()).max())
    assert error == 0 or (lossy and error < 1e-3 * (WARM + ROUNDS)), error


def _row(setting: Setting, sweep: str, way: str, seconds: float, moved: Any, bound: float) -> Row:
    used = setting.count * setting.nbytes / seconds
    return Row(sweep, way, seconds, int(moved[0]), int(moved[1]), used, bound / seconds)


def show(setting: Setting, rows: list[Row], overhead: dict[str, float]) -> None:
    table = Table("sweep", "way", "a round", "up", "down", "used", "of the bound", "stall", "peak device", "ratio")
    table.title = f"{setting.count} arrays of {to_text(setting.nbytes)} within {to_text(setting.device)}"
    for row in rows:
        table.add_row(
            row.sweep,
            row.way,
            seconds_to_text(row.seconds),
            to_text(row.up),
            to_text(row.down),
            f"{row.used_bytes_per_second / 1e9:.1f} GB/s",
            f"{row.of_bound:.3f}",
            f"{row.stall:.0%}",
            to_text(row.peak_device),
            f"{row.ratio:.2f}",
        )
    console.print(table)
    for library, seconds in overhead.items():
        console.print(f"host time of a use of two arrays that are there, {library}: {seconds_to_text(seconds)}")


if __name__ == "__main__":
    main()
