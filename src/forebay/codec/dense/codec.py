"""`dense`: every value comes back within a bound that is given, in fewer bytes than `bounded` takes, and more time."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.codec.bounded.codec import Bounded
from forebay.codec.bounded.format import Tiling
from forebay.codec.dense.format import ORDERS, geometry, tiling_of

if TYPE_CHECKING:
    from forebay.codec.bounded.host import TileCoder

THREADS = 128
"""Of a thread block, which encodes or decodes one tile."""


class Dense(Bounded):
    """Predicts each value from decoded ones on both sides of it, and writes what is left plane by plane.

    It takes what `Bounded` takes.

    Examples
    --------
    >>> codec = Dense(1e-3)
    >>> wave = np.sin(np.linspace(0, 9, 32768, dtype=np.float32)).reshape(32, 32, 32)
    >>> encoded = codec.encode(wave)
    >>> bool(np.abs(codec.decode(encoded) - wave).max() <= 1e-3 * np.ptp(wave)), encoded.ratio > 8
    (True, True)
    """

    most_ratio = 2**14  # four bytes a tile
    word = "dense"
    source = Path(__file__).parent / "dense.cu"

    def _cut(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tiling:
        return tiling_of(shape, dtype)

    def _coder(self) -> "TileCoder":
        return _coder()

    def _grid(self, tiling: Tiling) -> tuple[int, int]:
        return tiling.tiles, THREADS

    def _decoder(self, pointer: int, tiling: Tiling) -> tuple[str, int, int]:
        return "decode", tiling.tiles, THREADS


@cache
def _coder() -> "TileCoder":
    from forebay.codec.bounded.host import TileCoder
    from forebay.codec.dense import host  # it needs Numba

    return TileCoder(host.encode_tiles, host.decode_tiles, host.reorder, _layout, skips=False)


def _layout(tiling: Tiling, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    from forebay.codec.bounded.host import layout

    made, order = geometry(tiling.rank, dtype), ORDERS[tiling.rank]
    orders = np.zeros(16, np.int64)
    orders[: len(order)] = order
    orders[[8 + mask for mask in order]] = range(len(order))
    return *layout(tiling, dtype), tiling.tile, orders, made.coordinates, made.coarse, made.weights
