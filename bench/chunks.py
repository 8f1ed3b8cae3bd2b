"""Chunks that fit beside ``chunks="auto"``: seismic operators over volumes on Dask workers with little memory.

Each case is an operator, a shape and the memory of each of two workers. The volume is read from Zarr and the result is
written to Zarr, once in the chunks that ``forebay.dask`` chooses and once in those of ``chunks="auto"``; halos are the
same, and so are results. A run fails where a worker dies; its peak is the kernel's high-water mark, read all the while.
Seconds are those of Dask alone: learning, which happens once an operator, and planning are told apart. Beside the wall
clock stands the processor time of the busiest worker, which other users of the machine disturb less.

Run ``python bench/chunks.py``: takes about ten minutes on two cores, prints a table and writes its figures to
``bench/out/chunks.json``; ``--quick`` takes the smallest shapes only.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import dask.config
import distributed
import numpy as np
import zarr
from rich.console import Console
from rich.table import Table

import forebay.dask as door
from forebay.footprint.learn import learn
from forebay.footprint.operators import envelope, gaussian, gst3d
from forebay.units import seconds_to_text, to_bytes, to_text

console = Console(width=160)
F3 = (651, 951, 462)
STORED = (64, 64, 64)
WORKERS = 2


def dip(block: np.ndarray) -> np.ndarray:
    """Find the dip of every voxel: those at the edge, which `gst3d` leaves out, take that of the voxel next to them."""
    return np.pad(gst3d(block), 1, mode="edge")


@dataclass(frozen=True)
class Work:
    """An operator, the halo it needs, and the axes it needs whole."""

    name: str
    func: Any
    depth: tuple[int, int, int]
    whole: tuple[int, ...]


WORKS = {
    "envelope": Work("envelope", envelope, (0, 0, 0), (2,)),
    "gaussian": Work("gaussian", gaussian, (12, 12, 12), ()),
    "gst3d": Work("gst3d", dip, (5, 5, 5), ()),
}


@dataclass(frozen=True)
class Case:
    """What is run, on workers of how much memory."""

    work: str
    shape: tuple[int, int, int]
    memory: str


CASES = [
    *(
        Case("envelope", shape, memory)
        for shape in ((325, 475, 231), (199, 211, 997))
        for memory in ("600MB", "1GB", "2GB")
    ),
    *(
        Case("gaussian", shape, memory)
        for shape in ((325, 475, 231), (199, 211, 997))
        for memory in ("600MB", "1GB", "2GB")
    ),
    *(
        Case("gst3d", shape, memory)
        for shape in ((163, 238, 116), (127, 131, 149))
        for memory in ("600MB", "1GB", "3GB")
    ),
    Case("envelope", F3, "2GB"),
    Case("gaussian", F3, "2GB"),
    Case("gst3d", (217, 317, 154), "3GB"),
]


@dataclass
class Run:
    """What was measured of one way to cut one case."""

    way: str
    chunks: tuple[int, ...]
    blocks: int
    seconds: float | None
    busiest: float | None
    """seconds of processor time of the worker that computed most"""
    planning: float
    failure: str
    peak: int
    limit: int


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the smallest shapes only")
    parser.add_argument("--only", help="one operator")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "out" / "chunks.json")
    arguments = parser.parse_args()
    cases = [case for case in CASES if not arguments.only or case.work == arguments.only]
    if arguments.quick:
        cases = [case for case in cases if np.prod(case.shape) < 3e6]
    folder = Path(tempfile.mkdtemp(prefix="forebay-chunks-"))
    try:
        report(cases, folder, arguments.repeats, arguments.output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(cases: list[Case], folder: Path, repeats: int, output: Path) -> None:
    models, learning = {}, {}
    for name in dict.fromkeys(case.work for case in cases):
        work = WORKS[name]
        begun = time.perf_counter()
        models[name] = learn(
            work.func, ndim=3, dtype="float32", shape=(325, 475, 231), smallest=2 * max(work.depth) + 1
        )
        learning[name] = {"seconds": time.perf_counter() - begun, "samples": len(models[name].samples)}
        console.print(f"{name}: learned from {len(models[name].samples)} runs in {learning[name]['seconds']:.1f} s")
    rows = []
    for case in cases:
        source = volume(folder, case.shape)
        runs = [run(way, case, source, folder, models[case.work]) for _ in range(repeats) for way in ("ours", "auto")]
        rows.append((case, runs))
        for one in runs:
            told = one.failure or seconds_to_text(one.seconds or 0)
            console.print(f"{case.work} {case.shape} {case.memory} {one.way}: {one.chunks} {told}, {to_text(one.peak)}")
        write(rows, learning, output)
    show(rows)


def volume(folder: Path, shape: tuple[int, int, int]) -> Path:
    """Store random layers once, as a survey is stored: in small cubes."""
    path = folder / ("x".join(map(str, shape)) + ".zarr")
    if not path.exists():
        stored = zarr.create_array(path, shape=shape, chunks=STORED, dtype="float32", compressors=None)
        random = np.random.default_rng(0)
        for start in range(0, shape[0], STORED[0]):
            stop = min(shape[0], start + STORED[0])
            stored[start:stop] = random.standard_normal((stop - start, *shape[1:]), dtype="float32")
    return path


def run(way: str, case: Case, source: Path, folder: Path, model: Any) -> Run:
    """Run one case on a fresh cluster."""
    work, target = WORKS[case.work], folder / "result.zarr"
    shutil.rmtree(target, ignore_errors=True)
    environment = {"distributed.nanny.pre-spawn-environ": {**door.ENVIRONMENT, **quiet()}}
    with (
        dask.config.set(
            {"distributed.scheduler.allowed-failures": 0, "logging.distributed": "critical", **environment}
        ),
        distributed.LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            memory_limit=case.memory,
            dashboard_address=":0",
            silence_logs=50,
            local_directory=str(folder),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(warm, work.func, str(source))
        stored = zarr.open_array(source, mode="r")
        begun = time.perf_counter()
        if way == "ours":
            chunks: Any = door.chunks_for(
                work.func, stored, client, model=model, depth=work.depth, boundary="none", whole=work.whole
            )
        else:
            chunks = tuple(-1 if axis in work.whole else "auto" for axis in range(3))
        array = da.from_array(stored, chunks=chunks)
        planning = time.perf_counter() - begun
        result = apply(way, work, array, client, model)
        written = zarr.create_array(
            target, shape=result.shape, chunks=result.chunksize, dtype=result.dtype, compressors=None
        )
        before = client.run(time.process_time)
        with Peaks(client) as peaks:
            begun, failure = time.perf_counter(), ""
            try:
                client.compute(da.store(result, written, lock=False, compute=False)).result(timeout=300)
            except Exception as error:
                failure = type(error).__name__
            seconds = time.perf_counter() - begun
        after = {} if failure else client.run(time.process_time)
        return Run(
            way,
            result.chunksize,
            int(np.prod(result.numblocks)),
            None if failure else seconds,
            None if failure else max(after[worker] - before[worker] for worker in after),
            planning,
            failure,
            peaks.most,
            to_bytes(case.memory),
        )


def apply(way: str, work: Work, array: Any, client: distributed.Client, model: Any) -> Any:
    if way == "ours":
        if any(work.depth):
            return door.map_overlap(
                work.func, array, depth=work.depth, boundary="none", model=model, client=client, whole=work.whole
            )
        return door.map_blocks(work.func, array, model=model, client=client, whole=work.whole)
    meta = np.empty((0, 0, 0), "float32")
    if any(work.depth):
        return da.map_overlap(work.func, array, depth=work.depth, boundary="none", dtype="float32", meta=meta)
    return da.map_blocks(work.func, array, dtype="float32", meta=meta)


def warm(func: Any, source: str) -> None:
    """Load in a worker what the work needs, so that no run pays for imports."""
    block = zarr.open_array(source, mode="r")[:32, :32, :32]
    func(block)


def quiet() -> dict[str, str]:
    return {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")} | {"MALLOC_TRIM_THRESHOLD_": "65536"}


class Peaks:
    """The largest high-water mark of any worker while something runs."""

    def __init__(self, client: distributed.Client) -> None:
        self.workers = list(client.run(os.getpid).values())
        for worker in self.workers:
            Path(f"/proc/{worker}/clear_refs").write_text("5")
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Peaks":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            for worker in self.workers:
                self.most = max(self.most, high_water(worker))
            if self._over.wait(0.005):
                return


def high_water(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:  # it is dead
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def write(rows: list[tuple[Case, list[Run]]], learning: dict[str, Any], output: Path) -> None:
    about = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "workers": WORKERS,
        "python": platform.python_version(),
        "dask": distributed.__version__,
        "numpy": np.__version__,
        "stored_chunks": STORED,
        "learning": learning,
        "cases": [{**asdict(case), "runs": [asdict(one) for one in runs]} for case, runs in rows],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(about, indent=1))


def median(runs: list[Run], way: str, what: str = "seconds") -> float | None:
    times = [getattr(one, what) for one in runs if one.way == way]
    return None if None in times else statistics.median(times)  # type: ignore[type-var]


def show(rows: list[tuple[Case, list[Run]]]) -> None:
    heads = (
        "operator",
        "shape",
        "memory",
        "ours",
        "auto",
        "ratio",
        "ours, busiest",
        "auto, busiest",
        "ratio",
        "our peak",
    )
    table = Table(*heads, "auto's peak", "our chunks", "auto's chunks")
    both = []
    for case, runs in rows:
        firsts = {one.way: one for one in reversed(runs)}
        ours, auto = ([median(runs, way, what) for what in ("seconds", "busiest")] for way in ("ours", "auto"))
        if None not in (*ours, *auto):
            both.append((ours, auto))
        cells = []
        for mine, its in zip(ours, auto, strict=True):
            cells += [seconds_to_text(mine) if mine else firsts["ours"].failure]
            cells += [seconds_to_text(its) if its else firsts["auto"].failure]
            cells += [f"{mine / its:.2f}" if mine and its else ""]
        table.add_row(
            case.work,
            "x".join(map(str, case.shape)),
            case.memory,
            *cells,
            *(f"{max(one.peak / one.limit for one in runs if one.way == way):.0%}" for way in ("ours", "auto")),
            *("x".join(map(str, firsts[way].chunks)) for way in ("ours", "auto")),
        )
    console.print(table)
    for way in ("ours", "auto"):
        every = [one for _, runs in rows for one in runs if one.way == way]
        failed = sum(bool(one.failure) for one in every)
        above = sum(one.peak > one.limit for one in every)
        console.print(f"{way}: {failed} of {len(every)} runs failed, {above} had a worker above its limit")
    for place, what in enumerate(("seconds", "seconds of the busiest worker")):
        pairs = [(ours[place], auto[place]) for ours, auto in both]
        if pairs:
            ratios = [mine / its for mine, its in pairs]
            console.print(
                f"{what} where both finish ({len(pairs)} cases), ours / auto: median {statistics.median(ratios):.2f}, "
                f"worst {max(ratios):.2f}, all together {sum(a for a, _ in pairs) / sum(b for _, b in pairs):.2f}"
            )


if __name__ == "__main__":
    main()
