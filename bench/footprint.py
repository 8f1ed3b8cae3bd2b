"""How well footprints learned from a few tiny runs foresee the peak memory of shapes 20 to 55 times larger.

Run ``python bench/footprint.py [--quick] [--others | --gpu | --prior] [OPERATOR ...]``: takes ten to twenty minutes
(half with ``--quick``, which holds out two shapes instead of four), prints a table and writes
``bench/out/footprint.json``. ``--others`` takes functions that nothing was tuned on, ``--gpu`` operators of CuPy and
PyTorch on a GPU, and ``--prior`` compares how many samples learning takes with and without a look at the source.
Peaks are exact, so other work on the machine does not disturb them; seconds it does.
"""

import argparse
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable
from math import prod
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from forebay.footprint import FootprintWarning, Model, learn
from forebay.footprint.inputs import Layout, Recipe
from forebay.footprint.process import Child, Work

RATIOS = (20, 28, 40, 55)
FEWER = {"svd_denoise": 2}
"""shapes held out of an operator that takes minutes for the larger ones"""
LARGEST = {"despike": 8e5, "svd_denoise": 6.3e6, "gaussian": 3e6, "labels": 3e6}
LARGEST |= dict.fromkeys(("quantiles", "windows", "shrink", "power", "stack"), 8e5)
"""elements of a sample at most, where the shapes held out would otherwise take minutes or gigabytes"""
ON_DEVICE = 2.4e6
"""the same for all operators on a GPU"""
STRETCH = 2.0

Row = dict[str, Any]
Operator = Callable[[Any], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    kinds = parser.add_mutually_exclusive_group()
    for kind in ("others", "gpu", "prior"):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, default="operators")
    parser.add_argument("operators", nargs="*", metavar="OPERATOR")
    asked = parser.parse_args()
    known = choose(asked.kind)
    if unknown := set(asked.operators) - set(known):
        parser.error(f"no operator is called {', '.join(sorted(unknown))}: take some of {', '.join(known)}")
    warnings.simplefilter("ignore", FootprintWarning)
    out = Path(__file__).parent / "out" / f"footprint{'' if asked.kind == 'operators' else '_' + asked.kind}.json"
    out.parent.mkdir(exist_ok=True)
    rows: list[Row] = []
    for name in asked.operators or known:
        rows.append(compare(name, *known[name]) if asked.kind == "prior" else try_out(name, *known[name], asked.quick))
        out.write_text(json.dumps({"setting": setting(rows), "rows": rows}, indent=2) + "\n")
    (show_comparison if asked.kind == "prior" else show)(rows)


def choose(kind: str) -> dict[str, tuple[str, Operator]]:
    """Give operators by name, each with the library whose arrays it takes."""
    if kind == "gpu":
        from forebay.footprint.operators_gpu import OPERATORS as ON_GPU

        return ON_GPU
    from forebay.footprint.operators import OPERATORS

    return {name: ("numpy", operator) for name, operator in (others() if kind == "others" else OPERATORS).items()}


def others() -> dict[str, Operator]:
    """Give everyday functions that no constant of the model was chosen on."""
    from scipy import ndimage, signal

    def magnitude(x: Any) -> Any:
        return np.sqrt(sum(part * part for part in np.gradient(x)))

    def whiten(x: Any) -> Any:
        return (x - x.mean(axis=-1, keepdims=True)) / (x.std(axis=-1, keepdims=True) + 1e-6)

    def smear(x: Any) -> Any:
        return signal.fftconvolve(x, np.ones((5, 5, 5), x.dtype), mode="same")

    def quantiles(x: Any) -> Any:
        return np.quantile(x, [0.1, 0.5, 0.9], axis=0)

    def windows(x: Any) -> Any:
        return np.lib.stride_tricks.sliding_window_view(x, 9, axis=-1).max(axis=-1)

    def shrink(x: Any) -> Any:
        return ndimage.zoom(x, 0.5, order=1)

    def power(x: Any) -> Any:
        return np.abs(np.fft.rfftn(x)) ** 2

    def stack(x: Any) -> Any:
        return np.concatenate([x, np.roll(x, 1, axis=0), np.pad(x, 4)[4:-4, 4:-4, 4:-4]], axis=-1)

    return {each.__name__: each for each in (magnitude, whiten, smear, quantiles, windows, shrink, power, stack)}


def setting(rows: list[Row]) -> dict[str, Any]:
    found = {"python": platform.python_version(), "machine": platform.platform(), "numpy": np.__version__}
    return found | {name: version for row in rows for name, version in row.get("versions", {}).items()}


