"""Sweeps over arrays three times as large as the device's budget: the pool beside its bound and beside copies per use.

Every array is used once a round, by a kernel that only reads it or one that changes it. The bound is what the farthest
next use has to move (Belady, with the whole budget) over what the link carries, measured in the same run: one way for
sweeps that read, both ways at once for those that write. Beside it stand what the least recently used order moves, and
a loop that copies each array from pinned memory before its kernel and back after it. With a codec the same bytes are
used and fewer move. Last, what the host spends on a use of an array that is there.

Takes four times the device's budget of host memory.
"""

import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from cases.traffic import traffic
from harness import Report, arg, benchmark, seconds

import forebay as fb
from forebay.units import to_bytes, to_text

WARM, ROUNDS = 3, 4


class Setting(NamedTuple):
    """Arrays and budget."""

    count: int
    shape: tuple[int, ...]
    nbytes: int
    device: int

    def row(self, sweep: str, way: str, seconds: float, moved: Any, bound: float) -> dict[str, Any]:
        """Tell what was measured of one way to sweep; seconds and bytes are those of a round."""
        used = self.count * self.nbytes / seconds
        speeds = {"used_GBps": used / 1e9, "of_bound": bound / seconds}
        return {"sweep": sweep, "way": way, "seconds": seconds, "up": int(moved[0]), "down": int(moved[1])} | speeds


@benchmark(
    arg("--device", default="4GB", tiny="256MB"),
    arg("--times", type=int, default=3, help="the data's bytes over the budget's"),
    arg("--slots", type=int, default=32, help="arrays that the budget holds"),
    arg("--codec", default="bounded:1e-4"),
    needs=("gpu", "cupy", "torch"),
)
def main(asked: Any, report: Report) -> None:
    from forebay.memory import ThrashWarning
    from forebay.tier.links import measure_links

    warnings.simplefilter("ignore", ThrashWarning)
    device = to_bytes(asked.device)
    plane = device // asked.slots // 4 // (128 * 128)
    setting = Setting(asked.times * asked.slots, (plane, 128, 128), 4 * plane * 128 * 128, device)
    links = measure_links(nbytes="256MB")
    assert links.pinned_up and links.pinned_both
    report.facts |= {"setting": setting._asdict(), "links": asdict(links)}
    report.say(f"{setting.count} arrays of {to_text(setting.nbytes)}, budget {to_text(device)}; {links}")
    for sweep in ("read", "write"):
        speed = links.pinned_up if sweep == "read" else links.pinned_both
        bound = bound_of(setting, sweep, "min")
        shortest = max(bound) / speed
        report.add(setting.row(sweep, "bound, farthest next use", shortest, bound, shortest))
        least = bound_of(setting, sweep, "lru")
        report.add(setting.row(sweep, "bound, least recently used", max(least) / speed, least, shortest))
        report.add(pool_sweeps(setting, sweep, None, shortest))
        report.add(copies_per_use(setting, sweep, shortest))
        report.add(pool_sweeps(setting, sweep, asked.codec, shortest))
    report.facts["host_seconds_per_use"] = {library: overhead_of_a_use(library) for library in ("cupy", "torch")}
    report.table(
        f"{setting.count} arrays of {to_text(setting.nbytes)} within {to_text(device)}",
        "sweep way seconds:s up:B down:B used_GBps:.1f of_bound:.3f stall:.0% peak_device:B ratio:.2f",
    )
    report.say(f"host seconds of a use of two arrays that are there: {report.facts['host_seconds_per_use']}")


def bound_of(setting: Setting, sweep: str, policy: str) -> tuple[int, int]:
    """Return the bytes of a round, up and down, in the long run."""
    from forebay.memory.pool.sequence import Use

    rounds = 40
    roles = [Use((key,)) if sweep == "read" else Use((), (key,)) for key in range(setting.count)]
    sizes = dict.fromkeys(range(setting.count), setting.nbytes)
    moved = traffic(roles * rounds, sizes, setting.device, policy, warm=setting.count * 2)
    return moved.up // (rounds - 2), moved.down // (rounds - 2)


def pool_sweeps(setting: Setting, sweep: str, codec: str | None, bound: float) -> dict[str, Any]:
    """Sweep with the pool."""
    import cupy

    from forebay.memory import Pool

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
        taken = seconds(lambda: ([one_round() for _ in range(ROUNDS)], pool.wait())) / ROUNDS
        metrics = pool.metrics
        moved = tuple((metrics.moved[lane] - before.get(lane, 0)) // ROUNDS for lane in ("up 1", "down 1"))
        row = setting.row(sweep, f"pool, {codec}" if codec else "pool", taken, moved, bound)
        row |= {"stall": (metrics.phases["stall"] - stalled) / ROUNDS / taken, "peak_device": metrics.peak_device}
        check(setting, pool, arrays, sweep, lossy=codec is not None)
        return row | {"ratio": metrics.mean_ratio if metrics.ratios else 1.0}


def copies_per_use(setting: Setting, sweep: str, bound: float) -> dict[str, Any]:
    """Copy each array up before its kernel and, where it was changed, down after it."""
    import cupy

    from forebay.cuda.slab import PinnedSlab

    total = cupy.zeros(setting.shape, "float32")
    kernel, room = kernel_of(sweep, total), cupy.empty(setting.shape, "float32")
    with PinnedSlab(setting.count * setting.nbytes) as slab:
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
        taken = seconds(lambda: [one_round() for _ in range(ROUNDS)]) / ROUNDS
    moved = setting.count * setting.nbytes, setting.count * setting.nbytes * (sweep == "write")
    return setting.row(sweep, "pinned copies per use", taken, moved, bound)


def overhead_of_a_use(library: str) -> float:
    """Time what the host does for a use of two arrays that are there."""
    from forebay.memory import Pool

    with Pool(fb.Budget(device="64MB", host="64MB"), arrays=library) as pool:
        a, b = pool.put(np.zeros(1000, "float32")), pool.put(np.zeros(1000, "float32"))

        def uses() -> None:
            for _ in range(2000):
                with pool.use(reads=[a], writes=[b]):
                    pass

        uses()
        pool.wait()
        return seconds(uses) / 2000


def field(setting: Setting, number: int) -> Any:
    """Make a smooth array, on the device."""
    import cupy

    axes = (cupy.linspace(0, 1, extent, dtype="float32") for extent in setting.shape)
    z, y, x = cupy.meshgrid(*axes, indexing="ij", sparse=True)
    return cupy.sin(9 * z + 7 * y + 0.1 * number) * cupy.cos(11 * x - 5 * y) + cupy.float32(number % 7)


def kernel_of(sweep: str, total: Any) -> Callable[[Any], None]:
    """Return what is computed on an array: it is bound by memory in both sweeps."""
    import cupy

    if sweep == "read":
        return lambda values: cupy.add(total, values, out=total)
    return lambda values: cupy.add(values, cupy.float32(0.5), out=values)


def check(setting: Setting, pool: Any, arrays: list[Any], sweep: str, lossy: bool) -> None:
    """Make sure that the last array has the values it should have."""
    import cupy

    expected = field(setting, setting.count - 1)
    if sweep == "write":
        for _ in range(WARM + ROUNDS):
            expected += cupy.float32(0.5)
    error = float(np.abs(pool.get(arrays[-1]) - expected.get()).max())
    assert error == 0 or (lossy and error < 1e-3 * (WARM + ROUNDS)), error


if __name__ == "__main__":
    main()
