"""Exact peaks of CuPy's arrays and of the workspaces it takes for cuFFT and others, from hooks in its allocator."""

from importlib import import_module
from typing import Any


class CuPyGauge:
    """The gauge of CuPy's device memory."""

    gauge_name = "CuPy memory hook"
    exact = True
    resolution = 512

    def __init__(self) -> None:
        self._cupy: Any = import_module("cupy")
        try:
            self.present = self._cupy.cuda.runtime.getDeviceCount() > 0
        except self._cupy.cuda.runtime.CUDARuntimeError:
            self.present = False
        self._hook: Any = None

    @property
    def kind(self) -> str:
        """The GPU's name."""
        device = self._cupy.cuda.Device().id
        return str(self._cupy.cuda.runtime.getDeviceProperties(device)["name"].decode())

    def start(self) -> None:
        """Count from zero."""
        self._cupy.cuda.get_current_stream().synchronize()
        # Plans of cuFFT keep their workspaces: without this, those of an earlier call would go uncounted.
        self._cupy.fft.config.get_plan_cache().clear()
        self._hook = _make_hook(self._cupy)
        self._hook.__enter__()

    def stop(self) -> int:
        """Return the highest count."""
        self._cupy.cuda.get_current_stream().synchronize()
        self._hook.__exit__(None, None, None)
        return int(self._hook.peak)


def _make_hook(cupy: Any) -> Any:
    """Make a hook that counts live bytes; the class is made here because its base is known only with CuPy loaded."""

    class Live(cupy.cuda.memory_hook.MemoryHook):  # type: ignore[misc]
        name = "forebay footprint"

        def __init__(self) -> None:
            self.live = self.peak = 0
            self.sizes: dict[int, int] = {}

        def malloc_postprocess(self, **event: Any) -> None:
            self.sizes[event["mem_ptr"]] = event["mem_size"]
            self.live += event["mem_size"]
            self.peak = max(self.peak, self.live)

        def free_postprocess(self, **event: Any) -> None:
            # Allocations from before the count are the inputs' and earlier work's: they are not ours to subtract.
            self.live -= self.sizes.pop(event["mem_ptr"], 0)

    return Live()