def try_out(name: str, library: str, operator: Operator, quick: bool = False) -> Row:
    """Learn an operator, then measure shapes that it was not learned from."""
    start = time.perf_counter()
    most = LARGEST.get(name, ON_DEVICE if library != "numpy" else None)
    model = learn(operator, ndim=3, library=library, largest=most)
    seconds = time.perf_counter() - start
    largest = max(prod(sample.lengths) for sample in model.samples)
    child = Child(Work(operator, Recipe(Layout.of(3), "float32", library)))
    child.measure((16, 16, 16))
    held = []
    ratios = RATIOS[::2] if quick else RATIOS[: FEWER.get(name, len(RATIOS))]
    for shape in held_out(largest, ratios):
        foreseen, run = model.predict(shape), child.measure(shape)
        held.append(
            {
                "shape": shape,
                "ratio": prod(shape) / largest,
                "measured": run.peak,
                "error": foreseen.bytes / run.peak - 1,
                "over": foreseen.upper / run.peak - 1,
                "seconds": run.seconds,
                "seconds_foreseen": foreseen.seconds,
            }
        )
        print(f"{name} {held[-1]}", file=sys.stderr, flush=True)
    child.close()
    return {
        "operator": name,
        "terms": (model.device or model.host).coefficients,
        "samples": len(model.samples),
        "largest": largest,
        "seconds": seconds,
        "held": held,
        "mape": mean(abs(run["error"]) for run in held),
        "worst": max((run["error"] for run in held), key=abs),
        "exceeded": sum(run["over"] < 0 for run in held),
        "over": median(run["over"] for run in held),
        "share": max(1 / run["ratio"] for run in held),
        "versions": model.conditions.versions | ({"gpu": model.conditions.gpu} if model.conditions.gpu else {}),
    }


def held_out(largest: int, ratios: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Give shapes so many times larger, of random proportions; the same ones in every run."""
    rng = np.random.default_rng(20261115)
    shapes = []
    for ratio in ratios:
        uneven = rng.uniform(-1, 1, 3)
        sides = (ratio * largest) ** (1 / 3) * STRETCH ** (uneven - uneven.mean())
        shapes.append(tuple(int(np.ceil(side)) for side in sides))
    return shapes


def compare(name: str, library: str, operator: Operator) -> Row:
    """Learn with and without the source; tell also what the source alone would have guessed."""
    from forebay.footprint.prior import read_source

    models: list[Model] = [learn(operator, ndim=3, largest=LARGEST.get(name), prior=prior) for prior in (True, False)]
    large = (400, 400, 400)
    return {
        "operator": name,
        "findings": sorted(read_source(operator).findings),
        "guess": read_source(operator).bytes_per_element,
        "learned": models[0].predict(large).bytes / prod(large),
        "samples_with": len(models[0].samples),
        "samples_without": len(models[1].samples),
    }


def show(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = (
        "operator",
        "terms (bytes each)",
        "samples",
        "s to learn",
        "MAPE",
        "worst",
        "bound exceeded",
        "bound over",
    )
    table = Table(*columns, title="footprints of shapes held out")
    for row in rows:
        terms = " + ".join(f"{value:.2f} {name}" for name, value in row["terms"].items() if name != "1")
        table.add_row(
            row["operator"],
            f"{terms} {row['terms']['1'] / 1e6:+.2f} MB",
            str(row["samples"]),
            f"{row['seconds']:.1f}",
            f"{row['mape']:.2%}",
            f"{row['worst']:+.2%}",
            f"{row['exceeded']} of {len(row['held'])}",
            f"{row['over']:.1%}",
        )
    runs = [run for row in rows for run in row["held"]]
    console = Console(width=170)
    console.print(table)
    exceeded, over = sum(run["over"] < 0 for run in runs), median(run["over"] for run in runs)
    error = mean(abs(run["error"]) for run in runs)
    share = max(row["share"] for row in rows)
    console.print(
        f"all {len(runs)} shapes held out: MAPE {error:.2%}, bound exceeded {exceeded} times, median over-allocation "
        f"{over:.1%}; largest sample at most {share:.1%} of a shape held out"
    )


def show_comparison(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = ("operator", "found in the source", "guess B/voxel", "learned B/voxel", "samples with", "without")
    table = Table(*columns, title="what the source says before any run")
    for row in rows:
        figures = (
            f"{row['guess']:.0f}",
            f"{row['learned']:.1f}",
            str(row["samples_with"]),
            str(row["samples_without"]),
        )
        table.add_row(row["operator"], ", ".join(row["findings"]), *figures)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
