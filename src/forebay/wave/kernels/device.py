"""A GPU as the loops of waves see it: its arrays, and kernels that are launched again and again."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from forebay.codec import Encoded
from forebay.codec.codec import Correlation
from forebay.tasks import at_once

SOURCES = Path(__file__).parent
"""Where the CUDA sources of all waves are."""


class Device:
    """The current device; arrays are CuPy's, and work goes to the stream that is current in CuPy."""

    def __init__(self) -> None:
        import cupy
        from cuda.bindings import driver

        from forebay.cuda.arrays import view
        from forebay.cuda.driver import checked, current_device

        self.arrays, self._driver, self._checked, self._view = cupy, driver, checked, view
        device = current_device()
        self.multiprocessors, self._arch = int(device.properties.multiprocessor_count), str(device.arch)
        self.shared = int(device.properties.max_shared_memory_per_block_optin)

    def kernel(self, source: Path, name: str, defines: Mapping[str, int], shared: int = 0) -> Any:
        """Return a kernel, compiled when it is first asked for, that may take so many bytes of shared memory."""
        kernel = _kernel(source, name, tuple(sorted(defines.items())), self._arch)[0]
        if shared:
            driver, why = self._driver, "asking for shared memory"
            kernel = self._checked(driver.cuKernelGetFunction(driver.CUkernel(int(kernel))), why)
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._checked(driver.cuFuncSetAttribute(kernel, attribute, shared), why)
        return kernel

    def compile(self, source: Path, kernels: Mapping[str, Mapping[str, int]]) -> None:
        """Compile kernels by their names, with the macros of each, in as many threads."""
        from forebay.cuda.driver import current_device, on_device

        index = current_device().device_id

        def one(name: str) -> None:
            with on_device(index):
                self.kernel(source, name, kernels[name])

        at_once([partial(one, name) for name in kernels], len(kernels), "forebay-compile")

    def address(self, array: Any) -> int:
        """Tell where an array without gaps begins."""
        if isinstance(array, self.arrays.ndarray):  # which tells at once, where others take as long as a launch
            assert array.flags.c_contiguous
            return int(array.data.ptr)
        where = self._view(array)
        assert where.contiguous
        return where.pointer

    def stream(self) -> Any:
        """Return the stream that work goes to."""
        return self._driver.CUstream(self.arrays.cuda.get_current_stream().ptr)

    def host(self, array: Any) -> Any:
        """Copy an array to the host, in the order of the stream."""
        return self.arrays.asnumpy(array)

    def multiply(self, encoded: Encoded, correlation: Correlation) -> None:
        """Enqueue what an encoding adds to sums."""
        from forebay.codec.device import callers_stream, start

        encoded.codec.multiply_device(start(encoded.payload, encoded.nbytes), correlation, callers_stream())

    def launch(
        self, kernel: Any, grid: Sequence[int], block: Sequence[int], arguments: int, stream: Any, shared: int = 0
    ) -> None:
        """Enqueue a kernel; `arguments` is the address of an array of the addresses of its arguments."""
        launched = self._driver.cuLaunchKernel(kernel, *grid, *block, shared, stream, arguments, 0)
        self._checked(launched, "launching a kernel")


class Launch:
    """A kernel with its arguments in place, so that a launch costs one call of the driver.

    Loops over small grids are as long as their launches take: those arguments that change are written over, and
    nothing else is done anew.
    """

    def __init__(
        self,
        device: Any,
        kernel: Any,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Mapping[str, Any],
        shared: int = 0,
    ) -> None:
        self._device, self._kernel, self._shared = device, kernel, shared
        self._grid, self._block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        self._slots = np.zeros(len(arguments), np.uint64)  # 8 bytes for each, which holds whatever it is
        self._numbers = self._slots.view(np.float32)[::2]
        self._addresses = self._slots.ctypes.data + 8 * np.arange(len(arguments), dtype=np.uint64)
        self._where = int(self._addresses.ctypes.data)
        self._places = {name: place for place, name in enumerate(arguments)}
        self._kept: dict[str, Any] = {}
        self.set(**arguments)

    def set(self, **arguments: Any) -> None:
        """Write arguments: whole numbers and addresses as int, others as float, arrays as they are, None for no array.

        Arrays given here are kept alive until others are given in their place.
        """
        for name, value in arguments.items():
            place = self._places[name]
            if isinstance(value, int):
                self._slots[place] = value
            elif isinstance(value, float):
                self._numbers[place] = value
            else:
                self._kept[name] = value
                self._slots[place] = 0 if value is None else self._device.address(value)

    def __call__(self, stream: Any) -> None:
        """Enqueue it."""
        self._device.launch(self._kernel, self._grid, self._block, self._where, stream, self._shared)


@cache
def _kernel(source: Path, name: str, defines: tuple[tuple[str, int], ...], _arch: str) -> Any:
    from cuda.bindings import driver

    from forebay.cuda.kernels import load

    kernel = load(source, fmad=False, defines=dict(defines)).kernel(name)
    return driver.CUfunction(int(kernel.handle)), kernel
