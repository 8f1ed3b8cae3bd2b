"""Footprints learned on a worker, where functions run, and kept by the scheduler for all users of the cluster."""

import json
import os
import platform
import tempfile
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import cloudpickle
import distributed
import numpy as np

from forebay.dask.clusters import ask_workers
from forebay.errors import BudgetError, reading
from forebay.files import text_of, whole
from forebay.footprint.errors import FootprintError, FootprintWarning
from forebay.footprint.learn import learn
from forebay.footprint.measure.conditions import source_hash
from forebay.footprint.measure.process import name_of
from forebay.footprint.model import Model
from forebay.footprint.model_file import read
from forebay.footprint.registry import how_to_learn

PLACE = "forebay-footprints"
"""Where the scheduler keeps what was learned, by the key of the function."""
VARIABLES = (
    *("LD_PRELOAD", "PYTHONMALLOC", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"),
)
"""Of the environment of workers, what changes a footprint: their allocator, and the threads that libraries start."""

_KNOWN: WeakKeyDictionary[distributed.Client, dict[tuple[str, Path | None], "KnownModel"]] = WeakKeyDictionary()
"""What was learned or found on each cluster, by function and file."""


class KnownModel(NamedTuple):
    """A model that fits workers."""

    model: Model
    workers: frozenset[str]
    """that were there as it was found to"""


def model_on_workers(
    client: distributed.Client,
    func: Callable[..., Any],
    arrays: tuple[Any, ...],
    path: Path | None,
    key: str,
    smallest: int,
) -> Model:
    """Return what is known of a function on a cluster, or have a worker learn it.

    It is looked for in the file, then with the scheduler, and put where it was not found. Where nothing that was
    learned fits arrays like these, or any worker, it is learned again: because of other versions, another machine,
    allocator or threads. Workers that have come since are asked too.

    Parameters
    ----------
    func
        takes arrays like these, and nothing else
    path
        of a file that keeps it
    key
        of the function
    smallest
        the least length of an axis
    """
    known, workers = _KNOWN.setdefault(client, {}), frozenset(client.scheduler_info(n_workers=-1)["workers"])
    found = known.get((key, path))
    if found is None or not workers <= found.workers or (path is not None and not path.exists()):
        place = [PLACE, key]
        text = _kept(path) or client.get_metadata(place, None)
        if text is None or not _fits(client, func, arrays, text):
            text = _learned(client, func, arrays, smallest)
            client.set_metadata(place, text)
        if path is not None and _kept(path) != text:
            with whole(path) as unfinished:
                unfinished.write_text(text)
        found = known[key, path] = KnownModel(_model(text), workers)
    return found.model


def _kept(path: Path | None) -> str | None:
    """Return what a file keeps; raise where that is no model, or a damaged one."""
    if path is None or not path.exists():
        return None
    with reading(path, "a footprint", FootprintError):
        model = Model(**read(path))
        model.of(model.samples[0])
    return text_of(path)


def _fits(client: distributed.Client, func: Callable[..., Any], arrays: tuple[Any, ...], text: str) -> bool:
    """Return whether this was learned on such arrays, and a worker is like the one where; warn where others are not."""
    model, kinds = _model(text), tuple(np.dtype(array.dtype).name for array in arrays)
    if model.conditions.source != source_hash(func) or model.dtype.name != kinds[0]:
        return False
    if model.layout.ndims != (arrays[0].ndim,) or model.conditions.dtypes not in ((), kinds):
        return False
    was = json.loads(text).get("learned on")
    was = was if isinstance(was, dict) else _described(model, {})
    workers = ask_workers(client, circumstances, list(model.conditions.versions))
    changed = {worker: _changes(was, now) for worker, now in workers.items()}
    if all(changed.values()):
        return False
    for worker, changes in changed.items():
        if changes:
            warnings.warn(
                f"{name_of(func)} was learned under other conditions than worker {worker} has: {changes}. Its bound "
                "may not hold there",
                FootprintWarning,
                stacklevel=2,
            )
    return True


def _changes(was: Mapping[str, str], now: Mapping[str, str]) -> str:
    return "; ".join(f"{name} was {then} and is {now.get(name)}" for name, then in was.items() if then != now.get(name))


def _learned(client: distributed.Client, func: Callable[..., Any], arrays: tuple[Any, ...], smallest: int) -> str:
    """Have a worker learn the function, and return the model as it is written."""
    how = how_to_learn(arrays[0].ndim, tuple(str(array.dtype) for array in arrays), smallest)
    payload = cloudpickle.dumps((func, how))
    if _in_task():  # on a worker already, of which no thread may be left
        text, notes = learn_here(payload)
    else:
        name = f"learn-{name_of(func)}-{token_hex(8)}"
        try:
            text, notes = client.submit(learn_here, payload, key=name).result()
        except distributed.KilledWorker as killed:
            raise BudgetError(
                f"a worker was lost while it learned {name_of(func)}: give model=, learned elsewhere by "
                "forebay.footprint.learn"
            ) from killed
    for note in notes:
        warnings.warn(note, FootprintWarning, stacklevel=2)
    content = json.loads(text)
    content["conditions"]["source"] = source_hash(func)  # workers may not have the file that it is in
    return json.dumps(content, indent=2) + "\n"


def learn_here(payload: bytes) -> tuple[str, list[str]]:
    """Learn a function; return the model as it is written, with what is particular to this process, and the notes."""
    func, how = cloudpickle.loads(payload)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FootprintWarning)
        model = learn(func, **how)
    with tempfile.TemporaryDirectory(prefix="forebay-") as folder:
        path = Path(folder) / "model.json"
        model.save(path)
        content = json.loads(text_of(path))
    content["learned on"] = _described(model, circumstances(list(model.conditions.versions)))
    notes = [str(each.message) for each in caught if issubclass(each.category, FootprintWarning)]
    return json.dumps(content), notes


def _model(text: str) -> Model:
    with tempfile.TemporaryDirectory(prefix="forebay-") as folder:
        path = Path(folder) / "model.json"
        path.write_text(text)
        return Model(**read(path))


def _described(model: Model, here: Mapping[str, str]) -> dict[str, str]:
    return {**here, **model.conditions.versions, "machine": model.conditions.machine}


def circumstances(libraries: list[str]) -> dict[str, str]:
    """Describe what footprints depend on in this process: machine, versions of libraries, allocator and threads."""
    variables = {name: os.environ.get(name, "unset") for name in VARIABLES}
    machine = f"{platform.system()} {platform.machine()}"
    return {name: _version(name) for name in libraries} | variables | {"machine": machine}


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "missing"


def _in_task() -> bool:
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True
