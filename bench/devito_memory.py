"""Devito on a GPU: fields copied at every call, as it does by itself, beside managed memory and fields that stay.

Two things are measured, each way in a process of its own: a call of two time steps of the elastic wave equation, and a
whole elastic migration of one shot, forward and backward under the same Revolve. Operators, schedule and engine are the
same on all sides; without Forebay's doors the state, and so the snapshots, are on the host. Results are compared bit
by bit. Compiling is left out; bringing fields to the device and home again is in the migration's time.

The whole migration by Devito alone takes more than ten minutes at full size, so it is done on the largest grid that
should end within ``--seconds``, all ways on the same one.

Needs Devito set to a GPU: DEVITO_PLATFORM=nvidiaX DEVITO_LANGUAGE=openmp DEVITO_ARCH=clang. ``--tiny`` runs without a
GPU too, where all ways are the same.
"""

import os
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from harness import Report, arg, benchmark, child, digest, median, seconds

os.environ.setdefault("DEVITO_LOGGING", "ERROR")
WAYS = ("default", "unified", "resident")
CALLS = 4
"""Of two steps that are timed, on all ways as many: the fields at the end are compared."""


def placed(way: str, shape: Any, order: int, steps: int, both: bool) -> tuple[Any, Any]:
    """Make a shot, and what surrounds the building and the running of its operators, there or there and back."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    from devito_elastic_rtm import Shot

    from forebay.devito import resident, unified

    shot = Shot(tuple(shape), steps, order)

    def functions() -> Any:
        there = (*shot.waves[:2], *shot.medium.values(), shot.source, shot.receivers)
        return shot.functions if both else there

    if way == "unified":
        with unified():
            assert functions()  # made here, they are in managed memory
        return shot, unified
    return shot, (lambda: resident(*functions())) if way == "resident" else nullcontext


def two_steps(way: str, shape: Any, order: int) -> dict[str, Any]:
    """Time calls of two steps, the first ones left out; tell the fields too."""
    from forebay.devito import Run, sync_host

    shot, surrounded = placed(way, shape, order, 4 * CALLS + 8, both=False)
    with surrounded():
        there = shot.there()
        run = Run(there)
        firsts = range(0, 2 * CALLS + 2, 2)
        taken = [seconds(lambda at=at: there.apply(time_m=at, time_M=at + 1)) for at in firsts]
        bare = [seconds(lambda at=at: run(at, at + 2)) for at in range(2 * CALLS + 2, 4 * CALLS + 4, 2)]
        if way != "default":
            sync_host(*shot.waves[:2])
    fields = (field.data for function in shot.waves[:2] for field in function.values())
    return {"apply": median(taken[1:]), "run": median(bare[1:]), "digest": digest(*fields)}


def migrate(way: str, shape: Any, order: int, steps: int, snapshots: int) -> dict[str, Any]:
    """Time the migration of a shot after one step each way has been run, which compiles and warms."""
    import forebay as fb
    from forebay.devito import Forward, Run, sync_device, sync_host

    shot, surrounded = placed(way, shape, order, steps, both=True)
    moved = way != "default"
    with surrounded():
        there, back = shot.there(), shot.back()
        for operator in (there, back):
            operator.apply(time_m=1, time_M=1)
    waves = [field for function in shot.waves for field in function.values()]
    for function in (*waves, shot.image, shot.receivers, shot.residual):
        function.data_with_halo[:] = 0
    calls: list[int] = []

    begun = time.perf_counter()
    with surrounded():
        advance, retreat = Forward(there), Run(back)
        state = advance.state()
        there_now = time.perf_counter()

        def forward(state: Any, start: int, stop: int) -> Any:
            calls.append(stop - start)
            return advance(state, start, stop)

        def turn(final: Any) -> None:
            if moved:
                sync_host(shot.receivers)
            shot.residual.data[:] = shot.receivers.data
            if moved:
                sync_device(shot.residual)

        def backward(state: Any, step: int) -> None:
            advance.load(state, step)
            retreat(step, step + 1)

        tier = "host" if isinstance(next(iter(state.values())), np.ndarray) else "device"
        snapshot = sum(array.nbytes for array in state.values())
        budget = fb.Budget(**{tier: 1.01 * (snapshots + 2) * snapshot})
        costs = fb.Costs(forward=1e-2, backward=1e-2, copy=1e12)  # the schedule is given: nothing is to be chosen
        plan = fb.plan(steps, snapshot, budget, costs=costs, schedule=fb.Revolve(steps, snapshots))
        result = fb.reverse(forward, backward, state, steps, turn=turn, plan=plan, synchronous=True, progress=False)
        ended = time.perf_counter()
        if way == "unified":
            sync_host(shot.image)
    whole = time.perf_counter() - begun
    return {
        "seconds": whole,
        "placing": there_now - begun,
        "reversal": ended - there_now,
        "forward_steps": sum(calls),
        "steps_per_call": sum(calls) / len(calls),
        "snapshot_bytes": snapshot,
        "snapshots_on": tier,
        "engine": {what: round(taken, 3) for what, taken in result.metrics.phases.items()},
        "digest": digest(shot.image.data, shot.receivers.data),
        "largest": float(np.abs(shot.image.data).max()),
    }


def affordable(full: Any, call: float, calls: int, limit: float) -> Any:
    """Return the largest grid of the same proportions on which so many default calls should take no longer."""
    scale = min(1.0, (limit / (1.5 * calls * call)) ** (1 / 3))
    return full if scale == 1.0 else tuple(max(32, int(points * scale) // 4 * 4) for points in full)


@benchmark(
    arg("--shape", type=int, nargs="+", default=[400, 400, 505], tiny=[20, 20]),
    arg("--order", type=int, default=8, tiny=2, help="of the differences in space"),
    arg("--steps", type=int, default=200, tiny=4),
    arg("--snapshots", type=int, default=12, tiny=2),
    arg("--seconds", type=float, default=1000.0, help="of the default migration, about"),
    arg("--ways", nargs="+", choices=WAYS, default=list(WAYS), tiny=["default"]),
    needs=("devito",),
)
def main(asked: Any, report: Report) -> None:
    report.facts |= {name: os.environ.get(f"DEVITO_{name}") for name in ("PLATFORM", "LANGUAGE", "ARCH")}
    for way in asked.ways:
        add(report, "two steps", way, asked.shape, "apply", child(two_steps, way, asked.shape, asked.order))
    shape, call = asked.shape, (report.find(way="default") or {}).get("apply")
    if call and not asked.tiny:
        shape = affordable(shape, call, 2 * asked.steps, asked.seconds)
    for way in asked.ways:
        row = child(migrate, way, shape, asked.order, asked.steps, asked.snapshots)
        add(report, "migration", way, shape, "seconds", row)
    report.table(
        "Devito's ways", "table way shape apply:s run:s seconds:s placing:s reversal:s times_faster:.1f same failed"
    )


def add(report: Report, table: str, way: str, shape: Any, key: str, row: dict[str, Any]) -> None:
    """Add a row: how many times faster than Devito alone, and whether the results are the same."""
    base = report.find(table=table, way="default")
    if "failed" in row:
        report.fail(f"{table}, {way}: {row['failed']}")
    elif base is not None and "failed" not in base:
        row |= {"times_faster": base[key] / row[key], "same": row["digest"] == base["digest"]}
    report.add({"table": table, "way": way, "shape": shape} | row)


if __name__ == "__main__":
    main()
