"""The parent's side of the process in which samples run: starts it, sends it the function, and tells how it ended."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import packages_distributions, version
from multiprocessing.connection import Connection
from typing import Any

from forebay.footprint.errors import FootprintError, RunError
from forebay.footprint.measure.inputs import InputRecipe
from forebay.footprint.measure.sample import Sample

MMAP_THRESHOLD = 65536
"""arrays above this many bytes get pages of their own in the child, and give them back at once"""


def environment() -> dict[str, str]:
    """Return what the child's environment fixes: how memory is taken, and that no library adds threads."""
    threads = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "BLIS", "VECLIB_MAXIMUM")
    return {"MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD)} | {f"{name}_NUM_THREADS": "1" for name in threads}


def check_platform() -> None:
    """Raise where processes cannot be started as samples need them."""
    if os.name != "posix":
        raise FootprintError(
            f"samples run in processes that {os.name!r} systems do not start: learn on Linux or macOS, and load() the "
            "model here"
        )


@dataclass(frozen=True)
class Workload:
    """What the child is to run."""

    function: Callable[..., Any]
    recipe: InputRecipe
    features: Callable[..., dict[str, float]] | None = None
    gauge_name: str | None = None
    """the gauge of the host's memory; None takes the best there is"""


def name_of(function: Callable[..., Any]) -> str:
    """Return what messages call a function: its own name, under any arguments that were fixed."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


class Child:
    """A fresh process that runs one function on inputs of many shapes."""

    def __init__(self, work: Workload) -> None:
        self.returned = ""
        self.dtypes: tuple[str, ...] = ()
        self._work = work
        self._loaded: set[str] = set()
        """the libraries that its runs have brought in"""
        self._name = name_of(work.function)
        packed = _dumps(work)
        check_platform()
        self._start()
        answer = self._load(packed)
        if answer.get("lost"):  # a module that only this process can import, as notebooks and test runners have them
            answer = self._load(_dumps_by_value(work))
        if "error" in answer:
            self.close()
            raise FootprintError(f"the child process cannot load {self._name}: {answer['error']}")
        self.gauge_name: str = answer["gauge_name"]
        self.exact: bool = answer["exact"]
        self.resolution: int = answer["resolution"]
        self.gpu: str | None = answer["gpu"]
        self.apart: bool = answer["apart"]
        self.makes_views: bool = work.recipe.library == "numpy"

    def measure(
        self,
        lengths: tuple[int, ...],
        seed: int = 0,
        timeout: float | None = None,
        views: bool = False,
        parameters: dict[str, float] | None = None,
    ) -> Sample:
        """Run the function on inputs of these lengths; the first run that succeeds warms up, and is no sample."""
        called = dict(parameters or {})
        answer = self._send(pickle.dumps((lengths, seed, views, called)), timeout)
        if "ended" in answer:
            raise FootprintError(self._describe_end(answer["ended"]))
        if "error" in answer:
            also = "".join(f", {name}={value:g}" for name, value in called.items())
            raise RunError(f"{self._name} raises at lengths {lengths}{also}: {answer['error']}\n{answer['where']}")
        self.returned, self.dtypes = answer.pop("returned"), answer.pop("dtypes")
        self._loaded |= set(answer.pop("loaded"))
        return Sample(lengths, seed=seed, parameters=called, **answer)

    def versions(self) -> dict[str, str]:
        """Return the versions of the libraries that the function loaded, whether it still runs or not."""
        homes = packages_distributions()
        return {home: version(home) for home in sorted({home for name in self._loaded for home in homes.get(name, ())})}

    def close(self) -> None:
        """End the process, and what the function has started."""
        self._requests.close()
        self._answers.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self._kill()
        self._process.wait()
        self._output.close()

    def _kill(self) -> None:
        """End the process and its forks, which are a group of their own."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _start(self) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "forebay.footprint.measure.child", str(theirs_in), str(theirs_out)],
            pass_fds=(theirs_in, theirs_out),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            process_group=0,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._requests, self._answers = Connection(ours_out, readable=False), Connection(ours_in, writable=False)

    def _load(self, work: bytes) -> dict[str, Any]:
        return self._send(pickle.dumps((sys.path, work)), None)

    def _send(self, message: bytes, timeout: float | None) -> dict[str, Any]:
        try:
            self._requests.send_bytes(message)
            if not self._answers.poll(timeout):
                self._kill()
                raise TimeoutError(f"{self._name} took more than {timeout:.0f} s")
            answer: dict[str, Any] = self._answers.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise FootprintError(self._describe_end(self._process.wait())) from None
        return answer

    def _describe_end(self, code: int) -> str:
        """Return how a process ended, with the last of what it printed."""
        self._output.seek(0)
        output = self._output.read()[-500:].decode(errors="replace").strip()
        if code == -signal.SIGKILL:
            return f"{self._name} was killed, most likely for want of memory: give smaller samples by largest="
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
        return f"{self._name} ended its process with {how}{': ' + output if output else ''}"


def _dumps(work: Workload) -> bytes:
    """Pickle all of it, functions of notebooks and scripts whole."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps((work.function, work.recipe, work.features, work.gauge_name)))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise FootprintError(
            f"{name_of(work.function)} cannot be sent to a process of its own ({error}): make what it holds on to "
            "inside it, or learn a function of a module"
        ) from error


def _dumps_by_value(work: Workload) -> bytes:
    """Pickle the functions with their modules' contents, for modules that the child cannot import."""
    import cloudpickle

    functions = (work.function, work.recipe.factory, work.features)
    names = {getattr(function, "__module__", None) for function in functions if function is not None}
    modules = [sys.modules[name] for name in names if name in sys.modules and name != "__main__"]
    ours = [module for module in modules if not module.__name__.startswith(("numpy", "scipy"))]
    for module in ours:
        cloudpickle.register_pickle_by_value(module)
    try:
        return _dumps(work)
    finally:
        for module in ours:
            cloudpickle.unregister_pickle_by_value(module)
