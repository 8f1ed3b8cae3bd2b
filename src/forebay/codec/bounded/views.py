"""Looking at the memory of an array as elements of another type, inside of what Numba compiles."""

from typing import Any

from forebay.codec.compiled import NO_NUMBA
from forebay.errors import CodecError

try:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba.core import imputils
    from numba.extending import intrinsic
except ImportError as error:
    raise CodecError(NO_NUMBA) from error


@intrinsic  # type: ignore[untyped-decorator]
def view_as(typing: Any, array: Any, like: Any) -> Any:
    """Return the memory of an array as elements of another type: in a fraction of the time that `view` compiles for."""
    dtype = getattr(like, "dtype", like)
    result = array.copy(dtype=dtype)

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        known, viewed = (
            context.make_array(array)(context, builder, args[0]),
            context.make_array(result)(context, builder),
        )
        size = ir.Constant(ir.IntType(64), dtype.bitwidth // 8)
        count = builder.udiv(builder.mul(known.nitems, known.itemsize), size)
        data = builder.bitcast(known.data, viewed.data.type)
        about = {"shape": [count], "strides": [size], "itemsize": size}
        context.populate_array(viewed, data=data, meminfo=known.meminfo, parent=known.parent, **about)
        return imputils.impl_ret_borrowed(context, builder, result, viewed._getvalue())

    return result(array, like), make
