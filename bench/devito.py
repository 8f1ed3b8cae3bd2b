"""Devito on a GPU: fields copied at every call, as it does by itself, beside managed memory and fields that stay.

Two things are measured, each way in a process of its own: a call of two time steps of the elastic wave equation, and a
whole elastic migration of one shot, forward and backward under the same Revolve. Operators, schedule and engine are the
same on all sides; without Forebay's doors the state, and so the snapshots, are on the host. Results are compared bit
by bit. Compiling is left out; bringing fields to the device and home again is in the migration's time.

The whole migration by Devito alone takes more than ten minutes at full size, so it is done on the largest grid that
should end within ``--seconds``, all ways on the same one.

Needs Devito set to a GPU: DEVITO_PLATFORM=nvidiaX DEVITO_LANGUAGE=openmp DEVITO_ARCH=clang. Run
``python bench/devito.py``: prints tables, writes ``bench/out/devito.json`` after every row. ``--tiny`` is over in a
minute and runs without a GPU too, where all ways are the same.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("DEVITO_LOGGING", "ERROR")
ROOT = Path(__file__).parents[1]
# This file has the name of the library that it measures, and Python looks first where the script is.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != ROOT / "bench"]
if __name__ == "devito":  # another benchmark beside this one asked for the library
    del sys.modules[__name__]
    sys.modules[__name__] = import_module(__name__)
WAYS = ("default", "unified", "resident")
FULL = (400, 400, 505)
CALLS = 4
"""Of two steps that are timed, on all ways as many: the fields at the end are compared."""


def placed(way, shape, steps, both):
    """Make a shot, and give what surrounds the building and the running of its operators, there or there and back."""
    sys.path.insert(0, str(ROOT / "examples"))
    from devito_elastic_rtm import Shot

    from forebay.devito import resident, unified

    shot = Shot(shape, steps)

    def functions():
        there = (*shot.waves[:2], *shot.medium.values(), shot.source, shot.receivers)
        return shot.functions if both else there

    if way == "unified":
        with unified():
            assert functions()  # made here, they are in managed memory
        return shot, unified
    return shot, (lambda: resident(*functions())) if way == "resident" else nullcontext


def two_steps(way, shape):
    """Time calls of two steps, the first ones left out; give the fields too."""
    from forebay.devito import Run, sync_host

    shot, surrounded = placed(way, shape, 4 * CALLS + 8, both=False)
    with surrounded():
        there = shot.there()
        seconds, bare, run = [], [], Run(there)
        for call in range(CALLS + 1):
            start = time.perf_counter()
            there.apply(time_m=2 * call, time_M=2 * call + 1)
            seconds.append(time.perf_counter() - start)
        for call in range(CALLS + 1, 2 * CALLS + 2):
            start = time.perf_counter()
            run(2 * call, 2 * call + 2)
            bare.append(time.perf_counter() - start)
        if way != "default":
            sync_host(*shot.waves[:2])
    return {
        "apply": statistics.median(seconds[1:]),
        "run": statistics.median(bare[1:]),
        "digest": digest(field.data for function in shot.waves[:2] for field in function.values()),
    }


def migrate(way, shape, steps, snapshots):
    """Time the migration of a shot after one step each way has been run, which compiles and warms."""
    import numpy as np

    import forebay as fb
    from forebay.devito import Forward, Run, sync_device, sync_host

    shot, surrounded = placed(way, shape, steps, both=True)
    moved = way != "default"
    with surrounded():
        there, back = shot.there(), shot.back()
        for operator in (there, back):
            operator.apply(time_m=1, time_M=1)
    waves = [field for function in shot.waves for field in function.values()]
    for function in (*waves, shot.image, shot.receivers, shot.residual):
        function.data_with_halo[:] = 0
    counted = {"forward": [], "backward": 0}

    begun = time.perf_counter()
    with ExitStack() as held:
        held.enter_context(surrounded())
        advance, retreat = Forward(there), Run(back)
        state = advance.state()
        there_now = time.perf_counter()

        def forward(state, start, stop):
            counted["forward"].append(stop - start)
            return advance(state, start, stop)

        def turn(final):
            if moved:
                sync_host(shot.receivers)
            shot.residual.data[:] = shot.receivers.data
            if moved:
                sync_device(shot.residual)

        def backward(state, step):
            counted["backward"] += 1
            advance.load(state, step)
            retreat(step, step + 1)

        tier = "host" if isinstance(next(iter(state.values())), np.ndarray) else "device"
        snapshot = sum(array.nbytes for array in state.values())
        plan = fb.plan(
            steps,
            snapshot,
            fb.Budget(**{tier: 1.01 * (snapshots + 2) * snapshot}),
            costs=fb.Costs(forward=1e-2, backward=1e-2, copy=1e12),  # the schedule is given: nothing is to be chosen
            schedule=fb.Revolve(steps, snapshots),
        )
        result = fb.reverse(forward, backward, state, steps, turn=turn, plan=plan, synchronous=True, progress=False)
        ended = time.perf_counter()
        if way == "unified":
            sync_host(shot.image)
    calls = counted["forward"]
    return {
        "seconds": time.perf_counter() - begun,
        "placing": there_now - begun,
        "reversal": ended - there_now,
        "forward_calls": len(calls),
        "forward_steps": sum(calls),
        "steps_per_call": sum(calls) / len(calls),
        "backward_calls": counted["backward"],
        "snapshot_bytes": snapshot,
        "snapshots_on": tier,
        "engine": {what: round(seconds, 3) for what, seconds in result.metrics.phases.items()},
        "digest": digest([shot.image.data, shot.receivers.data]),
        "largest": float(np.abs(shot.image.data).max()),
    }


def digest(arrays):
    """Give a short fingerprint of arrays."""
    import numpy as np

    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array))
    return found.hexdigest()[:16]


def apart(what, *arguments):
    """Measure in a process of its own: neither memory nor mappings of one way are there in the next."""
    command = [sys.executable, __file__, "--measure", json.dumps([what, *arguments])]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if finished.returncode:
        return {"failed": finished.returncode}
    return json.loads(finished.stdout.splitlines()[-1])


def affordable(full, call, calls, seconds):
    """Give the largest grid of the same proportions on which so many default calls should take no longer."""
    scale = min(1.0, (seconds / (1.5 * calls * call)) ** (1 / 3))
    return full if scale == 1.0 else tuple(max(32, int(points * scale) // 4 * 4) for points in full)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=3, default=FULL)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--snapshots", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1000.0, help="of the default migration, about")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        warnings.simplefilter("ignore")
        what, *arguments = asked.measure
        print(json.dumps({"two_steps": two_steps, "migrate": migrate}[what](*arguments)))
        return
    if asked.tiny:
        asked.shape, asked.steps, asked.snapshots = (24, 24, 28), 20, 3

    out = ROOT / "bench" / "out" / "devito.json"
    out.parent.mkdir(exist_ok=True)
    about = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "devito": version("devito"), "argv": sys.argv[1:]}
    about |= {name: os.environ.get(name) for name in ("DEVITO_PLATFORM", "DEVITO_LANGUAGE", "DEVITO_ARCH")}
    written = {"about": about, "two_steps": {}, "migration": {}}

    def keep(table, way, row):
        written[table][way] = row
        out.write_text(json.dumps(written, indent=1))
        shown = (f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in row.items())
        print(f"{way:9s}", *shown, flush=True)

    shape = tuple(asked.shape)
    print(f"calls of two steps, elastic, {shape}: seconds by operator.apply() and by Run", flush=True)
    for way in asked.ways:
        keep("two_steps", way, apart("two_steps", way, shape))
    ratios(written["two_steps"], "apply")

    calls = 2 * asked.steps
    smaller = shape
    if call := written["two_steps"].get("default", {}).get("apply"):
        smaller = affordable(shape, call, calls, asked.seconds)
    written["about"]["migration_shape"] = smaller
    print(f"migration, elastic, {smaller}, Revolve({asked.steps}, {asked.snapshots})", flush=True)
    for way in asked.ways:
        keep("migration", way, apart("migrate", way, smaller, asked.steps, asked.snapshots))
    ratios(written["migration"], "seconds")


def ratios(rows, key):
    """Print how many times faster than Devito alone, and whether the results are the same."""
    base = rows.get("default", {})
    for way, row in rows.items():
        if way != "default" and key in row and key in base:
            same = "the same bit for bit" if row["digest"] == base["digest"] else "NOT the same"
            print(f"{way} is {base[key] / row[key]:.1f} times as fast as default; the results are {same}", flush=True)


if __name__ == "__main__":
    main()
