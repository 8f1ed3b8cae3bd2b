"""What rows need besides: words that have a bit for each lane, pieces that lie apart, and sums with one rounding."""

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from forebay.codec import compiled
from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import INDEX, Row, called

F = TypeVar("F", bound=Callable[..., Any])

PIECES = 4
"""Pieces of a row that may lie apart."""
PIECE = LANES // PIECES
BIT = ir.IntType(1)


def jit(function: F) -> F:
    """Compile a function for one thread that leaves the others theirs, takes no memory and counts no references.

    It is compiled again for each constant that another hands over, or has in a variable at first: np.int64(0) is none.
    """
    return compiled.jit(function, error_model="numpy", _nrt=False)


def inlined(function: F) -> F:
    """Compile a function into those that call it: rows and the parts of many arrays would go to it through memory."""
    return compiled.jit(function, error_model="numpy", _nrt=False, forceinline=True)


def _row_of_bits(builder: Any, word: Any) -> Any:
    return builder.bitcast(word, ir.VectorType(BIT, LANES))


def _comparison(sign: str) -> Callable[..., Any]:
    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, a: Any, b: Any) -> Any:
        def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            compare = builder.fcmp_ordered if a.real else builder.icmp_signed
            return builder.bitcast(compare(sign, *args), INDEX)

        return types.uint32(a, b), make

    return call  # type: ignore[no-any-return]


# Words whose bits say in which lanes one number is below another, or another than it.
below, other_than = _comparison("<"), _comparison("!=")


@intrinsic  # type: ignore[untyped-decorator]
def chosen(typing: Any, word: Any, a: Any, b: Any) -> Any:
    """Return one row where a word has a bit, and another elsewhere."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(_row_of_bits(builder, args[0]), args[1], args[2])

    return a(types.uint32, a, b), make


@intrinsic  # type: ignore[untyped-decorator]
def count_of(typing: Any, word: Any) -> Any:
    """Count the bits of a word that are set."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(called(builder, "llvm.ctpop.i32", INDEX, args), ir.IntType(64))

    return types.int64(types.uint32), make


@intrinsic  # type: ignore[untyped-decorator]
def counts_of(typing: Any, row: Any) -> Any:
    """Count the bits of integers that are set."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return called(builder, f"llvm.ctpop.{row.suffix}", args[0].type, args)

    return row(row), make


@intrinsic  # type: ignore[untyped-decorator]
def lowest_of(typing: Any, word: Any) -> Any:
    """Return the number of the lowest bit of a word that is set."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = called(builder, "llvm.cttz.i32", INDEX, [args[0], ir.Constant(BIT, 0)])
        return builder.zext(found, ir.IntType(64))

    return types.int64(types.uint32), make


@intrinsic  # type: ignore[untyped-decorator]
def fused(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c, rounded once."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return called(builder, f"llvm.fma.{a.suffix}", args[0].type, args)

    return a(a, b, c), make


@intrinsic  # type: ignore[untyped-decorator]
def absolute(typing: Any, row: Any) -> Any:
    """Return magnitudes."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return called(builder, f"llvm.fabs.{row.suffix}", args[0].type, args)

    return row(row), make


@intrinsic  # type: ignore[untyped-decorator]
def reals_of(typing: Any, row: Any, like: Any) -> Any:
    """Return integers as numbers of the type of an array."""
    result = Row(like.dtype)

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sitofp(args[0], context.get_value_type(result))

    return result(row, like), make


@intrinsic  # type: ignore[untyped-decorator]
def widened(typing: Any, row: Any) -> Any:
    """Return integers of fewer bits, without signs, as some of 32."""
    result = Row(types.int32)

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(args[0], context.get_value_type(result))

    return result(row), make


def _lister(lanes: int) -> Callable[..., Any]:
    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, array: Any, at: Any, by: Any) -> Any:
        result = Row(array.dtype, lanes)

        def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data, vector = context.make_array(array)(context, builder, args[0]).data, context.get_value_type(result)
            place = builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer())
            first = builder.insert_element(ir.Constant(vector, ir.Undefined), args[2], ir.Constant(INDEX, 0))
            return builder.add(
                builder.load(place, align=array.dtype.bitwidth // 8), _picked(builder, first, first, [0] * lanes)
            )

        return result(array, types.intp, array.dtype), make

    return call  # type: ignore[no-any-return]


# Read so many integers, and add one to each.
listed_8, listed_4 = _lister(8), _lister(4)


def _places(context: Any, builder: Any, array: Any, where: Any, lanes: int) -> list[Any]:
    """Return the addresses of the pieces of a row, as far apart as a pitch says."""
    value, index, pitch = where
    data = context.make_array(array)(context, builder, value).data
    vector = ir.VectorType(context.get_value_type(array.dtype), lanes)
    places = []
    for _ in range(PIECES):
        places.append(builder.bitcast(builder.gep(data, [index]), vector.as_pointer()))
        index = builder.add(index, pitch)
    return places


def _picked(builder: Any, one: Any, other: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(INDEX, len(lanes)), lanes))


def _joined(builder: Any, parts: list[Any]) -> Any:
    while len(parts) > 1:
        lanes = list(range(2 * parts[0].type.count))
        parts = [_picked(builder, parts[k], parts[k + 1], lanes) for k in range(0, len(parts), 2)]
    return parts[0]


@intrinsic  # type: ignore[untyped-decorator]
def load_pieces(typing: Any, array: Any, at: Any, pitch: Any) -> Any:
    """Read a row whose four pieces lie apart."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = _places(context, builder, array, args, PIECE)
        return _joined(builder, [builder.load(place, align=array.dtype.bitwidth // 8) for place in places])

    return Row(array.dtype)(array, types.intp, types.intp), make


def _every_other(context: Any, builder: Any, array: Any, where: Any, first: int) -> Any:
    """Return every other value, from the first on, of the pieces of two rows."""
    pieces = []
    for place in _places(context, builder, array, where, 2 * PIECE):
        piece = builder.load(place, align=array.dtype.bitwidth // 8)
        pieces.append(_picked(builder, piece, piece, list(range(first, 2 * PIECE, 2))))
    return _joined(builder, pieces)


@intrinsic  # type: ignore[untyped-decorator]
def load_evens(typing: Any, array: Any, at: Any, pitch: Any) -> Any:
    """Read every other value of four pieces that lie apart."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _every_other(context, builder, array, args, 0)

    return Row(array.dtype)(array, types.intp, types.intp), make


@intrinsic  # type: ignore[untyped-decorator]
def load_odds(typing: Any, array: Any, at: Any, pitch: Any) -> Any:
    """Read the values after those."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _every_other(context, builder, array, args, 1)

    return Row(array.dtype)(array, types.intp, types.intp), make


@intrinsic  # type: ignore[untyped-decorator]
def store_pairs(typing: Any, evens: Any, odds: Any, array: Any, at: Any, pitch: Any) -> Any:
    """Write the values of two rows in turn, to four pieces that lie apart."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for k, place in enumerate(_places(context, builder, array, args[2:], 2 * PIECE)):
            lanes = [k * PIECE + lane // 2 + lane % 2 * LANES for lane in range(2 * PIECE)]
            builder.store(_picked(builder, args[0], args[1], lanes), place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(evens, odds, array, types.intp, types.intp), make
