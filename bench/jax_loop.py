"""A differentiable wave loop in JAX: a scan in memory, segments of `jax.checkpoint`, and `checkpointed`.

The loop is a damped 2-D wave whose speed and damping have gradients, heard by receivers. Each way runs in a process of
its own. The scan in memory goes first, and a fiftieth of the memory that it took (``--part``) is what all others may
take: on a GPU that is what JAX says it had in use at most, of memory that it has taken beforehand (where it takes
memory as it goes, it counts the whole of pieces that it rounds up to powers of two). `checkpointed` has as much as its
budget, less the arguments, their gradients and what the receivers hear, by itself and inside of `jax.jit`. Segments are
tried with the counts that keep the least, in one, two and three levels, so that the best that `jax.checkpoint` can do
in that memory is there. On a CPU, memory is what a process had at most above what it had before, which is rough. Times
are the best of several runs after one that compiles; the compilation is told beside them. Gradients are compared with
those of the scan.

Run ``python bench/jax_loop.py``: it prints a table and writes ``bench/out/jax_loop.json`` as it goes. Without a GPU,
``--points 256 --steps 400 --part 8`` is over in a minute or two.
"""

import argparse
import heapq
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
from datetime import date
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from forebay.units import seconds_to_text, to_text

OUT = Path(__file__).parent / "out" / "jax_loop.json"
console = Console(width=140)


def problem(points: int) -> tuple[Any, ...]:
    """Make the initial field, the squared speed and the damping."""
    import jax.numpy as jnp

    axis = jnp.linspace(-1, 1, points)
    start = jnp.exp(-400 * (axis[:, None] ** 2 + axis**2))
    return start, 0.1 + 0.05 * jnp.sin(5 * axis)[:, None] * jnp.cos(3 * axis), jnp.full((points, points), 1e-3)


