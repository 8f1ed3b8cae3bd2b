"""A shot: where and what a source sends, and where it is heard."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError

SENDS = ("explosion", "force z", "force y", "force x")
HEARS = ("pressure", "velocity z", "velocity y", "velocity x")


def check_real(what: Any, dtype: np.dtype[Any]) -> None:
    """Refuse what is no real number: as one it would lose a part without a word."""
    if dtype.kind not in "fiu":
        raise WaveError(f"{what}: values of type {dtype}; expected real numbers")


@dataclass(frozen=True, eq=False)
class Shot:
    """One shot's geometry, wavelet and, once recorded, data; positions in metres, depth first.

    Examples
    --------
    >>> from forebay.wave import ricker
    >>> shot = Shot(source=(20, 500), receivers=[(20, x) for x in range(0, 1001, 25)], wavelet=ricker(15, 0.002, 400),
    ...     dt=0.002)
    >>> shot.samples, shot.receivers.shape
    (400, (41, 2))
    """

    source: NDArray[np.float64]
    """one position, or one a row where several points send"""
    receivers: NDArray[np.float64]
    """one position a row"""
    wavelet: NDArray[np.floating]
    """one sample per `dt`; a column for each source, or one for all"""
    dt: float
    """seconds between samples of wavelet and data"""
    data: NDArray[np.floating] | None = None
    """what was heard: one row per sample, one column per receiver"""
    sends: str | Sequence[str] = "explosion"
    """what sources do: "explosion", or in elastic models "force z", "force y" or "force x"; one for all, or one for
    each"""
    hears: str | Sequence[str] = "pressure"
    """what receivers measure: "pressure", or in elastic models the velocity of particles, "velocity z", "velocity y" or
    "velocity x"; one for all, or one for each, where several may share a position"""

    def __post_init__(self) -> None:
        for name in ("source", "receivers", "wavelet", "data"):
            if getattr(self, name) is not None:
                check_real(name, np.asarray(getattr(self, name)).dtype)
        for name in ("source", "receivers"):
            object.__setattr__(self, name, np.atleast_2d(np.asarray(getattr(self, name), float)))
        object.__setattr__(self, "wavelet", np.asarray(self.wavelet))
        for name, words, points in (("sends", SENDS, self.source), ("hears", HEARS, self.receivers)):
            kind = getattr(self, name)
            kinds = (kind,) * len(points) if isinstance(kind, str) else tuple(kind)
            if len(kinds) != len(points) or not set(kinds) <= set(words):
                raise WaveError(
                    f"{name}={kind!r}: give one of {', '.join(map(repr, words))} for all, or one for each of the "
                    f"{len(points)} positions"
                )
            object.__setattr__(self, name, kinds)
        if not 0 < self.dt < float("inf"):
            raise WaveError(f"a sampling interval of {self.dt!r}: give seconds above 0")
        if not np.isfinite(self.wavelet).all() or (self.data is not None and not np.isfinite(self.data).all()):
            raise WaveError("wavelet and data must be finite: replace what is missing by zeros")
        if self.wavelet.ndim not in (1, 2) or (self.wavelet.ndim == 2 and self.wavelet.shape[1] != len(self.source)):
            raise WaveError(
                f"a wavelet of shape {self.wavelet.shape} for {len(self.source)} sources: give one column for all, or "
                "one for each"
            )
        expected = (self.samples, len(self.receivers))
        if self.data is not None and np.shape(self.data) != expected:
            raise WaveError(
                f"data of shape {np.shape(self.data)}: wavelet and receivers ask for {expected}, samples by receivers"
            )

    @property
    def samples(self) -> int:
        """Samples of wavelet and data."""
        return len(self.wavelet)

    def with_data(self, data: Any) -> "Shot":
        """Return the same shot with other data."""
        return replace(self, data=np.asarray(data))
