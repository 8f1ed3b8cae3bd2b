"""Compiling ``.cu`` files with NVRTC when they are first needed, and launching their kernels by name.

The sources declare their kernels ``extern "C"`` and include nothing of the CUDA toolkit, which need not be installed.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cuda.core import Kernel, LaunchConfig, ObjectCode, Program, ProgramOptions, Stream, launch
from cuda.pathfinder import DynamicLibNotFoundError

from forebay.cuda.arrays import View, view
from forebay.cuda.available import INSTALL
from forebay.cuda.driver import current_device
from forebay.errors import DeviceError

Defines = tuple[tuple[str, str], ...]


class Module:
    """The kernels of one compiled source file; made by `load`."""

    def __init__(self, code: ObjectCode) -> None:
        self._code = code
        self._kernels: dict[str, tuple[Kernel, tuple[int, ...]]] = {}

    def launch(
        self,
        name: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[Any],
        stream: Stream,
    ) -> None:
        """Enqueue a kernel on a stream.

        Parameters
        ----------
        name : str
            The kernel's name in the source.
        grid, block : int or tuple of int
            Blocks in the grid and threads in a block.
        args : sequence
            One value for each parameter: a number, an address, a NumPy scalar, or a contiguous array on the device.
            Python's own numbers take the width that the kernel declares; NumPy scalars must have it. The driver does
            not know which parameters are floating point: give those ``2.0``, never ``2``.
        stream : cuda.core.Stream
            The stream whose order it keeps.
        """
        kernel, widths = self._known(name)
        if len(args) != len(widths):
            raise TypeError(f"kernel {name} takes {len(widths)} arguments; {len(args)} were given")
        values = (_argument(value, width, name) for value, width in zip(args, widths, strict=True))
        launch(stream, LaunchConfig(grid=grid, block=block), kernel, *values)

    def kernel(self, name: str) -> Kernel:
        """Give a kernel, for callers that prepare its arguments themselves and launch it again and again."""
        return self._known(name)[0]

    def _known(self, name: str) -> tuple[Kernel, tuple[int, ...]]:
        if name not in self._kernels:
            kernel = self._code.get_kernel(name)
            self._kernels[name] = kernel, tuple(int(info.size) for info in kernel.arguments_info)
        return self._kernels[name]


def load(source: Path, *, fmad: bool = True, defines: Mapping[str, str | int] | None = None) -> Module:
    """Compile a source file for the current device, once a process for each change of it and options.

    Parameters
    ----------
    source : Path
        The ``.cu`` file; headers beside it are found.
    fmad : bool
        Whether a product and a sum may be contracted into one operation. False gives the values of a CPU without it.
    defines : mapping, optional
        Macros and their values.
    """
    arch = f"sm_{current_device().arch}"
    return _module(source, source.stat().st_mtime_ns, arch, fmad, _sorted(defines))


def compile_only(
    source: Path, arch: str = "sm_90", *, fmad: bool = True, defines: Mapping[str, str | int] | None = None
) -> bytes:
    """Compile a source file for an architecture and give the binary; needs NVRTC, but no GPU and no driver."""
    return bytes(_compile(source, source.read_text(encoding="utf-8"), arch, fmad, _sorted(defines)).code)


@cache
def _module(source: Path, _modified: int, arch: str, fmad: bool, defines: Defines) -> Module:
    return Module(_compile(source, source.read_text(encoding="utf-8"), arch, fmad, defines))


def _compile(source: Path, text: str, arch: str, fmad: bool, defines: Defines) -> ObjectCode:
    options = ProgramOptions(
        name=source.name,
        arch=arch,
        std="c++17",
        fma=fmad,
        define_macro=list(defines) or None,
        include_path=str(source.parent),
    )
    try:
        return Program(text, "c++", options).compile("cubin")
    except DynamicLibNotFoundError as error:
        raise DeviceError(f"NVRTC, which compiles {source.name}, cannot be loaded: {INSTALL}") from error


def _sorted(defines: Mapping[str, str | int] | None) -> Defines:
    return tuple(sorted((name, str(value)) for name, value in (defines or {}).items()))


def _argument(value: Any, width: int, name: str) -> np.generic:
    """Give a value the width that the kernel reads; a wrong one would be read as garbage, not refused."""
    if isinstance(value, np.generic):
        if value.itemsize != width:
            raise TypeError(f"kernel {name} reads {width} bytes where a {value.dtype} was given")
        return value
    if isinstance(value, float):
        kind = "f"
    else:
        value = value if isinstance(value, int) else _address(value, name)
        kind = "i" if value < 2 ** (8 * width - 1) else "u"
    scalar: np.generic = np.dtype(f"{kind}{width}").type(value)
    return scalar


def _address(array: Any, name: str) -> int:
    where = array if isinstance(array, View) else view(array)
    if not where.contiguous:
        raise TypeError(f"kernel {name} was given an array with gaps: make it contiguous first")
    return where.pointer