def step(state: Any, t: Any, squared: Any, damping: Any) -> Any:
    """Advance a step, and hear it."""
    import jax.numpy as jnp

    p, p_old = state
    around = jnp.pad(p, 1)
    laplacian = around[2:, 1:-1] + around[:-2, 1:-1] + around[1:-1, 2:] + around[1:-1, :-2] - 4 * p
    new = (2 - damping) * p - (1 - damping) * p_old + squared * laplacian
    return (new, p), new[p.shape[0] // 8, ::8]


def loss(start: Any, squared: Any, damping: Any, steps: int, counts: tuple[int, ...]) -> Any:
    """Run the loop as scans in scans, of so many segments each; only the first states of segments are kept."""
    import jax

    def span(state: Any, times: Any, counts: tuple[int, ...]) -> Any:
        if not counts:
            return jax.lax.scan(lambda state, t: step(state, t, squared, damping), state, times)
        inner = jax.checkpoint(lambda state, times: span(state, times, counts[1:]))
        final, traces = jax.lax.scan(inner, state, times.reshape(counts[0], -1))
        return final, traces.reshape(times.size, -1)

    return (span((start, start), jax.numpy.arange(steps), counts)[1] ** 2).sum()


def allowance(given: Any, options: argparse.Namespace) -> Any:
    """Give the budget beside arguments and their gradients, and beside traces, their squares and their gradients."""
    import jax

    import forebay as fb

    if options.allowed is None:
        return None
    traces = 4 * options.steps * -(-options.points // 8)
    bytes_left = options.allowed - 2 * sum(one.nbytes for one in given) - 3 * traces
    on_host = jax.default_backend() == "cpu"
    return fb.Budget(host=bytes_left) if on_host else fb.Budget(device=bytes_left, host="64GB")


def ours(start: Any, squared: Any, damping: Any, steps: int, budget: Any, results: list[Any]) -> Any:
    """Give it a budget."""
    from forebay.jax import checkpointed

    params = (squared, damping)
    _, traces = checkpointed(
        step, (start, start), steps, params=params, outputs=True, budget=budget, report=results.append
    )
    return (traces**2).sum()


def child(options: argparse.Namespace) -> None:
    """Measure one way, and print what was found."""
    import jax

    results: list[Any] = []
    said: list[str] = []
    given = problem(options.points)
    if options.way.startswith("ours"):
        budget = allowance(given, options)
        gradient = jax.grad(lambda *given: ours(*given, options.steps, budget, results), (0, 1, 2))
        if options.way == "ours in jit":
            gradient = jax.jit(gradient)
        told = logging.getLogger("forebay.jax")
        told.setLevel(logging.INFO)
        told.addFilter(lambda record: said.append(record.getMessage()) or False)
    else:
        counts = tuple(json.loads(options.way))
        gradient = jax.jit(jax.grad(lambda *given: loss(*given, options.steps, counts), (0, 1, 2)))
    jax.block_until_ready(jax.jit(jax.grad(lambda *given: loss(*given, 8, ())))(*given))  # the compiler is there now
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start = perf_counter()
    found = jax.block_until_ready(gradient(*given))
    first, times = perf_counter() - start, []
    stats = jax.devices()[0].memory_stats() or {}
    peak = stats.get("peak_bytes_in_use", _status("VmHWM") - before)
    for _ in range(options.repeats):
        start = perf_counter()
        jax.block_until_ready(gradient(*given))
        times.append(perf_counter() - start)
    arrays = [np.asarray(one) for one in found]
    if not options.reference.exists():
        np.savez(options.reference, *arrays)
    kept = np.load(options.reference)
    off = max(
        float(np.abs(one - kept[name]).max() / np.abs(kept[name]).max())
        for one, name in zip(arrays, kept.files, strict=True)
    )
    row = {"seconds": min(times), "first": first, "peak": int(peak), "off": off, "device": jax.devices()[0].device_kind}
    if results:
        plan = results[-1].plan
        row |= {"plan": f"{plan.schedule} of {plan.every} steps each", "predicted": plan.seconds}
    elif said:
        row["plan"] = said[-1]
    print(json.dumps(row | {"jax": jax.__version__}))


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def measured(way: str, options: argparse.Namespace, reference: Path, more: list[str]) -> Any:
    """Run one way in a process of its own; None where it fails."""
    arguments = [f"--points={options.points}", f"--steps={options.steps}", f"--repeats={options.repeats}"]
    command = [sys.executable, __file__, *arguments, "--way", way, "--reference", str(reference), *more]
    try:
        ahead = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, env=ahead)
    except subprocess.TimeoutExpired:
        console.print(f"{way}: stopped after {options.limit} s")
        return None
    if done.returncode:
        console.print(f"{way}: {(done.stderr.strip().splitlines() or ['failed'])[-1][:300]}", highlight=False)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def segments(steps: int) -> list[tuple[int, ...]]:
    """List counts of segments that divide the loop, those of each number of levels that keep the least first."""
    divisors = [count for count in range(2, steps) if steps % count == 0]

    def kept(counts: tuple[int, ...]) -> float:  # a step's graph takes about one and a half states here
        return sum(counts) + 1.5 * steps / math.prod(counts)

    found: list[tuple[int, ...]] = []
    for levels, tried in ((1, 2), (2, 3), (3, 2)):
        several = (one for one in product(divisors, repeat=levels) if steps % math.prod(one) == 0)
        found += heapq.nsmallest(tried, several, key=lambda counts: (kept(counts), counts))
    return found


def compare(options: argparse.Namespace) -> None:
    """Measure all ways, writing what is known after each."""
    steps = options.steps
    ways = {
        "in memory": "[]",
        "checkpointed": "ours",
        "checkpointed in jit": "ours in jit",
        "checkpoint every step": f"[{steps}]",
    }
    ways |= {f"segments {' x '.join(map(str, counts))}": json.dumps(counts) for counts in segments(steps)}
    rows: dict[str, Any] = {}
    allowed = 0
    more: list[str] = []
    table = Table("way", "seconds", "of in memory", "first call", "memory", "fits", "off by", "plan")
    with tempfile.TemporaryDirectory() as folder:
        for name, way in ways.items():
            row = measured(way, options, Path(folder) / "gradients.npz", more)
            if row is None:
                if name == "in memory":
                    raise SystemExit("the scan in memory does not run: take fewer points or steps")
                table.add_row(name, "failed")
                continue
            if not rows:
                allowed = row["peak"] // options.part
                more = ["--allowed", str(allowed)]
            rows[name] = row | {"fits": row["peak"] <= allowed}
            table.add_row(
                name,
                seconds_to_text(row["seconds"]),
                f"{row['seconds'] / rows['in memory']['seconds']:.2f}",
                seconds_to_text(row["first"]),
                to_text(row["peak"]),
                "yes" if rows[name]["fits"] else "no",
                f"{row['off']:.1e}",
                row.get("plan", ""),
            )
            console.print(f"{name}: {seconds_to_text(row['seconds'])}, {to_text(row['peak'])}", highlight=False)
            OUT.parent.mkdir(exist_ok=True)
            facts = {"date": str(date.today()), "points": options.points, "steps": steps, "allowed": allowed}
            OUT.write_text(json.dumps(facts | {"rows": rows}, indent=2) + "\n")
    table.title = f"{options.points}² points, {steps} steps; allowed {to_text(allowed)}"
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--part", type=int, default=50, help="which part of the scan's memory all others may take")
    parser.add_argument("--limit", type=int, default=120, help="seconds after which a way is stopped")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--allowed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--reference", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        child(options)
    else:
        compare(options)


if __name__ == "__main__":
    main()
