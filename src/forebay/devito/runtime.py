"""The OpenMP runtime that a compiled operator runs on: device memory, and which host array it stands for."""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from devito import Eq, Function, Grid, Operator

from forebay.errors import DeviceError
from forebay.units import to_text

_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "omp_get_num_devices": (_INT, ()),
    "omp_get_default_device": (_INT, ()),
    "omp_get_initial_device": (_INT, ()),
    "omp_target_alloc": (_POINTER, (_SIZE, _INT)),
    "omp_target_free": (None, (_POINTER, _INT)),
    "omp_target_memcpy": (_INT, (_POINTER, _POINTER, _SIZE, _SIZE, _SIZE, _INT, _INT)),
    "omp_target_associate_ptr": (_INT, (_POINTER, _POINTER, _SIZE, _SIZE, _INT)),
    "omp_target_disassociate_ptr": (_INT, (_POINTER, _INT)),
}


class Runtime:
    """The calls of an OpenMP runtime, on its default device."""

    def __init__(self, libraries: Sequence[str]) -> None:
        # Handles of our own: types set on Devito's would be seen by Devito.
        handles = [ctypes.CDLL(library) for library in libraries]
        self._calls: dict[str, Any] = {}
        for name, (result, arguments) in _CALLS.items():
            call = next((symbol for handle in handles if (symbol := getattr(handle, name, None)) is not None), None)
            if call is None:
                raise DeviceError(
                    f"the OpenMP runtime of Devito's operators has no {name}: compile with clang 15 or later"
                )
            call.restype, call.argtypes = result, arguments
            self._calls[name] = call
        self._host = int(self._calls["omp_get_initial_device"]())
        self.device = int(self._calls["omp_get_default_device"]())
        if self._calls["omp_get_num_devices"]() < 1 or self.device == self._host:
            raise DeviceError(
                "the OpenMP runtime of Devito's operators finds no device: look at nvidia-smi, "
                "and run with OMP_TARGET_OFFLOAD=MANDATORY to see why"
            )

    def allocate(self, nbytes: int, what: str) -> int:
        """Allocate device memory."""
        pointer = self._calls["omp_target_alloc"](nbytes, self.device)
        if not pointer:
            raise DeviceError(f"the device has no room for the {to_text(nbytes)} of {what}: keep fewer fields on it")
        return int(pointer)

    def free(self, pointer: int) -> None:
        """Free device memory."""
        self._calls["omp_target_free"](pointer, self.device)

    def associate(self, host: int, device: int, nbytes: int) -> None:
        """Make operators that are handed a host array compute on this device memory."""
        if self._calls["omp_target_associate_ptr"](host, device, nbytes, 0, self.device):
            raise DeviceError(
                "the OpenMP runtime refused to associate a field with device memory: is the field, or a part of it, "
                "still mapped by an operator that was called with devicerm=0?"
            )

    def disassociate(self, host: int) -> None:
        """Make a host array an ordinary one again."""
        if self._calls["omp_target_disassociate_ptr"](host, self.device):
            raise DeviceError("the OpenMP runtime refused to part a field from its device memory")

    def upload(self, device: int, host: int, nbytes: int) -> None:
        """Copy from the host to the device, and wait."""
        self._copy(device, host, nbytes, self.device, self._host)

    def download(self, host: int, device: int, nbytes: int) -> None:
        """Copy from the device to the host, and wait."""
        self._copy(host, device, nbytes, self._host, self.device)

    def _copy(self, target: int, source: int, nbytes: int, to: int, of: int) -> None:
        if self._calls["omp_target_memcpy"](target, source, nbytes, 0, 0, to, of):
            raise DeviceError(f"the OpenMP runtime failed to copy {to_text(nbytes)} between host and device")


@cache
def runtime() -> Runtime:
    """Find the runtime, which knows its device only once an operator has run: a small one does, once a process."""
    grid = Grid(shape=(4,))
    probe = Function(name="probe", grid=grid)
    operator = Operator(Eq(probe, probe + 1), name="Waken")
    operator.apply()
    if (probe.data != 1).any():
        raise DeviceError("a first small operator gave a wrong result: the compiler and the driver do not fit together")
    # Half of the runtime serves the host, and what it says of devices is right only in programs that were linked with
    # the other half, as Python was not. So that half is asked first, then whatever the operator was linked with.
    return Runtime([*_loaded("libomptarget.so"), operator._lib._name])


def _loaded(name: str) -> list[str]:
    """Find the libraries of this process whose file begins with a name."""
    mapped = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    paths = dict.fromkeys(Path(words[5]) for words in mapped if len(words) == 6)
    return [str(path) for path in paths if path.name.startswith(name)]
