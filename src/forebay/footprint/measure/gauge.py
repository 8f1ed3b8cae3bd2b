"""What every way of measuring offers, and which one suits this machine and these arrays."""

from importlib import import_module
from typing import Any, Protocol

from forebay.footprint.errors import FootprintError
from forebay.footprint.measure.resident import peaks_can_be_reset


class Gauge(Protocol):
    """Measures the peak of what happens between `start` and `stop`."""

    gauge_name: str
    """what is read, in a word or two"""
    exact: bool
    """False where it sees only part of the memory, so that the result is a lower bound"""
    resolution: int
    """the bytes by which two readings of the same peak may differ"""

    def start(self) -> None:
        """Forget earlier peaks and note what is in use now."""

    def stop(self) -> int:
        """Return the bytes by which the peak since `start` exceeds what was in use then."""

    def kept(self) -> int:
        """Return the bytes by which what is in use now exceeds what was in use at `start`, garbage left out."""


class DeviceGauge(Protocol):
    """Measures the peak of a library's device memory."""

    gauge_name: str
    exact: bool
    resolution: int

    def start(self) -> None:
        """Forget earlier peaks and note what is in use now."""

    def stop(self) -> int:
        """Return the bytes by which the peak since `start` exceeds what was in use then."""

    present: bool
    """whether there is a device at all"""

    @property
    def kind(self) -> str:
        """The device's name."""


HOST = {
    "resident": "forebay.footprint.measure.resident:ResidentGauge",
    "traced": "forebay.footprint.measure.traced:TracedGauge",
}
DEVICE = {
    "cupy": "forebay.footprint.measure.cupy:CuPyGauge",
    "torch": "forebay.footprint.measure.torch:TorchGauge",
    "jax": "forebay.footprint.measure.jax:JaxGauge",
}


def host_gauge(name: str | None = None) -> Gauge:
    """Return the gauge of this process's memory: exact where the kernel lets us, traced elsewhere.

    Examples
    --------
    >>> gauge = host_gauge()
    >>> gauge.start()
    >>> room = bytearray(10_000_000)
    >>> gauge.stop() > 9_000_000
    True
    """
    if name is not None and name not in HOST:
        raise FootprintError(f"memory of the host cannot be measured by {name!r}: take one of {', '.join(HOST)}")
    if name is None:
        name = "resident" if peaks_can_be_reset() else "traced"
    gauge: Gauge = _make(HOST[name])
    return gauge


def device_gauge(library: str) -> DeviceGauge | None:
    """Return the gauge of a library's device memory; None for a library, or a machine, without a device."""
    if library not in DEVICE:
        return None
    gauge: DeviceGauge = _make(DEVICE[library])
    return gauge if gauge.present else None


def _make(place: str) -> Any:
    """Load a gauge's module, and make the gauge."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)()
