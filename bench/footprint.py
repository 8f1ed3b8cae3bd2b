"""How well footprints learned from a few tiny runs foresee the peak memory of shapes 20 to 55 times larger.

Takes ten to twenty minutes, half with ``--quick``, which holds out two shapes instead of four. ``--public`` takes
public functions of such libraries as are installed, on which nothing was tuned, ``--gpu`` operators of CuPy and
PyTorch. Peaks are exact, so other work on the machine does not disturb them; seconds it does.
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
from cases.public import installed
from harness import Report, arg, benchmark, median

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
RATIOS = (20, 28, 40, 55)
FEWER = {"svd_denoise": 2}
"""shapes held out of an operator that takes minutes for the larger ones"""
LARGEST = {"despike": 8e5, "svd_denoise": 6.3e6, "gaussian": 3e6, "labels": 3e6}
"""elements of a sample at most, where the shapes held out would otherwise take minutes or gigabytes"""
ON_DEVICE = 2.4e6
"""the same for all operators on a GPU"""
IN_PUBLIC = 4e5
"""the same for public functions"""
LARGEST |= {"numpy.linalg.svd": 4e4, "sklearn.metrics.pairwise_distances": 1e5, "scipy.spatial.distance.pdist": 1e5}
STRETCH = 2.0
Operator = Callable[[Any], Any]


@benchmark(
    arg("--quick", action="store_true", tiny=True),
    arg("--public", action="store_true", tiny=True, help="public functions of other people's libraries"),
    arg("--gpu", action="store_true", help="operators of CuPy and PyTorch"),
    arg("operators", nargs="*", metavar="OPERATOR", tiny=["numpy.sort"]),
    needs=lambda asked: ("gpu", "cupy", "torch") if asked.gpu else ("scipy",),
)
def main(asked: Any, report: Report) -> None:
    from forebay.footprint import FootprintWarning

    operators = choose(asked)
    if unknown := set(asked.operators) - set(operators):
        raise SystemExit(f"no operator is called {', '.join(unknown)}: take some of {', '.join(operators)}")
    warnings.simplefilter("ignore", FootprintWarning)
    for name in asked.operators or operators:
        library, operator, ndim = operators[name]
        report.add(try_out(name, library, operator, ndim, asked, report))
    columns = "operator described samples seconds:.1f mape:.2% worst:+.2% exceeded of over:.1%"
    report.table("footprints of shapes held out: the error of the estimate, and how far the bound is over", columns)
    runs = [run for row in report.rows for run in row["held"]]
    error, over = mean(abs(run["error"]) for run in runs), median([run["over"] for run in runs])
    exceeded, share = sum(run["over"] < 0 for run in runs), max(row["share"] for row in report.rows)
    report.facts |= {"shapes": len(runs), "exceeded": exceeded, "mean_error": error, "median_over": over}
    report.facts["median_error"] = median([abs(run["error"]) for run in runs])
    report.facts["above_twice"] = sum(run["over"] > 1 for run in runs)
    untold = [row for row in report.rows if row["exceeded"] and not row["told"]]
    report.facts["exceeded_untold"] = sum(row["exceeded"] for row in untold)
    report.say(
        f"all {len(runs)} shapes held out: MAPE {error:.2%}, bound exceeded {exceeded} times, median over-allocation "
        f"{over:.1%}; largest sample at most {share:.1%} of a shape held out"
    )


def choose(asked: Any) -> dict[str, tuple[str, Operator, int]]:
    """Return operators by name, each with the library whose arrays it takes and the number of their axes."""
    if asked.public:
        return {name: ("numpy", function, ndim) for name, (ndim, function) in installed().items()}
    if asked.gpu:
        from seismic_operators_gpu import OPERATORS as ON_GPU

        return {name: (*operator, 3) for name, operator in ON_GPU.items()}
    from seismic_operators import OPERATORS

    return {name: ("numpy", operator, 3) for name, operator in OPERATORS.items()}


def try_out(name: str, library: str, operator: Operator, ndim: int, asked: Any, report: Report) -> dict[str, Any]:
    """Learn an operator, then measure shapes that it was not learned from."""
    from forebay.footprint import learn
    from forebay.footprint.measure.inputs import InputLayout, InputRecipe
    from forebay.footprint.measure.process import Child, Workload

    start = time.perf_counter()
    most = LARGEST.get(name, ON_DEVICE if library != "numpy" else IN_PUBLIC if asked.public else None)
    model = learn(operator, ndim=ndim, library=library, largest=4e4 if asked.tiny else most)
    seconds = time.perf_counter() - start
    largest = max(prod(sample.lengths) for sample in model.samples)
    child = Child(Workload(operator, InputRecipe(InputLayout.of(ndim), "float32", library)))
    child.measure(min((sample.lengths for sample in model.samples), key=prod))
    held = []
    for shape in held_out(largest, ndim, RATIOS[::2] if asked.quick else RATIOS[: FEWER.get(name, len(RATIOS))]):
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
    row["told"] = "; ".join((*model.notes, *model.doubts.notes))
    row["warned"] = "yes" if row["told"] else "no"
    versions = model.conditions.versions | ({"gpu": model.conditions.gpu} if model.conditions.gpu else {})
    return row | {"share": max(1 / run["ratio"] for run in held), "versions": versions}


def held_out(largest: int, ndim: int, ratios: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return shapes so many times larger, of random proportions; the same ones in every run."""
    rng = np.random.default_rng(20261115)
    shapes = []
    for ratio in ratios:
        uneven = rng.uniform(-1, 1, ndim)
        sides = (ratio * largest) ** (1 / ndim) * STRETCH ** (uneven - uneven.mean())
        shapes.append(tuple(int(np.ceil(side)) for side in sides))
    return shapes


if __name__ == "__main__":
    main()
