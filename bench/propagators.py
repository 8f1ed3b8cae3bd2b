"""Our acoustic and elastic steps beside Devito's on a CPU: the same equation, layers, points, steps, type and threads.

``acoustic`` takes about two minutes and ``elastic`` a few. Devito needs a C compiler; without Devito only our speeds
are told. Its layers damp by a field for each of the waves', as Devito's do ("damped"), or not at all ("plain").
"""

import math
import os
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from harness import Report, arg, benchmark, beside, medians, turns

CASES = {
    "acoustic": {"3-D": ((220, 220, 220), 6), "3-D, long rows": ((120, 150, 600), 6), "2-D": ((1800, 1800), 20)},
    "elastic": {"3-D": ((128, 128, 128), 3), "3-D, long rows": ((64, 80, 400), 3), "2-D": ((1200, 1200), 6)},
}
"""Points that are computed, layers included, and steps of a turn."""
ORDERS = {"acoustic": (4, 8), "elastic": (8,)}


@benchmark(
    arg("waves", nargs="?", choices=tuple(CASES), default="acoustic"),
    arg("--threads", type=int, default=os.cpu_count() or 1, help="all unless told"),
    arg("--shape", type=int, nargs="+", tiny=[40, 44], help="points of one grid, layers included, not the usual"),
    arg("--repetitions", type=int, default=7, tiny=2, help="turns"),
)
def main(asked: Any, report: Report) -> None:
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(asked.threads)  # read when they are loaded
    os.environ.setdefault("DEVITO_LANGUAGE", "openmp")
    os.environ.setdefault("DEVITO_LOGGING", "ERROR")
    cases = {"given": (tuple(asked.shape), 3)} if asked.shape else CASES[asked.waves]
    for name, (shape, steps) in cases.items():
        for order in ORDERS[asked.waves]:
            row = {"waves": asked.waves, "problem": name, "shape": shape, "order": order, "steps": steps}
            report.add(row | measure(asked.waves, shape, order, steps, asked.repetitions))
    report.table(
        f"{asked.waves} step, float32, {asked.threads} threads: Gpoint/s, medians of turns, and ratios",
        "problem order ours:.4f ours_GBps:.1f damped:.4f to_damped.ratio:.2f to_damped.lowest:.2f "
        "to_damped.highest:.2f plain:.4f to_plain.ratio:.2f",
    )


def measure(waves: str, shape: tuple[int, ...], order: int, steps: int, repetitions: int) -> dict[str, Any]:
    """Run ours and Devito's operators in turns, after both have been compiled and found to agree."""
    from cases.steps import NBYTES, Ours

    ours = Ours(waves, shape, order)
    ours.run(steps)
    calls = {"ours": partial(ours.run, steps)}
    if find_spec("devito") is not None:
        from cases.devito_steps import DevitoAcoustic, DevitoElastic

        theirs = (DevitoAcoustic if waves == "acoustic" else DevitoElastic)(ours, shape, order)
        theirs.run("damped", steps)
        mine, others = ours.fields(), theirs.fields()
        differs = max(float(np.linalg.norm(mine[n] - others[n]) / np.linalg.norm(others[n])) for n in mine)
        assert differs < 1e-4, f"not the same waves: {differs}"
        theirs.run("plain", 1)
        calls |= {way: partial(theirs.run, way, steps) for way in theirs.operators}
    taken = turns(calls, repetitions)
    row: dict[str, Any] = {who: math.prod(shape) * steps / took / 1e9 for who, took in medians(taken).items()}
    row["ours_GBps"] = row["ours"] * NBYTES[waves][len(shape)]
    return row | {f"to_{way}": beside(taken["ours"], taken[way]) for way in taken if way != "ours"}


if __name__ == "__main__":
    main()
