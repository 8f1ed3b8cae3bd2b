"""Whole graphs, predicted and measured: pipelines on small clusters, in our chunks, in Dask's own and in some by hand.

`python -m tests.dask.whole_graphs [--cluster 1x2] [--peaks] [PIPELINE ...]` measures some or all, and keeps the rest of
docs/results/data/graphs.json, from which docs/results/graphs.md is made. The ways take turns on one cluster; seconds
are the least of the rounds, the peak is the kernel's high-water mark of the busiest worker in any of them.
"""

import argparse
import gc
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
from scipy import ndimage, signal

import forebay.dask as door
from forebay.errors import ForebayError
from forebay.footprint.measure.resident import CLEAR_REFS, read_status
from forebay.units import to_bytes

SHAPE, STORED = (325, 475, 231), (64, 64, 64)
CLUSTERS = {"1x2": (1, 2, "1GB"), "2x1": (2, 1, "800MB"), "2x2": (2, 2, "1.5GB")}
"""workers, threads and memory of each worker"""
BY_HAND = ((128, 128, 128), (64, 475, 231), (128, 128, 231))
"""what people try: cubes, slabs, and bars along the last axis, all of whole stored chunks"""
ROUNDS = 2
HOPELESS = 1.3
"""times the fastest of the first round: chunks by hand that took longer are not tried again"""
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


def sharpened(array: Any) -> Any:
    from dask_image.ndfilters import gaussian_filter, sobel

    return array + sobel(gaussian_filter(array, 1.0), axis=0)


def edges(array: Any) -> Any:
    from dask_image.ndmorph import binary_closing

    return binary_closing(array > 1)


PIPELINES = {
    "chain": lambda array: da.sqrt(da.absolute(array * 2 + 1)),
    "two map_overlap": lambda array: smooth(smooth(array), 2.0),
    "normalize": lambda array: (array - array.mean()) / array.std(),
    "fan-out": lambda array: smooth(array) + da.absolute(array) * smooth(-array),
    "reductions": lambda array: da.stack([array.max(axis=0), array.min(axis=0), array.std(axis=0)]),
    "rechunk, envelope": hilbert,
    "xarray": anomaly,
    "gradient": lambda array: sum(each**2 for each in da.gradient(array)),
    "dask-image filters": sharpened,
    "dask-image morphology": edges,
}


def stored_result(pipeline: Any, folder: Path, array: Any) -> Any:
    """Return what writes the result of a pipeline to Zarr."""
    import zarr

    result = pipeline(array)
    chunks = tuple(map(max, result.chunks))
    path = folder / f"result-{time.monotonic_ns()}"
    target = zarr.create_array(path, shape=result.shape, chunks=chunks, dtype=result.dtype, compressors=None)
    return da.store(result.rechunk(chunks), target, lock=False, compute=False)


def warm(stored: Any) -> int:
    """Load what the pipelines need, so that no run pays for imports."""
    corner = da.from_array(stored[:16, :16, :16])
    return sum(int(pipeline(corner).compute(scheduler="sync").size) for pipeline in PIPELINES.values())


@contextmanager
def cluster_of(which: str, folder: Path) -> Iterator[Any]:
    """Start a cluster whose workers have loaded all that pipelines need, and yield its client."""
    workers, threads, memory = CLUSTERS[which]
    settings = {
        "distributed.scheduler.allowed-failures": 0,
        "logging.distributed": "critical",
        "distributed.nanny.pre-spawn-environ": {**door.ENVIRONMENT, **QUIET},
    }
    how = {"n_workers": workers, "threads_per_worker": threads, "memory_limit": memory, "local_directory": str(folder)}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(dashboard_address=":0", silence_logs=50, **how) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def measure(name: str, which: str, stored: Any, folder: Path, client: Any, *, peaks: bool) -> list[dict[str, Any]]:
    """Run a pipeline in all ways in turns; for peaks alone in our chunks and in Dask's, once."""
    memory = CLUSTERS[which][2]
    build = partial(stored_result, PIPELINES[name], folder)
    begun = time.perf_counter()
    plan = door.chunks_for_graph(build, stored, client)
    planning = time.perf_counter() - begun
    by_hand = () if peaks else BY_HAND
    cuts = {"ours": plan.chunks, "auto": "auto"} | {f"{each[0]}x{each[1]}x{each[2]}": each for each in by_hand}
    rows: dict[str, dict[str, Any]] = {}
    for way, chunks in cuts.items():
        opened = da.from_array(stored, chunks=chunks)
        row = {"pipeline": name, "cluster": which, "memory": memory, "way": way, "chunks": opened.chunksize}
        rows[way] = row | {"failure": "", "measured": 0, "runs": []}
    rows["ours"] |= {"predicted": plan.forecast.bytes, "told": plan.forecast.seconds, "planning": planning}
    try:
        told = door.forecast(build(da.from_array(stored, chunks="auto")), client)
        rows["auto"] |= {"predicted": told.bytes, "told": told.seconds}
    except ForebayError as error:  # a single task outgrows its worker
        rows["auto"]["refused"] = str(error)
    for turn in range(1 if peaks else ROUNDS):
        for way in list(cuts)[:: -1 if turn % 2 else 1]:
            row = rows[way]
            fastest = min((min(each["runs"]) for each in rows.values() if each["runs"]), default=0.0)
            hopeless = turn and way not in ("ours", "auto") and min(row["runs"], default=0) > HOPELESS * fastest
            if row["failure"] or hopeless:
                continue
            once(row, build(da.from_array(stored, chunks=cuts[way])), client)
            if row["failure"] and not peaks:
                client.restart(timeout=60)
                client.wait_for_workers(CLUSTERS[which][0], timeout=60)
                client.run(warm, stored)
            for result in folder.glob("result-*"):
                shutil.rmtree(result, ignore_errors=True)
    for row in rows.values():
        if not row["failure"]:
            row |= {"seconds": min(row["runs"]), "share": row["measured"] / to_bytes(memory)}
            row |= {"ratio": row["predicted"] / row["measured"]} if "predicted" in row else {}
    return list(rows.values())


