"""Putting a resource behind each library, and what was there back again."""

import importlib
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

from forebay.errors import DeviceError

LIBRARIES = ("cupy", "torch", "numba", "cudf")
CURRENT = ("torch", "cudf")
"""Those that allocate from RMM's current resource: there is one for all of them."""
Undo = Callable[[], bool | None]
"""Puts back what was there, and returns True where the library keeps what it was given all the same."""


class AllocatorWarning(UserWarning):
    """A library that takes another allocator only in part, or keeps the one it was given."""


def check(names: tuple[str, ...]) -> None:
    """Refuse libraries that are unknown, not there, or bound to what they have."""
    for name in names:
        if name not in LIBRARIES:
            raise DeviceError(f"no library is called {name!r}: unify() knows {', '.join(LIBRARIES)}")
        if name not in sys.modules and find_spec(name) is None:
            raise DeviceError(f"{name} is not installed: leave it out of unify(), or install it")
    if set(names) & set(CURRENT):
        _check_torch()


def adopt(name: str, rmm: Any, resource: Any) -> Undo:
    """Make a library allocate from a resource, and return what restores it."""
    return {"cupy": _cupy, "torch": _torch, "numba": _numba, "cudf": _current}[name](rmm, resource)


def hush(rmm: Any) -> Undo:
    """Keep RMM from writing an error for every allocation that finds its pool full, and return what restores it."""
    before = rmm.get_logging_level()
    rmm.set_logging_level(rmm.level_enum.critical)
    return lambda: rmm.set_logging_level(before)


def _cupy(rmm: Any, resource: Any) -> Undo:
    """Replace CuPy's allocator; arrays that it has already stay where they are."""
    cupy = importlib.import_module("cupy")
    stream_of = importlib.import_module("rmm.pylibrmm.stream").Stream
    before = cupy.cuda.get_allocator()

    def allocate(nbytes: int) -> Any:
        buffer = rmm.DeviceBuffer(size=nbytes, stream=stream_of(obj=cupy.cuda.get_current_stream()), mr=resource)
        device = -1 if buffer.ptr else cupy.cuda.Device().id
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(buffer.ptr, buffer.size, buffer, device), 0)

    cupy.cuda.set_allocator(allocate)
    return lambda: cupy.cuda.set_allocator(before)


def _torch(rmm: Any, resource: Any) -> Undo:
    """Replace torch's allocator, all of it where nothing has been allocated, and this thread's otherwise."""
    torch = importlib.import_module("torch")
    allocator = importlib.import_module("rmm.allocators.torch").rmm_torch_allocator
    if allocator is None:
        raise DeviceError("torch finds no GPU, or has no pluggable allocators: torch.cuda.is_available() must be true")
    # Its allocator asks for the current resource with every call: that must be ours as long as a tensor lives.
    restore = _current(rmm, resource)
    if not torch.cuda.is_initialized():
        try:
            torch.cuda.memory.change_current_allocator(allocator)
        except RuntimeError as error:
            restore()
            raise DeviceError(
                f"torch does not take another allocator ({error}): call unify() before anything uses the GPU in torch"
            ) from error

        def keep() -> bool:
            warnings.warn(
                "torch cannot be given its own allocator back: it keeps unified memory until the process ends. To have "
                "it for a while, let torch use the GPU before unify()",
                AllocatorWarning,
                stacklevel=4,
            )
            return True

        return keep
    warnings.warn(
        "torch has used the GPU before unify(), and cannot exchange its allocator any more: tensors made by this "
        "thread are in unified memory, those of autograd's own threads are not. Call unify() before the first tensor "
        "is made, to have all of them there",
        AllocatorWarning,
        stacklevel=4,
    )
    held = ExitStack()
    try:
        pool = torch.cuda.MemPool(allocator.allocator())
        held.enter_context(torch.cuda.use_mem_pool(pool))
    except BaseException:
        restore()
        raise

    def undo() -> bool:
        nonlocal pool
        held.close()
        del pool
        if not resource.allocation_counts.current_bytes:
            restore()
            return False
        warnings.warn(
            "tensors in unified memory are still alive: RMM's resource stays current, because torch gives their "
            "memory back to it. Drop them before the end of the block",
            AllocatorWarning,
            stacklevel=4,
        )
        return True

    return undo


def _numba(rmm: Any, resource: Any) -> Undo:
    """Hand Numba another memory manager, which it takes up with its first context."""
    try:
        driver = importlib.import_module("numba.cuda.cudadrv.driver")
        base = importlib.import_module("rmm.allocators.numba").RMMNumbaManager
    except ImportError as error:
        raise DeviceError("Numba with RMM needs numba-cuda: pip install numba-cuda, or leave numba out") from error
    gpus = importlib.import_module("numba.cuda.cudadrv.devices")._runtime.gpus

    def used() -> bool:
        return any(getattr(gpu, "primary_context", None) is not None for gpu in gpus)

    if used():
        raise DeviceError("Numba has used the GPU already: call unify() before its first kernel or array")

    class Manager(base):  # type: ignore[misc, valid-type]
        """RMM's manager, with the resource that counts for Numba."""

        def memalloc(self, size: int) -> Any:
            restore = _current(rmm, resource)
            try:
                return super().memalloc(size)
            finally:
                restore()

    before = driver._memory_manager
    driver.set_memory_manager(Manager)

    def undo() -> bool:
        driver._memory_manager = before  # type: ignore[attr-defined]
        if used():
            warnings.warn(
                "Numba keeps the memory manager that it has used: it keeps unified memory until the process ends",
                AllocatorWarning,
                stacklevel=4,
            )
        return used()

    return undo


def _current(rmm: Any, resource: Any) -> Undo:
    """Make a resource RMM's own, which libraries of the RAPIDS family allocate from."""
    before = rmm.mr.get_current_device_resource()
    rmm.mr.set_current_device_resource(resource)
    return lambda: rmm.mr.set_current_device_resource(before)


def _check_torch() -> None:
    """Refuse to exchange RMM's resource under a torch that has allocated from it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized() and torch.cuda.memory.get_allocator_backend() == "pluggable":
        raise DeviceError(
            "torch has used another allocator than its own, and keeps it until the process ends: with another "
            "resource behind it, the memory of its tensors would be given back to the wrong one. Leave torch and "
            "cudf out of unify(), or set unified memory up once for the whole process"
        )
