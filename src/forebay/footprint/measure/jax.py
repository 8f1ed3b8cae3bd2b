"""Peaks of JAX on its device: the compiler's own account where a function compiles, else the allocator's statistics."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


class JaxGauge:
    """The gauge of JAX's device memory; sees only new records, since JAX's allocator never forgets its peak."""

    gauge_name = "JAX memory_stats"
    exact = True
    resolution = 256

    def __init__(self) -> None:
        self._jax: Any = import_module("jax")
        self._device: Any = self._jax.devices()[0]
        self.present = self._device.platform != "cpu"
        self._before = 0

    @property
    def kind(self) -> str:
        """The device's name."""
        return str(self._device.device_kind)

    def start(self) -> None:
        """Note what is in use."""
        self._before = self._statistics()["bytes_in_use"]

    def stop(self) -> int:
        """Return the rise to the allocator's record."""
        return max(self._statistics()["peak_bytes_in_use"] - self._before, 0)

    def _statistics(self) -> Mapping[str, int]:
        statistics: Mapping[str, int] = self._device.memory_stats() or {}
        return {"bytes_in_use": 0, "peak_bytes_in_use": 0} | dict(statistics)


def compiled_peak(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> int | None:
    """Ask the compiler for the bytes of temporaries and outputs, without running; None where it cannot tell."""
    jax: Any = import_module("jax")
    try:
        analysis = jax.jit(function).lower(*args, **keywords).compile().memory_analysis()
        return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes)
    except Exception:  # whatever does not trace or lower is measured instead
        return None
