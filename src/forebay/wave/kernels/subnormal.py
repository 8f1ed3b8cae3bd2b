"""Numbers so small that a processor computes with them in many steps: loops of waves take them for zero.

Ahead of a wave a stencil spreads ever smaller values, point by point, until they vanish. On the way they lose digits
below the smallest normal number, 1.2e-38 in float32. Some processors need a hundred times as long for one of those: a
few points in a hundred double the time of a step. What a thread does with them is its own setting, so each piece of
work of a loop says what it wants, and puts back what was before.
"""

import platform
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

ZERO_IN, ZERO_OUT = 1 << 6, 1 << 15
"""Bits of MXCSR: what is read counts as zero where it is subnormal, and so does what is written."""
_IS_X86 = platform.machine() in ("x86_64", "AMD64")


def _control(builder: Any, name: str, slot: Any) -> None:
    pointer = ir.IntType(8).as_pointer()
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [pointer]), name)
    builder.call(function, [builder.bitcast(slot, pointer)])


@intrinsic  # type: ignore[untyped-decorator]
def flush(typing: Any) -> Any:
    """Take subnormal numbers for zero in this thread, and return what `restore` wants; x86 alone can do it here."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        slot = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(32), 0))
        if not _IS_X86:
            return builder.load(slot)
        _control(builder, "llvm.x86.sse.stmxcsr", slot)
        before = builder.load(slot)
        builder.store(builder.or_(before, ir.Constant(ir.IntType(32), ZERO_IN | ZERO_OUT)), slot)
        _control(builder, "llvm.x86.sse.ldmxcsr", slot)
        return before

    return types.uint32(), generate


@intrinsic  # type: ignore[untyped-decorator]
def restore(typing: Any, before: Any) -> Any:
    """Have this thread do with subnormal numbers what it did before `flush`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _IS_X86:
            _control(builder, "llvm.x86.sse.ldmxcsr", cgutils.alloca_once_value(builder, arguments[0]))
        return context.get_dummy_value()

    return types.void(types.uint32), generate
