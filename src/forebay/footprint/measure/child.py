"""The process in which samples run: ``python -m forebay.footprint.measure.child READ WRITE``, started by `process.py`.

The function arrives by cloudpickle over a pipe from the process that started this one; then each request is a list of
lengths, a seed, whether views are wanted, and parameters, and each answer a dict. Only who started it writes to that
pipe.
"""

import gc
import inspect
import io
import pickle
import resource
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # noqa: F401 - loaded before the function, so that it does not count as one of its libraries
import numpy as np

from forebay.footprint.measure.forked.serving import Answer, Request, way_of
from forebay.footprint.measure.gauge import DeviceGauge, Gauge, device_gauge, host_gauge
from forebay.footprint.measure.inputs import InputRecipe, strided

BEFORE = frozenset(sys.modules)
"""what this process needs itself; whatever is loaded later is the function's"""
KEPT = 4
"""resolutions that a process may grow by without a word: pages of libraries come one by one"""


def main(read: int, write: int) -> None:
    """Answer requests until the pipe closes."""
    requests, answers = Connection(read, writable=False), Connection(write, readable=False)
    while True:  # the function may be sent again, whole, where it could not be loaded by its name
        try:
            path, work = pickle.loads(requests.recv_bytes())
        except EOFError:
            return
        sys.path[:] = path
        try:
            function, recipe, features, gauge_name = pickle.loads(work)
            host, device = host_gauge(gauge_name), device_gauge(recipe.library)
            break
        except Exception as error:
            answers.send(_failure(error))
    block = _block_of(function, recipe)
    way = way_of(device is not None or recipe.library == "jax")
    answers.send(
        {
            "gauge_name": host.gauge_name if device is None else f"{device.gauge_name}; host: {host.gauge_name}",
            "exact": host.exact and (device is None or device.exact),
            "resolution": host.resolution,
            "gpu": None if device is None else device.kind,
            "apart": way.apart,
        }
    )

    def run(request: Request) -> Answer:
        lengths, seed, views, parameters = request
        also = parameters | block
        try:
            return _run(function, recipe, features, host, device, lengths, seed, views, also)
        except Exception as error:
            return _failure(error)

    way.serve(requests, answers, run)


def _run(
    function: Callable[..., Any],
    recipe: InputRecipe,
    features: Callable[..., dict[str, float]] | None,
    host: Gauge,
    device: DeviceGauge | None,
    lengths: tuple[int, ...],
    seed: int,
    views: bool,
    also: dict[str, Any],
) -> dict[str, Any]:
    def make() -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, keywords = recipe.make(lengths, seed)
        if views:
            args, keywords = tuple(map(strided, args)), {name: strided(array) for name, array in keywords.items()}
        return args, keywords

    args, keywords = make()
    values = _features(features, args, keywords)
    call = partial(function, **also) if also else function
    if device is not None:
        device.start()
    host.start()
    start, waited = time.perf_counter(), _waited()
    result = call(*args, **keywords)
    if hasattr(result, "block_until_ready"):
        result.block_until_ready()
    on_device = None if device is None else device.stop()
    waited -= _waited()  # before the clock is read, so that no wait is taken off that the clock did not see
    seconds = max(time.perf_counter() - start + waited, 0.0)
    on_host = host.stop()
    if recipe.library == "jax" and device is not None:
        from forebay.footprint.measure.jax import compiled_peak

        compiled = compiled_peak(call, args, keywords)
        on_device = on_device if compiled is None else compiled
    shape, dtype = _output(result)
    returned = type(result).__name__
    del result
    return {
        "host": on_host,
        "device": on_device,
        "seconds": seconds,
        "features": values,
        "output_shape": shape,
        "output_dtype": dtype,
        "returned": returned,
        "inputs": sum(int(getattr(array, "nbytes", 0)) for array in (*args, *keywords.values())),
        "dtypes": tuple(_output(array)[1] or type(array).__name__ for array in (*args, *keywords.values())),
        "kept": 0 if device is not None else _kept_by_a_further_call(call, make, host),
        "strided": views,
        "loaded": _loaded(),
        "started": bool(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss),
    }


def _kept_by_a_further_call(
    function: Callable[..., Any], make: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]], host: Gauge
) -> int:
    """Return the bytes by which the process grows with every call: what only the first one keeps is taken once.

    Where the first has kept nothing that matters, nothing is called again. The inputs are made anew: the first call may
    have changed them.
    """
    if host.kept() <= KEPT * host.resolution:
        return 0
    host.start()
    args, keywords = make()
    function(*args, **keywords)
    del args, keywords
    gc.collect()
    kept = host.kept()
    return kept if kept > KEPT * host.resolution else 0


def _block_of(function: Callable[..., Any], recipe: InputRecipe) -> dict[str, Any]:
    """Return what Dask would tell a function of the block it is given, where it asks for that."""
    try:
        asked = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of C, and known to nobody
        return {}
    told = {"block_id": (0,) * recipe.layout.ndims[0], "block_info": None}
    return {each.name: told[each.name] for each in asked if each.name in told and each.default is each.empty}


def _waited() -> float:
    """Return the seconds that this thread waited for a processor; 0 where the kernel does not tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _features(
    features: Callable[..., dict[str, float]] | None, args: tuple[Any, ...], keywords: dict[str, Any]
) -> dict[str, float]:
    if features is None:
        return {}
    values = features(*args, **keywords)
    try:
        return {str(name): float(value) for name, value in values.items()}
    except (AttributeError, TypeError, ValueError):
        raise TypeError(f"features= must give a dict of numbers by name, and gave {values!r:.80}") from None


def _output(result: Any) -> tuple[tuple[int, ...] | None, str | None]:
    """Return shape and dtype of an array of any library, or of a NumPy scalar."""
    try:
        dtype = np.dtype(str(result.dtype).removeprefix("torch.")).name
        return tuple(int(length) for length in result.shape), dtype
    except (AttributeError, TypeError):
        return None, None


def _loaded() -> tuple[str, ...]:
    """Return the libraries that the function has brought in by now, and NumPy."""
    names = {name.partition(".")[0] for name in set(sys.modules) - BEFORE} | {"numpy"}
    return tuple(sorted(name for name in names if isinstance(sys.modules.get(name), ModuleType)))


def _failure(error: Exception) -> Answer:
    """Return what was raised, and the last lines of where."""
    trace = io.StringIO()
    traceback.print_exception(error, limit=-2, file=trace)
    where = isinstance(error, ModuleNotFoundError | AttributeError | pickle.UnpicklingError)
    return {"error": f"{type(error).__name__}: {error}", "where": trace.getvalue(), "lost": "yes" if where else ""}


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