def once(row: dict[str, Any], work: Any, client: Any) -> None:
    """Run what was built, and note seconds and the peak of the busiest worker, or how it failed."""
    client.run(gc.collect)
    client.run(CLEAR_REFS.write_text, "5")
    before, begun = client.run(time.process_time), time.perf_counter()
    try:
        client.compute(work).result(timeout=100)
    except Exception as error:
        row["failure"] = type(error).__name__
    else:
        row["runs"].append(time.perf_counter() - begun)
        after = client.run(time.process_time)
        row["busiest"] = min(row.get("busiest", np.inf), max(after[each] - before[each] for each in after))
        row["measured"] = max(row["measured"], *client.run(read_status, "VmHWM").values())


def main() -> None:
    import zarr

    asked = argparse.ArgumentParser()
    asked.add_argument("--cluster", choices=CLUSTERS)
    asked.add_argument("--peaks", action="store_true", help="our chunks and Dask's alone, once")
    asked.add_argument("pipelines", nargs="*")
    options = asked.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="forebay-graphs-"))
    rows = json.loads(TARGET.read_text())["rows"] if TARGET.exists() else []
    try:
        stored = zarr.create_array(folder / "v", shape=SHAPE, chunks=STORED, dtype="float32", compressors=None)
        stored[:] = np.random.default_rng(0).standard_normal(SHAPE, dtype="float32")
        for which in [options.cluster] if options.cluster else CLUSTERS:
            for name in options.pipelines or PIPELINES:
                with cluster_of(which, folder) as client:
                    client.run(warm, stored)
                    new = measure(name, which, stored, folder, client, peaks=options.peaks)
                rows = [row for row in rows if (row["pipeline"], row["cluster"]) != (name, which)] + new
                print(*new, sep="\n", flush=True)
                TARGET.write_text(json.dumps({"facts": facts(rows), "rows": rows}, indent=1) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cases(rows: list[dict[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield the ways of each pipeline on each cluster."""
    for pair in sorted({(row["pipeline"], row["cluster"]) for row in rows}):
        yield {row["way"]: row for row in rows if (row["pipeline"], row["cluster"]) == pair}


def facts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Say how well peaks were predicted, what failed, and how seconds compare; set ratios beside our rows."""
    for case in cases(rows):
        ours, auto = case["ours"], case["auto"]
        ours["auto_seconds"] = auto.get("seconds", "killed")
        ours["auto_ratio"] = auto.get("ratio", "refused" if "refused" in auto else "killed")
        hands = {way: row for way, row in case.items() if way not in ("ours", "auto")}
        for key, hand, over in (("seconds", "hand", "over_hand"), ("busiest", "busiest_hand", "busiest_over_hand")):
            if key in ours and (done := {way: row[key] for way, row in hands.items() if not row["failure"]}):
                ours[hand] = min(done, key=done.__getitem__)
                ours[over] = ours[key] / done[ours[hand]]
            if key in ours and not auto["failure"]:
                ours[over.replace("hand", "auto")] = ours[key] / auto[key]
    off = sorted(abs(row["ratio"] - 1) for row in rows if "ratio" in row)
    libraries = ("dask", "distributed", "numpy", "scipy", "xarray", "zarr", "dask-image")
    return {
        "peaks": {"count": len(off), "worst": max(off), "median": statistics.median(off)},
        "within_15": sum(each <= 0.15 for each in off),
        "cases": len(list(cases(rows))),
        "killed": {way: sum(row["failure"] != "" for row in rows if row["way"] == way) for way in ("ours", "auto")},
        "over": {key: _ratios(rows, f"over_{key}") for key in ("auto", "hand")},
        "busiest": {key: _ratios(rows, f"busiest_over_{key}") for key in ("auto", "hand")},
        "cores": os.cpu_count(),
        "load": os.getloadavg()[1],
        "date": time.strftime("%Y-%m-%d"),
        "versions": ", ".join(f"{name} {version(name)}" for name in libraries),
    }


def _ratios(rows: list[dict[str, Any]], key: str) -> dict[str, Any]:
    ratios = sorted(row[key] for row in rows if key in row)
    if not ratios:
        return {"count": 0}
    within = sum(ratio <= 1.1 for ratio in ratios)
    return {"count": len(ratios), "median": statistics.median(ratios), "most": ratios[-1], "within_1.1": within}


if __name__ == "__main__":
    main()
