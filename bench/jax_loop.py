"""A differentiable wave loop in JAX: a scan in memory, segments of `jax.checkpoint`, and `checkpointed`.

The loop is a damped 2-D wave whose speed and damping have gradients, heard by receivers. Each way runs in a process of
its own. A fiftieth of the memory that the scan takes (``--part``) is what all others may take: on a GPU that is what
JAX says it had in use at most, of memory that it has taken beforehand. `checkpointed` has that much as its budget, less
the arguments, their gradients and what the receivers hear, by itself and inside of `jax.jit`. Segments are tried with
the counts that keep the least, in one, two and three levels. On a CPU, memory is what a process had at most, which is
rough. Times are the best of several runs after one that compiles, which is told beside them. Gradients are compared
with those of the scan. Without a GPU, ``--points 256 --steps 400 --part 8`` is over in a minute or two.
"""

import heapq
import logging
import math
import os
import tempfile
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from harness import Report, arg, benchmark, child, high_water, reset_high_water, seconds

from forebay.units import to_text

OFF = 1e-3
"""Of the largest gradient: what lies farther from the scan's is wrong."""


@cache
def problem(points: int) -> tuple[Any, ...]:
    """Make the initial field, the squared speed and the damping."""
    import jax.numpy as jnp

    axis = np.linspace(-1, 1, points)
    start = np.exp(-400 * (axis[:, None] ** 2 + axis**2))
    squared = 0.1 + 0.05 * np.sin(5 * axis)[:, None] * np.cos(3 * axis)
    return tuple(jnp.asarray(field, jnp.float32) for field in (start, squared, np.full((points, points), 1e-3)))


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


def within(given: Any, points: int, steps: int, allowed: int, results: list[Any]) -> Any:
    """Return the loss by `checkpointed`, allowed what arguments and traces, squares and gradients leave."""
    import jax

    import forebay as fb
    from forebay.jax import checkpointed

    traces = 4 * steps * -(-points // 8)
    left = allowed - 2 * sum(array.nbytes for array in given) - 3 * traces
    budget = fb.Budget(host=left) if jax.default_backend() == "cpu" else fb.Budget(device=left, host="64GB")

    def ours(start: Any, squared: Any, damping: Any) -> Any:
        how = {"params": (squared, damping), "outputs": True, "budget": budget, "report": results.append}
        return (checkpointed(step, (start, start), steps, **how)[1] ** 2).sum()

    return ours


@cache
def warm_compiler(points: int) -> None:
    """Compile something, so that what the compiler itself takes is in no figure."""
    import jax

    jax.block_until_ready(jax.jit(jax.grad(lambda *given: loss(*given, 8, ())))(*problem(points)))


def measure(way: Any, points: int, steps: int, repeats: int, allowed: int, reference: str) -> dict[str, Any]:
    """Measure one way: "ours", "ours in jit", or counts of segments."""
    import jax

    results: list[Any] = []
    messages: list[str] = []
    given = problem(points)
    if isinstance(way, str):
        gradient = jax.grad(within(given, points, steps, allowed, results), (0, 1, 2))
        if way == "ours in jit":
            gradient = jax.jit(gradient)
        logger = logging.getLogger("forebay.jax")
        logger.setLevel(logging.INFO)
        logger.addFilter(lambda record: messages.append(record.getMessage()) or False)
    else:
        gradient = jax.jit(jax.grad(lambda *given: loss(*given, steps, tuple(way)), (0, 1, 2)))
    warm_compiler(points)
    before = high_water(what="VmRSS")
    reset_high_water()
    got: list[Any] = []
    first = seconds(lambda: got.extend(jax.block_until_ready(gradient(*given))))
    stats = jax.devices()[0].memory_stats() or {}
    peak = stats.get("peak_bytes_in_use", high_water() - before)
    best = min(seconds(lambda: jax.block_until_ready(gradient(*given))) for _ in range(repeats))
    arrays = [np.asarray(array) for array in got]
    if not Path(reference).exists():
        np.savez(reference, *arrays)
    exact = np.load(reference)
    pairs = zip(arrays, (exact[name] for name in exact.files), strict=True)
    off = max(float(np.abs(array - right).max() / np.abs(right).max()) for array, right in pairs)
    row = {"seconds": best, "first": first, "peak": int(peak), "off": off, "jax": jax.__version__}
    if results:
        messages.append(f"{results[-1].plan.schedule} of {results[-1].plan.every} steps each")
    return row | {"device": jax.devices()[0].device_kind, "plan": messages[-1] if messages else None}


def segments(steps: int, few: bool) -> list[tuple[int, ...]]:
    """List counts of segments that divide the loop, those of each number of levels that keep the least first."""
    divisors = [count for count in range(2, steps) if steps % count == 0]

    def kept(counts: tuple[int, ...]) -> float:  # a step's graph takes about one and a half states here
        return sum(counts) + 1.5 * steps / math.prod(counts)

    found: list[tuple[int, ...]] = []
    for levels, tried in ((1, 1),) if few else ((1, 2), (2, 3), (3, 2)):
        several = (counts for counts in product(divisors, repeat=levels) if steps % math.prod(counts) == 0)
        found += heapq.nsmallest(tried, several, key=lambda counts: (kept(counts), counts))
    return found


@benchmark(
    arg("--points", type=int, default=1024, tiny=32),
    arg("--steps", type=int, default=2000, tiny=40),
    arg("--repeats", type=int, default=2, tiny=1),
    arg("--part", type=int, default=50, tiny=1, help="which part of the scan's memory all others may take"),
    arg("--limit", type=int, default=120, help="seconds after which a way is stopped"),
    needs=("jax",),
)
def main(asked: Any, report: Report) -> None:
    ways: dict[str, Any] = {"in memory": [], "checkpointed": "ours"}
    if asked.tiny:
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"  # compiling is most of its time
    else:
        ways |= {"checkpointed in jit": "ours in jit", "checkpoint every step": [asked.steps]}
    ways |= {f"segments {' x '.join(map(str, counts))}": counts for counts in segments(asked.steps, asked.tiny)}
    allowed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, way in ways.items():
            given = (way, asked.points, asked.steps, asked.repeats, allowed, f"{folder}/gradients.npz")
            row = child(measure, *given, timeout=asked.limit, XLA_PYTHON_CLIENT_PREALLOCATE="true")
            if name == "in memory":
                if "failed" in row:
                    raise SystemExit(f"the scan in memory does not run: {row['failed']}")
                allowed = report.facts["allowed"] = max(row["peak"] // asked.part, 2**24 if asked.tiny else 0)
            if "failed" not in row:
                first = report.rows[0]["seconds"] if report.rows else row["seconds"]
                row |= {"of_in_memory": row["seconds"] / first, "fits": row["peak"] <= allowed}
                if row["off"] > OFF:
                    report.fail(f"{name}: gradients are {row['off']:.1e} from those of the scan")
            report.add({"way": name} | row)
    title = f"{asked.points}² points, {asked.steps} steps; allowed {to_text(allowed)}"
    report.table(title, "way seconds:s of_in_memory:.2f first:s peak:B fits off:.1e plan failed")


if __name__ == "__main__":
    main()
