"""The order in which the elements of an array lie in memory: dense in some order of the axes, or with gaps."""

from typing import Any

from numpy.typing import NDArray

from forebay.errors import StateError
from forebay.machine.spec import ArraySpec, memory_order


def ordered(spec: ArraySpec, strides: tuple[int, ...], gathers: bool) -> ArraySpec:
    """Return a spec with the strides of a dense array; one with gaps is gathered in C order, or refused.

    Examples
    --------
    >>> import numpy as np
    >>> spec = ArraySpec((2, 3), np.dtype("f4"))
    >>> ordered(spec, (4, 8), gathers=True).strides
    (4, 8)
    >>> ordered(spec, (24, 8), gathers=True).strides is None
    True
    """
    if not spec.nbytes or strides == spec.all_strides:
        return spec
    if is_dense(spec.shape, strides, spec.dtype.itemsize):
        return spec._replace(strides=strides)
    if _overlaps(spec, strides):
        raise StateError("its elements lie on one another in memory: give a copy, such as x.copy() or tensor.clone()")
    if not gathers:
        raise StateError(
            "it has gaps in memory: make it contiguous first (cupy.ascontiguousarray(x), tensor.contiguous())"
        )
    return spec


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Tell whether elements with such strides fill their memory, in whatever order of the axes."""
    expected = itemsize
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent == 1:  # whose stride is never used
            continue
        if stride != expected:
            return False
        expected *= extent
    return True


def same_order(spec: ArraySpec, strides: tuple[int, ...]) -> bool:
    """Tell whether strides are those of a spec, as far as they are used."""
    if not spec.nbytes:
        return True
    used = zip(spec.shape, spec.all_strides, strides, strict=True)
    return all(extent == 1 or wanted == stride for extent, wanted, stride in used)


def _overlaps(spec: ArraySpec, strides: tuple[int, ...]) -> bool:
    """Tell whether elements may lie on one another: each axis has to step over all that is inside of it."""
    within = spec.dtype.itemsize
    for extent, stride in sorted(zip(spec.shape, map(abs, strides), strict=True), key=lambda axis: axis[1]):
        if extent > 1:
            if stride < within:
                return True
            within += (extent - 1) * stride
    return False


def in_memory_order(array: NDArray[Any]) -> NDArray[Any]:
    """Turn the axes of a dense array so that it is in C order; one with gaps is returned as it is."""
    if array.flags.c_contiguous or not is_dense(array.shape, array.strides, array.itemsize):
        return array
    return array.transpose(memory_order(array.strides))
