"""The driver's calls that cuda.core does not offer: errors raised, the device made current, the GPUs described."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver
from cuda.core import Device, system

from forebay.cuda.available import gpu_count, why_not
from forebay.errors import DeviceError


@dataclass(frozen=True)
class Gpu:
    """One GPU, as the driver describes it."""

    name: str
    nbytes: int
    """All of its memory."""
    capability: str
    """Compute capability, such as ``"9.0"``."""
    driver: str | None
    """Version of the kernel's driver, such as ``"580.65.06"``; None where the driver does not tell."""
    cuda: str
    """The newest CUDA that the driver runs, such as ``"13.0"``."""


def checked(result: tuple[Any, ...], doing: str) -> Any:
    """Take the values out of a result of `cuda.bindings.driver`, or raise what went wrong.

    Parameters
    ----------
    result : tuple
        What the call returned: its status, then its values.
    doing : str
        What was being done, for the message: ``"allocating 8GB on the device"``.

    Returns
    -------
    None, the value, or a tuple of values
        As many as the call has.
    """
    status = result[0]
    if status != _SUCCESS:
        _, text = driver.cuGetErrorString(status)
        reason = text.decode() if text else "unknown error"
        raise DeviceError(f"{doing} failed: {reason} ({getattr(status, 'name', status)})")
    if len(result) == 1:  # there are several for each copy
        return None
    return result[1] if len(result) == 2 else result[1:]


_SUCCESS = driver.CUresult.CUDA_SUCCESS


def current_device() -> Device:
    """Return the calling thread's device, its primary context (the one CuPy and torch use) made current."""
    if not gpu_count():
        raise DeviceError(why_not())
    device = Device()
    device.set_current()
    return device


def switch_to(index: int) -> Any:
    """Make a GPU current in the calling thread, and return the context that was, for `switch_back`."""
    if not gpu_count():
        raise DeviceError(why_not())
    before = current_context()
    Device(index).set_current()
    return before


def switch_back(before: Any) -> None:
    """Make the context current again that was before `switch_to`, where it was that of another GPU."""
    if int(before) and int(before) != int(current_context()):
        checked(driver.cuCtxSetCurrent(before), "going back to another GPU")


@contextmanager
def on_device(index: int) -> Iterator[None]:
    """Make a GPU current, and afterwards the one that was."""
    before = switch_to(index)
    try:
        yield
    finally:
        switch_back(before)


def device_at(pointer: int) -> int:
    """Return the number of the GPU whose memory an address is of."""
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(checked(driver.cuPointerGetAttribute(attribute, pointer), "asking for the GPU of an array"))


def device_memory() -> tuple[int, int]:
    """Return the free and the total bytes of the calling thread's device."""
    current_device()
    free, total = checked(driver.cuMemGetInfo(), "asking for the free memory of the device")
    return int(free), int(total)


def current_context() -> Any:
    """Return the context that is current in the calling thread, to be used again with `release`."""
    return checked(driver.cuCtxGetCurrent(), "asking for the current context")


def release(context: Any, call: Callable[[int], tuple[Any, ...]], pointer: int, *_keep: object) -> None:
    """Free a piece of memory, from whatever thread.

    A finalizer may run in any thread, and these calls need the context that the memory belongs to. What is given
    in `_keep` stays alive until the call has been made.
    """
    with _pushed(context):
        checked(call(pointer), "giving memory back to the driver")


@contextmanager
def _pushed(context: Any) -> Iterator[None]:
    checked(driver.cuCtxPushCurrent(context), "entering the context of a slab")
    try:
        yield
    finally:
        checked(driver.cuCtxPopCurrent(), "leaving the context of a slab")


def describe_gpus() -> tuple[Gpu, ...]:
    """Describe every GPU that can be used, in the driver's order."""
    if not gpu_count():
        return ()
    cuda = ".".join(str(part) for part in system.get_user_mode_driver_version())
    return tuple(
        Gpu(
            name=device.name,
            nbytes=int(checked(driver.cuDeviceTotalMem(device.device_id), "asking for the memory of a GPU")),
            capability=".".join(str(part) for part in device.compute_capability),
            driver=_kernel_driver(),
            cuda=cuda,
        )
        for device in Device.get_all_devices()
    )


def _kernel_driver() -> str | None:
    try:
        major, *minor = system.get_kernel_mode_driver_version()
    except Exception:  # it is read through NVML, which containers may leave out, each in its own way
        return None
    return ".".join([str(major), *(f"{part:02d}" for part in minor)])


def managed_concurrently() -> bool:
    """Tell whether host and device may reach managed memory at the same time."""
    device = current_device().device_id
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
    return bool(checked(driver.cuDeviceGetAttribute(attribute, device), "asking about managed memory"))
