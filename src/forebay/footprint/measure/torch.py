"""Exact peaks of PyTorch's tensors on the current GPU, from its own allocator.

What is counted is what was asked for: `torch.cuda.max_memory_allocated` adds up to a mebibyte to each tensor, as its
cache happens to have it, and small samples would drown in that.
"""

from importlib import import_module
from typing import Any

PEAK = "requested_bytes.all.peak"
NOW = "requested_bytes.all.current"


class TorchGauge:
    """The gauge of PyTorch's device memory."""

    gauge_name = "torch.cuda.memory_stats requested_bytes"
    exact = True
    resolution = 512

    def __init__(self) -> None:
        self._cuda: Any = import_module("torch").cuda
        self.present = bool(self._cuda.is_available())
        self._before = 0

    @property
    def kind(self) -> str:
        """The GPU's name."""
        return str(self._cuda.get_device_name())

    def start(self) -> None:
        """Forget the peak."""
        self._cuda.synchronize()
        self._cuda.reset_peak_memory_stats()
        self._before = int(self._cuda.memory_stats().get(NOW, 0))

    def stop(self) -> int:
        """Read the new one."""
        self._cuda.synchronize()
        return max(int(self._cuda.memory_stats().get(PEAK, 0)) - self._before, 0)
