"""How well footprints learned from a few tiny runs foresee the peak memory of shapes 20 to 55 times larger.

Takes ten to twenty minutes, half with ``--quick``, which holds out two shapes instead of four. ``--others`` takes
functions that nothing was tuned on, ``--gpu`` operators of CuPy and PyTorch on a GPU. Peaks are exact, so other work on
the machine does not disturb them; seconds it does.
"""

import sys
import time
import warnings
from collections.abc import Callable
from math import prod
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from harness import Report, arg, benchmark, median

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
RATIOS = (20, 28, 40, 55)
FEWER = {"svd_denoise": 2}
"""shapes held out of an operator that takes minutes for the larger ones"""
LARGEST = {"despike": 8e5, "svd_denoise": 6.3e6, "gaussian": 3e6, "labels": 3e6}
LARGEST |= dict.fromkeys(("quantiles", "windows", "shrink", "power", "stack"), 8e5)
"""elements of a sample at most, where the shapes held out would otherwise take minutes or gigabytes"""
ON_DEVICE = 2.4e6
"""the same for all operators on a GPU"""
STRETCH = 2.0
Operator = Callable[[Any], Any]


@benchmark(
    arg("--quick", action="store_true", tiny=True),
    arg("--others", action="store_true", tiny=True, help="functions that nothing was tuned on"),
    arg("--gpu", action="store_true", help="operators of CuPy and PyTorch"),
    arg("operators", nargs="*", metavar="OPERATOR", tiny=["magnitude"]),
    needs=lambda asked: ("gpu", "cupy", "torch") if asked.gpu else ("scipy",),
)
def main(asked: Any, report: Report) -> None:
    from forebay.footprint import FootprintWarning

    operators = choose(asked)
    if unknown := set(asked.operators) - set(operators):
        raise SystemExit(f"no operator is called {', '.join(unknown)}: take some of {', '.join(operators)}")
    warnings.simplefilter("ignore", FootprintWarning)
    for name in asked.operators or operators:
        library, operator = operators[name]
        report.add(try_out(name, library, operator, asked, report))
    columns = "operator described samples seconds:.1f mape:.2% worst:+.2% exceeded of over:.1%"
    report.table("footprints of shapes held out: the error of the estimate, and how far the bound is over", columns)
    runs = [run for row in report.rows for run in row["held"]]
    error, over = mean(abs(run["error"]) for run in runs), median([run["over"] for run in runs])
    exceeded, share = sum(run["over"] < 0 for run in runs), max(row["share"] for row in report.rows)
    report.say(
        f"all {len(runs)} shapes held out: MAPE {error:.2%}, bound exceeded {exceeded} times, median over-allocation "
        f"{over:.1%}; largest sample at most {share:.1%} of a shape held out"
    )


def choose(asked: Any) -> dict[str, tuple[str, Operator]]:
    """Return operators by name, each with the library whose arrays it takes."""
    if asked.gpu:
        from seismic_operators_gpu import OPERATORS as ON_GPU

        return ON_GPU
    from seismic_operators import OPERATORS

    return {name: ("numpy", operator) for name, operator in (others() if asked.others else OPERATORS).items()}


def others() -> dict[str, Operator]:
    """Return everyday functions that no constant of the model was chosen on."""

    def smear(x: Any) -> Any:
        from scipy.signal import fftconvolve

        return fftconvolve(x, np.ones((5, 5, 5), x.dtype), mode="same")

    def shrink(x: Any) -> Any:
        from scipy.ndimage import zoom

        return zoom(x, 0.5, order=1)

    return {
        "magnitude": lambda x: np.sqrt(sum(part * part for part in np.gradient(x))),
        "whiten": lambda x: (x - x.mean(axis=-1, keepdims=True)) / (x.std(axis=-1, keepdims=True) + 1e-6),
        "smear": smear,
        "quantiles": lambda x: np.quantile(x, [0.1, 0.5, 0.9], axis=0),
        "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 9, axis=-1).max(axis=-1),
        "shrink": shrink,
        "power": lambda x: np.abs(np.fft.rfftn(x)) ** 2,
        "stack": lambda x: np.concatenate([x, np.roll(x, 1, axis=0), np.pad(x, 4)[4:-4, 4:-4, 4:-4]], axis=-1),
    }


def try_out(name: str, library: str, operator: Operator, asked: Any, report: Report) -> dict[str, Any]:
    """Learn an operator, then measure shapes that it was not learned from."""
    from forebay.footprint import learn
    from forebay.footprint.measure.inputs import InputLayout, InputRecipe
    from forebay.footprint.measure.process import Child, Workload

    start = time.perf_counter()
    most = LARGEST.get(name, ON_DEVICE if library != "numpy" else None)
    model = learn(operator, ndim=3, library=library, largest=4e4 if asked.tiny else most)
    seconds = time.perf_counter() - start
    largest = max(prod(sample.lengths) for sample in model.samples)
    child = Child(Workload(operator, InputRecipe(InputLayout.of(3), "float32", library)))
    child.measure((16, 16, 16))
    held = []
    for shape in held_out(largest, RATIOS[::2] if asked.quick else RATIOS[: FEWER.get(name, len(RATIOS))]):
        foreseen, run = model.predict(shape), child.measure(shape)
        errors = {"error": foreseen.bytes / run.peak - 1, "over": foreseen.upper / run.peak - 1}
        times = {"seconds": run.seconds, "seconds_foreseen": foreseen.seconds}
        held.append({"shape": shape, "ratio": prod(shape) / largest, "measured": run.peak} | errors | times)
        report.say(f"{name} {held[-1]}")
    child.close()
    terms = (model.device or model.host).coefficients
    described = " + ".join(f"{value:.2f} {term}" for term, value in terms.items() if term != "1")
    errors, over = [run["error"] for run in held], [run["over"] for run in held]
    row = {"operator": name, "terms": terms, "described": f"{described} {terms['1'] / 1e6:+.2f} MB", "held": held}
    row |= {"samples": len(model.samples), "largest": largest, "seconds": seconds}
    row |= {"mape": mean(map(abs, errors)), "worst": max(errors, key=abs), "over": median(over)}
    row |= {"exceeded": sum(excess < 0 for excess in over), "of": len(held)}
    versions = model.conditions.versions | ({"gpu": model.conditions.gpu} if model.conditions.gpu else {})
    return row | {"share": max(1 / run["ratio"] for run in held), "versions": versions}


def held_out(largest: int, ratios: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return shapes so many times larger, of random proportions; the same ones in every run."""
    rng = np.random.default_rng(20261115)
    shapes = []
    for ratio in ratios:
        uneven = rng.uniform(-1, 1, 3)
        sides = (ratio * largest) ** (1 / 3) * STRETCH ** (uneven - uneven.mean())
        shapes.append(tuple(int(np.ceil(side)) for side in sides))
    return shapes


if __name__ == "__main__":
    main()
