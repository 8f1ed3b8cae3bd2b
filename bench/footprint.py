"""How well footprints learned from a few tiny runs foresee the peak memory of shapes 20 to 55 times larger.

Takes ten to twenty minutes; ``--public`` takes a hundred functions of other libraries, beside regressions on the same
samples, in an hour. Peaks are exact: other work on the machine disturbs the seconds alone.
"""

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from math import prod
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from harness import Report, arg, benchmark, median

sys.path[:0] = [str(Path(__file__).parents[1] / "examples"), str(Path(__file__).parents[1])]
RATIOS = (20, 28, 40, 55)
FEWER = {"svd_denoise": 2}
"""shapes held out of an operator that takes minutes for the larger ones"""
LARGEST = {"despike": 8e5, "svd_denoise": 6.3e6, "gaussian": 3e6, "labels": 3e6}
ON_DEVICE = 2.4e6
"""elements of a sample at most, where the shapes held out would otherwise take minutes or gigabytes; on a GPU of all"""
STRETCH = 2.0


class Operator(NamedTuple):
    """What is learned."""

    library: str
    call: Callable[[Any], Any]
    ndim: int
    largest: float | None
    axes: dict[int, int] = {}  # noqa: RUF012 - nobody writes into it


@benchmark(
    arg("--quick", action="store_true", tiny=True),
    arg("--public", action="store_true", tiny=True, help="public functions of other people's libraries"),
    arg("--gpu", action="store_true", help="operators of CuPy and PyTorch"),
    arg("--seconds", type=float, default=60.0, help="that learning may take, of each"),
    arg("--jobs", type=int, default=1, help="operators at a time"),
    arg("--keep", help="a folder of models and measured peaks, where a run goes on that was cut off"),
    arg("operators", nargs="*", metavar="OPERATOR", tiny=["numpy.sort"]),
    needs=lambda asked: ("gpu", "cupy", "torch") if asked.gpu else ("scipy",),
)
def main(asked: Any, report: Report) -> None:
    operators = choose(asked)
    if unknown := set(asked.operators) - set(operators):
        raise SystemExit(f"no operator is called {', '.join(unknown)}: take some of {', '.join(operators)}")
    warnings.simplefilter("ignore")
    with ThreadPoolExecutor(asked.jobs) as pool:
        named = {name: operators[name] for name in asked.operators or operators}
        tried = {pool.submit(try_out, name, operator, asked): name for name, operator in named.items()}
        for ended in as_completed(tried):
            if error := ended.exception():
                report.fail(f"{tried[ended]}: {type(error).__name__}: {str(error)[:200]}")
            else:
                report.add(ended.result())
    report.rows.sort(key=lambda row: list(operators).index(row["operator"]))
    columns = "operator described samples ran:.1f mape:.2% worst:+.2% exceeded of over:.1%"
    report.table("footprints of shapes held out: the error of the estimate, and how far the bound is over", columns)
    report.facts |= {"all": summary([run for row in report.rows for run in row["held"]])}
    on_torch = [abs(run["error"]) for row in report.rows for run in row["held"] if row["operator"].startswith("torch.")]
    report.facts |= {"worst_of_torch": max(on_torch)} if on_torch else {}
    report.facts |= {"exceeded_untold": sum(row["exceeded"] for row in report.rows if not row["told"])}
    report.facts |= {"functions": len(report.rows), "ran_at_most": max(row["ran"] for row in report.rows)}
    report.say(f"in sum: {report.facts}; largest sample at most {max(row['share'] for row in report.rows):.1%}")


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all shapes held out say together."""
    facts = {"shapes": len(runs), "exceeded": sum(run["over"] < 0 for run in runs)}
    for name in ("error", *(name for name in runs[0] if name.startswith("by_"))):
        errors = [abs(run[name]) for run in runs if name in run]
        facts[name.replace("error", "by_footprint")] = {"median": median(errors), "mean": mean(errors)}
    return facts | {"median_over": median([r["over"] for r in runs]), "above_twice": sum(r["over"] > 1 for r in runs)}


def choose(asked: Any) -> dict[str, Operator]:
    """Return operators by name."""
    if asked.public:
        from tests.footprint.public import installed

        calls = installed().items()
        return {name: Operator(name.partition(".")[0], f, *f.case[:2], f.case.axes or {}) for name, f in calls}
    if asked.gpu:
        from seismic_operators_gpu import OPERATORS as ON_GPU

        return {name: Operator(library, call, 3, ON_DEVICE) for name, (library, call) in ON_GPU.items()}
    from seismic_operators import OPERATORS

    return {name: Operator("numpy", call, 3, LARGEST.get(name)) for name, call in OPERATORS.items()}


def try_out(name: str, operator: Operator, asked: Any) -> dict[str, Any]:
    """Learn an operator, then measure shapes that it was not learned from."""
    from forebay.footprint import learn, load
    from forebay.footprint.measure.inputs import InputLayout, InputRecipe
    from forebay.footprint.measure.process import Child, Workload

    library = operator.library if operator.library in ("torch", "cupy") else "numpy"
    layout, start = InputLayout.of(operator.ndim, operator.axes), time.perf_counter()
    how = {"largest": 4e4 if asked.tiny else operator.largest, "samples": 10, "seconds": asked.seconds}
    how |= {"ndim": operator.ndim, "axes": operator.axes, "library": library}
    kept = Path(asked.keep or tempfile.mkdtemp(), f"{name}.json")
    model = load(kept, operator.call) if kept.exists() else learn(operator.call, **how)
    known = {"seconds": time.perf_counter() - start, "peaks": {}}
    known = json.loads(peaks.read_text()) if (peaks := kept.with_suffix(".peaks")).exists() else known
    model.save(kept)
    largest = max(prod(sample.lengths) for sample in model.samples)
    grain = 16 if any("multiples of 16" in note for note in model.notes) else 1
    shapes = held_out(largest, operator, RATIOS[::2] if asked.quick else RATIOS[: FEWER.get(name)], grain)
    if missing := [shape for shape in shapes if str(shape) not in known["peaks"]]:
        with closing(Child(Workload(operator.call, InputRecipe(layout, "float32", library)))) as child:
            child.measure(min((sample.lengths for sample in model.samples), key=prod))
            for shape in missing:
                run = child.measure(shape, timeout=600)
                known["peaks"][str(shape)] = run.peak, run.seconds
                peaks.write_text(json.dumps(known))
    held, guesses = [], regressed(model, shapes)
    for place, shape in enumerate(shapes):
        (peak, seconds), foreseen = known["peaks"][str(shape)], model.predict(shape)
        errors = {"error": foreseen.bytes / peak - 1, "over": foreseen.upper / peak - 1}
        errors |= {f"by_{way}": guessed[place] / peak - 1 for way, guessed in guesses.items()}
        errors |= {"seconds": seconds, "seconds_foreseen": foreseen.seconds}
        held.append({"shape": shape, "ratio": prod(shape) / largest, "measured": peak} | errors)
    terms = (model.device or model.host).coefficients
    described = " + ".join(f"{value:.2f} {term}" for term, value in terms.items() if term != "1")
    errors, over = [run["error"] for run in held], [run["over"] for run in held]
    row = {"operator": name, "terms": terms, "described": f"{described} {terms['1'] / 1e6:+.2f} MB", "held": held}
    row |= {"samples": len(model.samples), "largest": largest, "seconds": known["seconds"], "of": len(held)}
    row |= {"ran": sum(each.seconds for each in model.samples), "exceeded": sum(excess < 0 for excess in over)}
    row |= {"mape": mean(map(abs, errors)), "worst": max(errors, key=abs), "over": median(over)}
    told = "; ".join((*model.notes, *model.doubts.notes))
    row |= {"told": told, "warned": "yes" if told else "no"}
    row |= {"versions": model.conditions.versions | {"gpu": model.conditions.gpu}}
    return row | {"share": max(1 / run["ratio"] for run in held)}


def regressed(model: Any, shapes: list[tuple[int, ...]]) -> dict[str, list[float]]:
    """Return what regressions foresee, of lengths and volume, that were taught the same samples; none without them."""
    try:
        from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
        from sklearn.linear_model import LinearRegression
    except ModuleNotFoundError:
        return {}
    taught = {(*each.lengths, prod(each.lengths)): each.peak for each in model.samples if not each.strided}
    asked = [(*shape, prod(shape)) for shape in shapes]
    ways = {"forest": RandomForestRegressor(random_state=0), "boosting": GradientBoostingRegressor(random_state=0)}
    ways |= {"ols": LinearRegression()}
    return {name: way.fit([*taught], [*taught.values()]).predict(asked).tolist() for name, way in ways.items()}


def held_out(largest: int, operator: Operator, ratios: tuple[int, ...], grain: int = 1) -> list[tuple[int, ...]]:
    """Return shapes so many times larger, of random proportions, in multiples of a grain: the same in every run."""
    rng = np.random.default_rng(20261115)
    growing = [axis for axis in range(operator.ndim) if axis not in operator.axes]
    shapes = []
    for ratio in ratios:
        uneven = rng.uniform(-1, 1, operator.ndim)[growing]
        volume = ratio * largest / prod(operator.axes.values())
        sides = volume ** (1 / len(growing)) * STRETCH ** (uneven - uneven.mean())
        lengths = operator.axes | {
            axis: grain * int(np.ceil(side / grain)) for axis, side in zip(growing, sides, strict=True)
        }
        shapes.append(tuple(lengths[axis] for axis in range(operator.ndim)))
    return shapes


if __name__ == "__main__":
    main()
