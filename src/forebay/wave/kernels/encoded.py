"""Images of records as a codec keeps them on a GPU: multiplied with a field without being decoded to memory.

The product goes with the field that a stencil has left. What points send comes on top, and is multiplied with what the
record has at their cells. Only the tiles of the encoding that hold such cells are written down for them.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Encoded
from forebay.codec.codec import Correlation
from forebay.cuda.arrays import View
from forebay.machine.spec import c_strides
from forebay.wave.imaging import Imaging


class EncodedCorrelation:
    """The correlation of a field, into which points send, with encoded records that are all alike.

    `kernels` have the field's window and device, `cells` are those that points touch, in a field of some extents.
    """

    def __init__(self, kernels: Any, record: Encoded, cells: NDArray[Any], extents: tuple[int, ...]) -> None:
        self._device, dtype = kernels.device, record.dtype
        first = np.array([[side.start] for side in kernels.window])
        seen = np.stack(np.unravel_index(cells.astype(np.int64), extents)) - first
        slots, places, values = record.codec.kept_tiles(record.shape, dtype, seen)
        arrays = self._device.arrays
        self._slots, self._places = arrays.asarray(slots), arrays.asarray(places)
        self._values = arrays.zeros(max(1, values), dtype)
        strides = c_strides(extents, dtype.itemsize)
        self._first = sum(side.start * stride for side, stride in zip(kernels.window, strides, strict=True))
        nbytes = math.prod(record.shape) * dtype.itemsize
        self._field = View(0, record.shape, dtype, nbytes, contiguous=False, strides=strides)

    def add(self, image: Imaging, field: int) -> None:
        """Add the products of a record with the field at an address, and with itself, to an image."""
        address, about = self._device.address, self._field
        other = View(field + self._first, about.shape, about.dtype, about.nbytes, False, about.strides)
        products, squares = (
            View.at(address(each), about.shape, about.dtype) for each in (image.image, image.illumination)
        )
        slots, values = address(self._slots), address(self._values)
        self._device.multiply(image.record, Correlation(other, products, squares, float(image.factor), slots, values))

    def beside(self, image: Imaging) -> dict[str, Any]:
        """Return the arguments of points that send into that field afterwards."""
        return {"seen": self._values, "places": self._places, "image": image.image, "factor": float(image.factor)}
