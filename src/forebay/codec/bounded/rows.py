"""Rows: vectors of 32 lanes, or halves of 16, that Numba keeps in the registers of whatever processor there is.

LLVM cuts a row into the machine's own vectors. Loops over arrays become vector instructions too, but only after proving
each time that the arrays do not overlap, and their values go through memory from one loop to the next.
"""

import operator
from collections.abc import Callable
from typing import Any

from forebay.codec.bounded.format import LANES
from forebay.codec.compiled import NO_NUMBA
from forebay.errors import CodecError

try:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic, models, overload, register_model
except ImportError as error:
    raise CodecError(NO_NUMBA) from error

INDEX = ir.IntType(32)
BASE = 0x4338000000000000
"""The bits of 1.5 * 2^52, the float64 to which integers are added to be its lowest bits."""


class Row(types.Type):  # type: ignore[misc]
    """The type of a row, as Numba sees it."""

    def __init__(self, dtype: Any, lanes: int = LANES) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Row({dtype}, {lanes})")

    @property
    def suffix(self) -> str:
        """How LLVM names its functions of such rows."""
        return f"v{self.lanes}{'f' if self.real else 'i'}{self.dtype.bitwidth}"

    @property
    def real(self) -> bool:
        """Whether it holds floating-point numbers."""
        return isinstance(self.dtype, types.Float)

    @property
    def bits(self) -> "Row":
        """The row of the same bits as integers."""
        return Row(types.Integer.from_bitwidth(self.dtype.bitwidth, True), self.lanes)


@register_model(Row)
class _RowModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, row: Row) -> None:
        super().__init__(manager, row, ir.VectorType(manager.lookup(row.dtype).get_value_type(), row.lanes))


def _pointer(context: Any, builder: Any, array: Any, value: Any, index: Any, lanes: int) -> Any:
    data = context.make_array(array)(context, builder, value).data
    vector = ir.VectorType(context.get_value_type(array.dtype), lanes)
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _bytes(array: Any) -> int:
    return int(array.dtype.bitwidth) // 8


def _lanes(first: int, count: int) -> Any:
    return ir.Constant(ir.VectorType(INDEX, count), list(range(first, first + count)))


def called(builder: Any, name: str, result: Any, args: Any) -> Any:
    """Call a function of LLVM's."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def _loader(lanes: int) -> Callable[..., Any]:
    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, array: Any, at: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(_pointer(context, builder, array, args[0], args[1], lanes), align=_bytes(array))

        return Row(array.dtype, lanes)(array, types.intp), make

    return call  # type: ignore[no-any-return]


load = _loader(LANES)
load_half = _loader(LANES // 2)


@intrinsic  # type: ignore[untyped-decorator]
def load_halves(typing: Any, array: Any, near: Any, far: Any) -> Any:
    """Read a row whose halves lie apart."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = [_pointer(context, builder, array, args[0], index, LANES // 2) for index in args[1:]]
        halves = [builder.load(place, align=_bytes(array)) for place in places]
        return builder.shuffle_vector(*halves, _lanes(0, LANES))

    return Row(array.dtype)(array, types.intp, types.intp), make


@intrinsic  # type: ignore[untyped-decorator]
def store(typing: Any, row: Any, array: Any, at: Any) -> Any:
    """Write a row, or half of one."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _pointer(context, builder, array, args[1], args[2], row.lanes)
        builder.store(args[0], place, align=_bytes(array))
        return context.get_dummy_value()

    return types.none(row, array, types.intp), make


@intrinsic  # type: ignore[untyped-decorator]
def store_halves(typing: Any, row: Any, array: Any, near: Any, far: Any) -> Any:
    """Write the halves of a row to two places."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        half = LANES // 2
        for first, index in ((0, args[2]), (half, args[3])):
            place = _pointer(context, builder, array, args[1], index, half)
            part = builder.shuffle_vector(args[0], args[0], _lanes(first, half))
            builder.store(part, place, align=_bytes(array))
        return context.get_dummy_value()

    return types.none(row, array, types.intp, types.intp), make


def _prefetcher(*how: int) -> Callable[..., Any]:
    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, array: Any, at: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = builder.bitcast(_pointer(context, builder, array, args[0], args[1], 1), ir.IntType(8).as_pointer())
            called(builder, "llvm.prefetch.p0", ir.VoidType(), [place, *(ir.Constant(INDEX, number) for number in how)])
            return context.get_dummy_value()

        return types.none(array, types.intp), make

    return call  # type: ignore[no-any-return]


# Ask for memory that will be read or written soon, whether it is the array's or not.
prefetch, prefetch_to_write = _prefetcher(0, 3, 1), _prefetcher(1, 2, 1)


