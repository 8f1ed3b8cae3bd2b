"""Words that have a bit for each lane of a row."""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from forebay.codec.bounded.rows import INDEX, called


@intrinsic  # type: ignore[untyped-decorator]
def above(typing: Any, a: Any, b: Any) -> Any:
    """Return a word whose bits say in which lanes one integer is larger than another."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.icmp_signed(">", *args), INDEX)

    return types.uint32(a, b), make


@intrinsic  # type: ignore[untyped-decorator]
def count_of(typing: Any, word: Any) -> Any:
    """Count the bits of a word that are set."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(called(builder, "llvm.ctpop.i32", INDEX, args), ir.IntType(64))

    return types.int64(types.uint32), make
