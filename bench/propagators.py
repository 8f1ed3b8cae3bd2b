"""Our acoustic and elastic steps beside Devito's: the same equation, layers, points, steps, type and threads.

On a CPU, ``acoustic`` takes about two minutes and ``elastic`` a few. Devito needs a C compiler; without Devito only our
speeds are told.

``elastic --gpu`` runs both on a GPU, which takes a minute. Devito's fields stay on the device, so that kernels are
compared and not copies. Its layers damp by a field for each of the waves', as Devito's do ("damped"), by profiles along
the axes, as ours do ("profiles"), or not at all ("plain"). This needs CuPy, and Devito set to a GPU:
DEVITO_PLATFORM=nvidiaX DEVITO_LANGUAGE=openmp DEVITO_ARCH=clang.
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
ON_GPU = (304, 304, 400)
WARM, TURN, TURNS = 8, 20, 5
"""On a GPU: steps before the waves are compared, steps of a turn, turns."""


@benchmark(
    arg("waves", nargs="?", choices=tuple(CASES), default="acoustic"),
    arg("--gpu", action="store_true", help="compare elastic steps on a GPU"),
    arg("--threads", type=int, default=os.cpu_count() or 1, help="on the CPU: all unless told"),
    arg("--shape", type=int, nargs="+", tiny=[40, 44], help="points of one grid, layers included, not the usual"),
    arg("--repetitions", type=int, default=7, tiny=2, help="turns on the CPU"),
    needs=lambda asked: ("gpu", "cupy", "devito") if asked.gpu else (),
)
def main(asked: Any, report: Report) -> None:
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(asked.threads)  # read when they are loaded
    os.environ.setdefault("DEVITO_LANGUAGE", "openmp")
    os.environ.setdefault("DEVITO_LOGGING", "ERROR")
    if asked.gpu:
        report.add(measure_gpu(tuple(asked.shape or ON_GPU)))
        report.table(
            f"elastic step, medians of {TURNS} turns of {TURN} steps: ms, and times ours",
            "shape order apart:.1e ms.ours:.3f ms.profiles:.3f ms.damped:.3f ms.plain:.3f ratios.profiles:.2f "
            "ratios.damped:.2f ratios.plain:.2f Gpoints.ours:.2f",
        )
        return
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
        from cases.devito_steps import DevitoAcoustic, DevitoElastic, applied

        theirs = (DevitoAcoustic if waves == "acoustic" else DevitoElastic)(ours, shape, order)
        theirs.build(("damped", "plain"), applied)
        theirs.run("damped", steps)
        apart(ours, theirs)
        theirs.run("plain", 1)
        calls |= {way: partial(theirs.run, way, steps) for way in theirs.operators}
    taken = turns(calls, repetitions)
    row: dict[str, Any] = {who: math.prod(shape) * steps / took / 1e9 for who, took in medians(taken).items()}
    row["ours_GBps"] = row["ours"] * NBYTES[waves][len(shape)]
    return row | {f"to_{way}": beside(taken["ours"], taken[way]) for way in taken if way != "ours"}


def apart(ours: Any, theirs: Any) -> float:
    """Return the largest difference of a field, relative to its norm, if the waves are the same."""
    mine, others = ours.fields(), theirs.fields()
    differs = max(float(np.linalg.norm(mine[n] - others[n]) / np.linalg.norm(others[n])) for n in mine)
    assert differs < 1e-4, f"not the same waves: {differs}"
    return differs


def measure_gpu(shape: tuple[int, ...], order: int = 8) -> dict[str, Any]:
    """Run them in turns on a GPU, after both have been compiled and found to agree."""
    import cupy
    import devito
    from cases.devito_steps import DevitoElastic
    from cases.steps import Ours

    from forebay.devito import Run, resident, sync_host
    from forebay.devito.support import SUPPORTED, on_device

    if not on_device():
        raise SystemExit(f"Devito is set to a CPU: set {SUPPORTED}")
    ours = Ours("elastic", shape, order, cupy.asarray, cupy.cuda.Device().synchronize)
    theirs = DevitoElastic(Ours("elastic", shape, order), shape, order)
    with resident(*theirs.functions()):
        theirs.build(("profiles", "damped", "plain"), Run)
        ours.run(WARM)
        theirs.run("profiles", WARM)
        sync_host(*theirs.waves.values())
        differs = apart(ours, theirs)
        for way in ("damped", "plain"):
            theirs.run(way, 1)
        calls = {"ours": partial(ours.run, TURN)} | {way: partial(theirs.run, way, TURN) for way in theirs.operators}
        steps = {who: took / TURN for who, took in medians(turns(calls, TURNS)).items()}
    return {
        "shape": shape,
        "order": order,
        "apart": differs,
        "compiler": str(devito.configuration["compiler"].cc),
        "ms": {who: 1e3 * step for who, step in steps.items()},
        "Gpoints": {who: math.prod(shape) / step / 1e9 for who, step in steps.items()},
        "ratios": {way: steps[way] / steps["ours"] for way in theirs.operators},
    }


if __name__ == "__main__":
    main()
