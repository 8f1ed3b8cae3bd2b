"""Chunks that fit beside ``chunks="auto"``: seismic operators over volumes on Dask workers with little memory.

Each case is an operator, a shape and the memory of each of two workers. The volume is read from Zarr and the result is
written to Zarr, once in the chunks that ``forebay.dask`` chooses and once in those of ``chunks="auto"``; halos are the
same, and so are results. A run fails where a worker dies; its peak is the kernel's high-water mark, read all the while.
Seconds are those of Dask alone: learning, which happens once an operator, and planning are told apart. Beside the wall
clock stands the processor time of the busiest worker, which other users of the machine disturb less.

``--attributes`` computes twenty seismic attributes of a volume beside chunks by hand, which are the same for all.

Takes about ten minutes on two cores.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from harness import Report, arg, benchmark, high_water, median, reset_high_water

from forebay.units import to_bytes

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
STORED = (64, 64, 64)
WORKERS = 2
QUIET = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")} | {"MALLOC_TRIM_THRESHOLD_": "65536"}
CASES = [
    *product(("envelope", "gaussian"), ((325, 475, 231), (199, 211, 997)), ("600MB", "1GB", "2GB")),
    *product(("gst3d",), ((163, 238, 116), (127, 131, 149)), ("600MB", "1GB", "3GB")),
    ("envelope", (651, 951, 462), "2GB"),
    ("gaussian", (651, 951, 462), "2GB"),
    ("gst3d", (217, 317, 154), "3GB"),
]
"""An operator, a shape and the memory of a worker; 651 x 951 x 462 is F3."""


HANDS = ("64x64x462", "128x128x462", "256x256x462", "32x951x462")
"""Chunks that people take for volumes like F3: traces whole, since some attributes need them so."""


def works() -> dict[str, Any]:
    from seismic_attributes import ATTRIBUTES, Attribute
    from seismic_operators import gaussian, gst3d

    def dip(chunk: np.ndarray) -> np.ndarray:
        """Find the dip of every voxel: those at the edge, which `gst3d` leaves out, take that of their neighbours."""
        return np.pad(gst3d(chunk), 1, mode="edge")

    return ATTRIBUTES | {"gaussian": Attribute(gaussian, (12, 12, 12)), "gst3d": Attribute(dip, (5, 5, 5))}


@benchmark(
    arg("--only", tiny="envelope", help="one operator"),
    arg("--attributes", type=int, help="twenty attributes of F3, its lengths divided by this"),
    arg("--ways", nargs="+", default=["ours", *HANDS], help="of attributes: ours, auto, or chunks like 64x64x462"),
    arg("--memory", default="1GB", help="of each worker, for attributes"),
    needs=("dask", "distributed", "zarr", "scipy"),
)
def main(asked: Any, report: Report) -> None:
    from forebay.footprint import learn

    cases = [case for case in CASES if not asked.only or case[0] == asked.only]
    cases, ways = [("envelope", (40, 40, 64), "600MB")] if asked.tiny else cases, ["ours", "auto"]
    if asked.attributes:
        shape, ways = tuple(-(-length // asked.attributes) for length in (651, 951, 462)), asked.ways
        cases = [(name, shape, asked.memory) for name in list(works())[:20] if not asked.only or name == asked.only]
    models = {}
    for name in dict.fromkeys(case[0] for case in cases):
        work, begun = works()[name], time.perf_counter()
        shape = cases[0][1] if asked.tiny else (325, 475, 231)
        models[name] = learn(work.func, ndim=3, dtype="float32", shape=shape, smallest=2 * max(work.depth) + 1)
        report.facts[f"learning {name}"] = {"seconds": time.perf_counter() - begun}
    with tempfile.TemporaryDirectory(prefix="forebay-chunks-") as name:
        for case in cases:
            source = volume(Path(name), case[1])
            for way in ways:
                row = report.add(run(way, *case, source, Path(name), models[case[0]], threads=asked.tiny))
                if row["failure"] and way == "ours":
                    report.fail(f"ours, {case}: {row['failure']}")
    columns = "operator shape memory way chunks count seconds:s busiest:s failure peak_share:.0% planning:s"
    report.table(f"{WORKERS} workers", columns)
    conclude(report, ways)


def volume(folder: Path, shape: tuple[int, ...]) -> Path:
    """Store random layers once, as a survey is stored: in small cubes."""
    import zarr

    path = folder / ("x".join(map(str, shape)) + ".zarr")
    if not path.exists():
        stored = zarr.create_array(path, shape=shape, chunks=STORED, dtype="float32", compressors=None)
        random = np.random.default_rng(0)
        for start in range(0, shape[0], STORED[0]):
            stop = min(shape[0], start + STORED[0])
            stored[start:stop] = random.standard_normal((stop - start, *shape[1:]), dtype="float32")
    return path


def run(
    way: str, operator: str, shape: Any, memory: str, source: Path, folder: Path, model: Any, *, threads: bool
) -> dict[str, Any]:
    """Run one case on a fresh cluster; `threads` makes its workers threads of this process, whose peaks are its."""
    import dask.array as da
    import dask.config
    import distributed
    import zarr

    import forebay.dask as door

    work, target = works()[operator], folder / f"result-{time.monotonic_ns()}.zarr"
    settings = {
        "distributed.scheduler.allowed-failures": 0,
        "logging.distributed": "critical",
        "distributed.nanny.pre-spawn-environ": {**door.ENVIRONMENT, **QUIET},
    }
    workers = {"n_workers": WORKERS, "threads_per_worker": 1, "memory_limit": memory, "local_directory": str(folder)}
    workers["processes"] = not threads
    with (
        dask.config.set(settings),
        distributed.LocalCluster(dashboard_address=":0", silence_logs=50, **workers) as cluster,
        distributed.Client(cluster) as client,
    ):
        stored = zarr.open_array(source, mode="r")
        # What the work needs is loaded in the workers, so that no run pays for imports.
        client.run(lambda func, stored: func(stored[:32, :32, :32]) is None, work.func, stored)
        begun = time.perf_counter()
        halo = {"depth": work.depth, "boundary": "none"}
        if way == "ours":
            how = {"model": model, "whole": work.whole}
            chunks: Any = door.chunks_for(work.func, stored, client, **how, **halo)
            library, more = door, how | {"client": client}
        else:
            lengths = ["auto"] * 3 if way == "auto" else np.minimum([*map(int, way.split("x"))], shape).tolist()
            chunks = tuple(-1 if axis in work.whole else length for axis, length in enumerate(lengths))
            library, more = da, {"dtype": "float32", "meta": np.empty((0, 0, 0), "float32")}
        array = da.from_array(stored, chunks=chunks)
        planning = time.perf_counter() - begun
        if any(work.depth):
            result = library.map_overlap(work.func, array, **halo, **more)
        else:
            result = library.map_blocks(work.func, array, **more)
        stored_as = {"chunks": result.chunksize, "dtype": result.dtype, "compressors": None}
        written = zarr.create_array(target, shape=result.shape, **stored_as)
        before = client.run(time.process_time)
        failure = ""
        with watched(client) as most:
            begun = time.perf_counter()
            try:
                client.compute(da.store(result, written, lock=False, compute=False)).result(timeout=300)
            except Exception as error:
                failure = type(error).__name__
            seconds = time.perf_counter() - begun
        row = {"operator": operator, "shape": shape, "memory": memory, "way": way, "chunks": result.chunksize}
        row |= {"count": prod(result.numblocks), "planning": planning, "failure": failure, "peak": most[0]}
        if not failure:
            after = client.run(time.process_time)
            row |= {"seconds": seconds, "busiest": max(after[worker] - before[worker] for worker in after)}
        return row | {"peak_share": most[0] / to_bytes(memory)}


@contextmanager
def watched(client: Any) -> Iterator[list[int]]:
    """Yield a list whose one number is the largest high-water mark of any worker so far."""
    workers, over, most = list(client.run(os.getpid).values()), threading.Event(), [0]
    for worker in workers:
        reset_high_water(worker)

    def look() -> None:
        while not over.wait(0.005):
            most[0] = max(most[0], *map(high_water, workers))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()
        most[0] = max(most[0], *map(high_water, workers))


def conclude(report: Report, ways: list[str]) -> None:
    """Say how many runs failed of each way, and how our seconds compare where both finished."""
    rows = {way: [row for row in report.rows if row["way"] == way] for way in ways}
    for way, own in rows.items():
        above = sum(row["peak_share"] > 1 for row in own)
        report.say(f"{way}: {sum(bool(row['failure']) for row in own)} of {len(own)} failed, {above} above the limit")
    for way in ways[1:] if ways[0] == "ours" else ():
        pairs = zip(rows["ours"], rows[way], strict=True)
        both = [(ours, other) for ours, other in pairs if not ours["failure"] and not other["failure"]]
        for what in ("seconds", "busiest") if both else ():
            name, ratios = f"{what}, ours / {way}", [ours[what] / other[what] for ours, other in both]
            everything = sum(ours[what] for ours, _ in both) / sum(other[what] for _, other in both)
            report.facts[name] = {"median": median(ratios), "worst": max(ratios), "all": everything}
            report.say(f"{name}, where both finish ({len(both)}): {report.facts[name]}")


if __name__ == "__main__":
    main()
