"""Whole graphs, predicted and measured: pipelines on small clusters, in the chunks chosen for them and in Dask's own.

`python -m tests.dask.whole_graphs` writes docs/results/data/graphs.json and takes about ten minutes on two cores. The
peak is the kernel's high-water mark of the busiest worker. A prediction stands before each run: by the pipeline for
the chunks that were chosen, by the collection for Dask's.
"""

import gc
import json
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
from scipy import ndimage, signal

import forebay.dask as door
from forebay.errors import BudgetError
from forebay.footprint.measure.resident import CLEAR_REFS, read_status

SHAPE, STORED = (256, 256, 256), (64, 64, 64)
CLUSTERS = ((1, 2, "600MB"), (2, 1, "500MB"), (2, 2, "600MB"))
QUIET = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")} | {"MALLOC_TRIM_THRESHOLD_": "65536"}
TARGET = Path(__file__).parents[2] / "docs" / "results" / "data" / "graphs.json"


def smooth(array: Any, sigma: float = 1.0) -> Any:
    how = {"depth": int(4 * sigma), "boundary": "none", "dtype": array.dtype, "meta": np.empty((0, 0, 0), array.dtype)}
    return array.map_overlap(ndimage.gaussian_filter, sigma=sigma, **how)


def envelope(block: Any) -> Any:
    return np.abs(signal.hilbert(block, axis=-1)).astype(block.dtype)


def hilbert(array: Any) -> Any:
    how = {"dtype": array.dtype, "meta": np.empty((0, 0, 0), array.dtype)}
    return array.rechunk({2: -1}).map_blocks(envelope, **how)


def anomaly(array: Any) -> Any:
    import xarray

    named = xarray.DataArray(array, dims=("iline", "xline", "depth"))
    return (named - named.mean("depth")).data


PIPELINES = {
    "chain": lambda array: da.sqrt(da.absolute(array * 2 + 1)),
    "map_overlap": smooth,
    "two map_overlap": lambda array: smooth(smooth(array), 2.0),
    "normalize": lambda array: (array - array.mean()) / array.std(),
    "fan-out": lambda array: smooth(array) + da.absolute(array) * smooth(-array),
    "reductions": lambda array: da.stack([array.max(axis=0), array.min(axis=0), array.std(axis=0)]),
    "rechunk, envelope": hilbert,
    "xarray": anomaly,
    "gradient": lambda array: sum(each**2 for each in da.gradient(array)),
    "coarsen": lambda array: da.coarsen(np.mean, smooth(array), {0: 2, 1: 2, 2: 2}),
}


def stored_result(pipeline: Any, folder: Path, array: Any) -> Any:
    """Return what writes the result of a pipeline to Zarr."""
    import zarr

    result = pipeline(array)
    chunks = tuple(map(max, result.chunks))
    path = folder / f"result-{time.monotonic_ns()}"
    target = zarr.create_array(path, shape=result.shape, chunks=chunks, dtype=result.dtype, compressors=None)
    return da.store(result.rechunk(chunks), target, lock=False, compute=False)


def run(name: str, workers: int, threads: int, memory: str, stored: Any, folder: Path) -> list[dict[str, Any]]:
    settings = {
        "distributed.scheduler.allowed-failures": 0,
        "logging.distributed": "critical",
        "distributed.nanny.pre-spawn-environ": {**door.ENVIRONMENT, **QUIET},
    }
    how = {"n_workers": workers, "threads_per_worker": threads, "memory_limit": memory, "local_directory": str(folder)}
    build, rows, plan = partial(stored_result, PIPELINES[name], folder), [], None
    for way in ("ours", "auto"):
        with (
            dask.config.set(settings),
            distributed.LocalCluster(dashboard_address=":0", silence_logs=50, **how) as cluster,
            distributed.Client(cluster) as client,
        ):
            client.run(warm, stored)
            begun = time.perf_counter()
            if way == "ours":
                plan = door.chunks_for_graph(build, stored, client)
                chunks, predicted = plan.chunks, plan.forecast
            else:
                chunks = da.core.normalize_chunks("auto", shape=SHAPE, dtype=stored.dtype)
            planning = time.perf_counter() - begun
            row: dict[str, Any] = {"pipeline": name, "cluster": f"{workers} x {threads}", "memory": memory, "way": way}
            array = da.from_array(stored, chunks=chunks)
            work = build(array)
            if way == "auto":
                try:
                    predicted = door.forecast(work, client)
                except BudgetError:  # a single task outgrew its worker
                    rows.append(row | {"chunks": array.chunksize, "failure": "killed", "told": True})
                    continue
            client.run(gc.collect)
            client.run(CLEAR_REFS.write_text, "5")
            begun, failure, most = time.perf_counter(), "", 0
            try:
                client.compute(work).result(timeout=200)
                most = max(client.run(read_status, "VmHWM").values())
            except Exception as error:
                failure = type(error).__name__
            seconds = time.perf_counter() - begun
            row |= {"chunks": array.chunksize, "predicted": predicted.bytes, "failure": failure, "planning": planning}
            if not failure:
                row |= {"measured": most, "ratio": predicted.bytes / most, "seconds": seconds}
            rows.append(row)
    return rows


def warm(stored: Any) -> int:
    """Load what the pipelines need, so that no run pays for imports."""
    return int(hilbert(da.from_array(stored[:16, :16, :16])).compute(scheduler="sync").size)


def main() -> None:
    import zarr

    folder, rows = Path(tempfile.mkdtemp(prefix="forebay-graphs-")), []
    try:
        stored = zarr.create_array(folder / "v", shape=SHAPE, chunks=STORED, dtype="float32", compressors=None)
        stored[:] = np.random.default_rng(0).standard_normal(SHAPE, dtype="float32")
        for cluster in CLUSTERS:
            for name in [name for name in PIPELINES if name in (sys.argv[1:] or PIPELINES)]:
                rows += run(name, *cluster, stored, folder)
                for result in folder.glob("result-*"):
                    shutil.rmtree(result)
                print(*rows[-2:], sep="\n", flush=True)
                TARGET.write_text(json.dumps({"facts": facts(rows), "rows": rows}, indent=1) + "\n")
    finally:
        shutil.rmtree(folder)


def facts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Say how well peaks were predicted, what failed, and how seconds compare where both ways finished."""
    off = sorted(abs(row["ratio"] - 1) for row in rows if "ratio" in row)
    pairs = [(ours, auto) for ours, auto in zip(rows[::2], rows[1::2], strict=True)]
    both = sorted(ours["seconds"] / auto["seconds"] for ours, auto in pairs if "seconds" in ours and "seconds" in auto)
    return {
        "peaks": {
            "count": len(off),
            "median_off": off[len(off) // 2],
            "worst_off": off[-1],
            "within_15": sum(each <= 0.15 for each in off),
        },
        "failed": {way: sum(bool(row["failure"]) for row in rows if row["way"] == way) for way in ("ours", "auto")},
        "seconds": {"both": len(both), "median": both[len(both) // 2] if both else None},
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    main()
