"""Compiling ``.cu`` files with NVRTC when they are first needed, and launching their kernels by name.

What was compiled is kept on disk for the next process. The sources declare their kernels ``extern "C"`` and include
nothing of the CUDA toolkit, which need not be installed.
"""

import ctypes
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver, nvrtc
from cuda.core import Kernel, ObjectCode, Program, ProgramOptions, Stream
from cuda.pathfinder import DynamicLibNotFoundError

from forebay.cuda import cubins
from forebay.cuda.arrays import View, view
from forebay.cuda.available import INSTALL
from forebay.cuda.driver import checked, current_device
from forebay.errors import DeviceError

Defines = tuple[tuple[str, str], ...]
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


class Module:
    """The kernels of one compiled source file; made by `load`."""

    def __init__(self, code: ObjectCode) -> None:
        self._code = code
        self._kernels: dict[str, _Entry] = {}

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
            Thread blocks in the grid, and threads in a thread block.
        args : sequence
            One value for each parameter: a number, an address, a NumPy scalar, or a contiguous array on the device.
            Python's own numbers take the width that the kernel declares; NumPy scalars must have it. The driver does
            not know which parameters are floating point: give those ``2.0``, never ``2``.
        stream : cuda.core.Stream
            The stream whose order it keeps.
        """
        (self._kernels.get(name) or self._entry(name)).launch(grid, block, args, stream)

    def kernel(self, name: str) -> Kernel:
        """Return a kernel, for callers that prepare its arguments themselves and launch it again and again."""
        return self._entry(name).kernel

    def _entry(self, name: str) -> "_Entry":
        if name not in self._kernels:
            self._kernels[name] = _Entry(name, self._code.get_kernel(name))
        return self._kernels[name]


class _Entry:
    """A kernel, and room for its arguments: the driver reads them before a launch returns."""

    def __init__(self, name: str, kernel: Kernel) -> None:
        self.name, self.kernel = name, kernel
        self._function = driver.CUfunction(int(kernel.handle))
        self._widths = tuple(int(info.size) for info in kernel.arguments_info)
        self._rooms: list[Slots] = []

    def launch(
        self, grid: int | tuple[int, ...], block: int | tuple[int, ...], args: Sequence[Any], stream: Stream
    ) -> None:
        """Enqueue it."""
        try:
            slots = self._rooms.pop()
        except IndexError:  # asking first would not do: other threads take some, too
            slots = Slots(self.name, self._widths)
        slots.fill(args)
        sizes = (*_three(grid), *_three(block))
        launched = driver.cuLaunchKernel(self._function, *sizes, 0, stream.handle, slots.pointers, 0)
        self._rooms.append(slots)
        checked(launched, f"launching the kernel {self.name}")


class Slots:
    """The arguments of a launch as the driver wants them: an address for each.

    Parameters
    ----------
    name
        The kernel's.
    widths
        The bytes of each argument.
    """

    def __init__(self, name: str, widths: tuple[int, ...]) -> None:
        self._name, self._widths = name, widths
        self._ends = tuple(1 << 8 * width for width in widths)
        self._values = (ctypes.c_uint64 * len(widths))()
        first = ctypes.addressof(self._values)
        self._addresses = (ctypes.c_uint64 * len(widths))(*(first + 8 * number for number in range(len(widths))))
        self.pointers = ctypes.addressof(self._addresses)
        """where the addresses lie"""

    def fill(self, args: Sequence[Any]) -> None:
        """Write arguments with the widths that the kernel reads: a wrong one would be read as garbage, not refused."""
        if len(args) != len(self._widths):
            raise TypeError(f"kernel {self._name} takes {len(self._widths)} arguments; {len(args)} were given")
        self._values[:] = [
            value if type(value) is int and 0 <= value < end else _bits(value, width, self._name)
            for value, width, end in zip(args, self._widths, self._ends, strict=True)
        ]


def _three(sizes: int | tuple[int, ...]) -> tuple[int, ...]:
    return (sizes, 1, 1) if isinstance(sizes, int) else (*sizes, 1, 1)[:3]


def load(source: Path, *, fmad: bool = True, defines: Mapping[str, str | int] | None = None) -> Module:
    """Compile a source file for the current device, unless an earlier process has; once for each change and options.

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
    """Compile a source file for an architecture and return the binary; needs NVRTC, but no GPU and no driver."""
    return _compile(source, _options(arch, fmad, _sorted(defines)))


def cubin(source: Path, arch: str, fmad: bool, defines: Defines) -> bytes:
    """Return the binary of a source file, from disk where an earlier process compiled the same with the same NVRTC."""
    options = _options(arch, fmad, defines)
    with _nvrtc_for(source):
        _, *version = nvrtc.nvrtcVersion()
    name = cubins.key(str(version), source.name, repr(options), *_texts(source))
    code = cubins.read(name)
    if code is None:
        code = _compile(source, options)
        cubins.write(name, code)
    return code


@cache
def _module(source: Path, _modified: int, arch: str, fmad: bool, defines: Defines) -> Module:
    return Module(ObjectCode.from_cubin(cubin(source, arch, fmad, defines), name=source.name))


def _options(arch: str, fmad: bool, defines: Defines) -> dict[str, Any]:
    return {"arch": arch, "std": "c++17", "fma": fmad, "define_macro": list(defines) or None}


def _compile(source: Path, options: dict[str, Any]) -> bytes:
    text = source.read_text(encoding="utf-8")
    with _nvrtc_for(source):
        how = ProgramOptions(name=source.name, include_path=str(source.parent), **options)
        return bytes(Program(text, "c++", how).compile("cubin").code)


@contextmanager
def _nvrtc_for(source: Path) -> Iterator[None]:
    try:
        yield
    except DynamicLibNotFoundError as error:
        raise DeviceError(f"NVRTC, which compiles {source.name}, cannot be loaded: {INSTALL}") from error


def _texts(source: Path) -> list[str]:
    """Return the text of a source and of the headers beside it that it includes, however far down."""
    texts: dict[Path, str] = {}
    paths = [source]
    while paths:
        path = paths.pop()
        if path not in texts and path.exists():
            texts[path] = path.read_text(encoding="utf-8")
            paths += [path.parent / name for name in _INCLUDE.findall(texts[path])]
    return list(texts.values())


def _sorted(defines: Mapping[str, str | int] | None) -> Defines:
    return tuple(sorted((name, str(value)) for name, value in (defines or {}).items()))


def _bits(value: Any, width: int, name: str) -> int:
    """Return an argument as a whole number that has its bits."""
    if isinstance(value, np.generic):
        if value.itemsize != width:
            raise TypeError(f"kernel {name} reads {width} bytes where a {value.dtype} was given")
    elif isinstance(value, float):
        value = _real(width)(value)
    else:
        value = value if isinstance(value, int) else _address(value, name)
        if not -(1 << 8 * width - 1) <= value < 1 << 8 * width:
            raise OverflowError(f"kernel {name} reads {width} bytes, which cannot hold {value}")
        return int(value) & (1 << 8 * width) - 1
    data: bytes = value.tobytes()
    return int.from_bytes(data, sys.byteorder)


@cache
def _real(width: int) -> type[np.generic]:
    return np.dtype(f"f{width}").type


def _address(array: Any, name: str) -> int:
    where = array if isinstance(array, View) else view(array)
    if not where.contiguous:
        raise TypeError(f"kernel {name} was given an array with gaps: make it contiguous first")
    return where.pointer
