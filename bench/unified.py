"""Unified memory beside each library's own: a training step, an array pipeline, and allocations without a pool.

Every way runs in a process of its own, because torch takes an allocator once: the ways alternate, and the medians are
compared. A model whose parameters were pushed to the host runs with page faults, with `prefetch_hooks`, and after one
prefetch of everything. Nothing here takes more managed memory than the device has free.

Run ``python bench/unified.py``: prints each way as it is measured, at the end a table and the ratios that are promised,
and writes ``bench/out/unified.json`` as it goes; ``--repeats 1`` and ``--tiny`` take less time.
"""

import argparse
import json
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from forebay.units import seconds_to_text

OUT = Path(__file__).parent / "out" / "unified.json"
LIMIT = 60
"""Seconds that one way may take."""
WAYS = {
    "training": ("native", "unified"),
    "pipeline": ("native", "unified"),
    "pushed": ("resident", "faults", "hooks", "prefetch"),
    "allocation": ("cudaMalloc", "native", "unified", "unpooled"),
}
"""What each task is run with."""
PROMISES = {
    "training": ("unified", "native", "at most 1.03"),
    "pipeline": ("unified", "native", "at most 1.03"),
    "pushed": ("faults", "hooks", "at least 5"),
    "allocation": ("cudaMalloc", "unified", "told, not promised"),
}
"""The times of which two ways are compared, and what their ratio shall be."""
console = Console(width=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", nargs=2, metavar=("TASK", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = 1 if options.tiny else 4
    if options.child:
        task, way = options.child
        run = {"training": training, "pipeline": pipeline, "allocation": allocation, "pushed": pushed}[task]
        print(run(way, size))
        return
    times: dict[str, dict[str, list[float]]] = {}
    for task, ways in WAYS.items():
        times[task] = {}
        for _ in range(1 if options.tiny else options.repeats):
            for way in ways:
                seconds = measure(task, way, options.tiny)
                if seconds is not None:
                    times[task].setdefault(way, []).append(seconds)
                    console.print(f"{task}, {way}: {seconds_to_text(seconds)}", highlight=False)
                    write(times)
    show(medians(times))
    if missing := [f"{task}, {way}" for task, ways in WAYS.items() for way in ways if way not in times[task]]:
        sys.exit(f"not measured: {'; '.join(missing)}")


def medians(times: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    """Give the median of every way."""
    return {task: {way: statistics.median(found) for way, found in ways.items()} for task, ways in times.items()}


def ratios(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """Give the ratios that are promised, of the tasks whose both ways were measured."""
    return {
        task: found[task][over] / found[task][under]
        for task, (over, under, _) in PROMISES.items()
        if {over, under} <= set(found.get(task, ()))
    }


def write(times: dict[str, dict[str, list[float]]]) -> None:
    """Keep what was measured so far."""
    found = medians(times)
    about = {"date": str(date.today()), "seconds": found, "ratios": ratios(found), "measured": times}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(about, indent=1))


def measure(task: str, way: str, tiny: bool) -> float | None:
    """Run one way in a process of its own; None where it fails, which is printed."""
    command = [sys.executable, __file__, "--child", task, way, *(["--tiny"] if tiny else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        console.print(f"{task}, {way} was stopped after {LIMIT} s", style="red", highlight=False)
        return None
    if done.returncode:
        console.print(f"{task}, {way} failed: {done.stderr[-800:]}", style="red", highlight=False, markup=False)
        return None
    return float(done.stdout.splitlines()[-1])


def training(way: str, size: int) -> float:
    """Time a step of a small transformer."""
    import torch

    unify("torch", way)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0, device="cuda")
    model = torch.nn.TransformerEncoder(layer, 2 * size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x = torch.randn(2 * size, 1024, 1024, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return timed(step, torch.cuda.synchronize, 20)


def pipeline(way: str, size: int) -> float:
    """Time a chain of array operations with temporaries, as image processing has."""
    import cupy

    unify("cupy", way)
    n = 128 * size
    volume = cupy.random.default_rng(0).random((n, n, n), dtype="float32")

    def step() -> None:
        gradients = [cupy.gradient(volume, axis=axis) for axis in range(3)]
        energy = sum(gradient * gradient for gradient in gradients)
        scaled = (energy - energy.mean()) / energy.std()
        spectrum = cupy.fft.rfft(scaled, axis=2)
        cupy.abs(cupy.fft.irfft(spectrum * 0.5, axis=2)).max()

    return timed(step, cupy.cuda.get_current_stream().synchronize, 50)


def allocation(way: str, size: int) -> float:
    """Time small operations whose every result is a new array."""
    import cupy

    if way == "cudaMalloc":
        cupy.cuda.set_allocator(None)
    else:
        unify("cupy", way)
    array = cupy.ones(1 << 20, "float32")

    def step() -> None:
        for _ in range(100):
            (array * 2 + array).sum()

    return timed(step, cupy.cuda.get_current_stream().synchronize, 5) / 100


def pushed(way: str, size: int) -> float:
    """Time a forward pass of a model whose parameters were pushed to the host before."""
    import torch

    import forebay.memory as pm

    pm.unify("torch")
    torch.manual_seed(0)
    layers = (torch.nn.Linear(4096, 4096, bias=False, device="cuda") for _ in range(8 * size))
    model = torch.nn.Sequential(*layers)
    x = torch.randn(64, 4096, device="cuda")
    if way == "hooks":
        pm.prefetch_hooks(model)
    with torch.no_grad():
        for _ in range(2):
            model(x)
        times = []
        for _ in range(3):
            if way != "resident":
                for parameter in model.parameters():
                    pm.prefetch(parameter, "host")
            torch.cuda.synchronize()
            start = perf_counter()
            if way == "prefetch":
                for parameter in model.parameters():
                    pm.prefetch(parameter, "device")
            model(x)
            torch.cuda.synchronize()
            times.append(perf_counter() - start)
    return statistics.median(times)


def unify(library: str, way: str) -> None:
    if way != "native":
        import forebay.memory as pm

        pm.unify(library, pool=way == "unified")


def timed(step: Any, synchronize: Any, count: int) -> float:
    for _ in range(3):
        step()
    synchronize()
    times = []
    for _ in range(count):
        start = perf_counter()
        step()
        synchronize()
        times.append(perf_counter() - start)
    return statistics.median(times)


def show(found: dict[str, dict[str, float]]) -> None:
    table = Table("task", "way", "seconds", "times the first", title="unified memory beside others, medians")
    for task, times in found.items():
        first = next(iter(times.values()), 1.0)
        for way, seconds in times.items():
            table.add_row(task, way, seconds_to_text(seconds), f"{seconds / first:.3f}")
    console.print(table)
    for task, ratio in ratios(found).items():
        over, under, promise = PROMISES[task]
        console.print(f"{task}: {over} over {under} {ratio:.3f} ({promise})", highlight=False)


if __name__ == "__main__":
    main()
