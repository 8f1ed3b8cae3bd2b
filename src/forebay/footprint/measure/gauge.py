"""What every way of measuring offers, and which one suits this machine and these arrays."""

from importlib import import_module
from typing import Protocol, cast

from forebay.footprint.errors import FootprintError


class Gauge(Protocol):
    """Measures the peak of what happens between `start` and `stop`."""

    how: str
    """what is read, in a word or two"""
    exact: bool
    """False where it sees only part of the memory, so that the result is a lower bound"""
    resolution: int
    """the bytes by which two readings of the same peak may differ"""

    def start(self) -> None:
        """Forget earlier peaks and note what is in use now."""

    def stop(self) -> int:
        """Give the bytes by which the peak since `start` exceeds what was in use then."""


HOST = {
    "resident": "forebay.footprint.measure.resident:Resident",
    "traced": "forebay.footprint.measure.traced:Traced",
}
DEVICE = {
    "cupy": "forebay.footprint.measure.cupy:CuPyPeak",
    "torch": "forebay.footprint.measure.torch:TorchPeak",
    "jax": "forebay.footprint.measure.jax:JaxPeak",
}


def host_gauge(how: str | None = None) -> Gauge:
    """Give the gauge of this process's memory: exact where the kernel lets us, traced elsewhere.

    Examples
    --------
    >>> gauge = host_gauge()
    >>> gauge.start()
    >>> room = bytearray(10_000_000)
    >>> gauge.stop() > 9_000_000
    True
    """
    if how is not None and how not in HOST:
        raise FootprintError(f"memory of the host cannot be measured by {how!r}: take one of {', '.join(HOST)}")
    if how is None:
        from forebay.footprint.measure.resident import peaks_can_be_reset

        how = "resident" if peaks_can_be_reset() else "traced"
    return _make(HOST[how])


def device_gauge(library: str) -> Gauge | None:
    """Give the gauge of a library's device memory; None for a library, or a machine, without a device."""
    if library not in DEVICE:
        return None
    gauge = _make(DEVICE[library])
    return gauge if getattr(gauge, "present", True) else None


def _make(place: str) -> Gauge:
    module, _, name = place.partition(":")
    return cast(Gauge, getattr(import_module(module), name)())