def _spreader(part: int) -> Callable[..., Any]:
    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, words: Any, at: Any) -> Any:
        row = Row(words.dtype)

        def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            few = builder.load(_pointer(context, builder, words, args[0], args[1], part), align=_bytes(words))
            whose = ir.Constant(ir.VectorType(INDEX, LANES), [lane * part // 32 for lane in range(LANES)])
            vector = context.get_value_type(row)
            by = ir.Constant(vector, [lane * part % 32 for lane in range(LANES)])
            kept = ir.Constant(vector, [(1 << part) - 1] * LANES)
            return builder.and_(builder.lshr(builder.shuffle_vector(few, few, whose), by), kept)

        return row(words, types.intp), make

    return call  # type: ignore[no-any-return]


# Read so many words, and give each lane as many bits, in order.
spread_16, spread_8, spread_4, spread_2, spread_1 = (_spreader(part) for part in (16, 8, 4, 2, 1))


@intrinsic  # type: ignore[untyped-decorator]
def fill(typing: Any, value: Any) -> Any:
    """Return a row of one value."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        nothing = ir.Constant(ir.VectorType(args[0].type, LANES), ir.Undefined)
        first = builder.insert_element(nothing, args[0], ir.Constant(INDEX, 0))
        return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(INDEX, LANES), [0] * LANES))

    return Row(value)(value), make


def _instruction(integers: str, reals: str | None = None) -> Callable[..., Any]:
    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, a: Any, b: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, reals if a.real and reals else integers)(*args)

        return a(a, b), make

    return call  # type: ignore[no-any-return]


def _function(name: str) -> Callable[..., Any]:
    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, a: Any, b: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return called(builder, f"llvm.{name}.{a.suffix}", args[0].type, args)

        return a(a, b), make

    return call  # type: ignore[no-any-return]


def _reduction(name: str) -> Callable[..., Any]:
    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, row: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return called(builder, f"llvm.vector.reduce.{name}.{row.suffix}", args[0].type.element, args)

        return row.dtype(row), make

    return call  # type: ignore[no-any-return]


# Of integers. Whether they have signs is for the operation to say.
shift_down = _instruction("lshr")
larger, larger_unsigned, smaller_unsigned = _function("smax"), _function("umax"), _function("umin")
largest, largest_unsigned, smallest_unsigned = _reduction("smax"), _reduction("umax"), _reduction("umin")
any_of, sum_of = _reduction("or"), _reduction("add")


def _overload(sign: Callable[..., Any], call: Callable[..., Any]) -> None:
    @overload(sign)  # type: ignore[untyped-decorator]
    def both(a: Any, b: Any) -> Any:
        def of_rows(a: Any, b: Any) -> Any:
            return call(a, b)

        return of_rows if isinstance(a, Row) and isinstance(b, Row) else None


for _sign, _names in {
    operator.add: ("add", "fadd"),
    operator.sub: ("sub", "fsub"),
    operator.mul: ("mul", "fmul"),
    operator.and_: ("and_",),
    operator.or_: ("or_",),
    operator.xor: ("xor",),
    operator.lshift: ("shl",),
    operator.rshift: ("ashr",),
}.items():
    _overload(_sign, _instruction(*_names))


@intrinsic  # type: ignore[untyped-decorator]
def bits_of(typing: Any, row: Any) -> Any:
    """Return the bits of floating-point numbers."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(row.bits))

    return row.bits(row), make


@intrinsic  # type: ignore[untyped-decorator]
def magnitudes(typing: Any, row: Any) -> Any:
    """Return the bits of absolute values: as integers they are in the same order, and NaN is the largest."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        positive = called(builder, f"llvm.fabs.{row.suffix}", args[0].type, args)
        return builder.bitcast(positive, context.get_value_type(row.bits))

    return row.bits(row), make


@intrinsic  # type: ignore[untyped-decorator]
def numbers_of(typing: Any, row: Any, like: Any) -> Any:
    """Return the floating-point numbers, of the type of an array or a row, that have these bits."""
    result = Row(like.dtype)

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(result))

    return result(row, like), make


@intrinsic  # type: ignore[untyped-decorator]
def holding(typing: Any, row: Any, like: Any) -> Any:
    """Return the numbers whose lowest bits are these integers: as they are, or for float64 with sign and exponent."""
    result = Row(like.dtype)

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = args[0]
        if like.dtype.bitwidth > 32:
            wide = context.get_value_type(result.bits)
            bits = builder.add(builder.sext(bits, wide), ir.Constant(wide, [BASE] * LANES))
        return builder.bitcast(bits, context.get_value_type(result))

    return result(row, like), make


@intrinsic  # type: ignore[untyped-decorator]
def low_words(typing: Any, row: Any) -> Any:
    """Keep the lowest 32 bits."""
    result = Row(types.int32)

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.trunc(args[0], context.get_value_type(result)) if row.dtype.bitwidth > 32 else args[0]

    return result(row), make


@intrinsic  # type: ignore[untyped-decorator]
def high_words(typing: Any, row: Any) -> Any:
    """Keep the highest 32 bits."""
    result = Row(types.int32)

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if row.dtype.bitwidth == 32:
            return args[0]
        by = ir.Constant(args[0].type, [32] * row.lanes)
        return builder.trunc(builder.lshr(args[0], by), context.get_value_type(result))

    return result(row), make


@intrinsic  # type: ignore[untyped-decorator]
def joined(typing: Any, low: Any, high: Any, like: Any) -> Any:
    """Put two words together where elements have 64 bits; the lower one is all there is where they have 32."""
    result = Row(like.dtype).bits

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if like.dtype.bitwidth == 32:
            return args[0]
        wide = context.get_value_type(result)
        above = builder.shl(builder.zext(args[1], wide), ir.Constant(wide, [32] * LANES))
        return builder.or_(builder.zext(args[0], wide), above)

    return result(low, high, like), make


@intrinsic  # type: ignore[untyped-decorator]
def width_of(typing: Any, word: Any) -> Any:
    """Count the bits of a word up to the highest that is set."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zeros = called(builder, "llvm.ctlz.i32", INDEX, [args[0], ir.Constant(ir.IntType(1), 0)])
        return builder.zext(builder.sub(ir.Constant(INDEX, 32), zeros), ir.IntType(64))

    return types.int64(types.int32), make
