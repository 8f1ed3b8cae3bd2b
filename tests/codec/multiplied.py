"""The kernel that multiplies an encoding, run without a GPU, and what it has to give."""

import ctypes
import re

import numpy as np
from tests.codec.fibers import built, whole

from forebay.codec.bounded.codec import SOURCE, defines, side_by_side
from forebay.codec.bounded.format import MAGIC
from forebay.codec.bounded.multiplying import pitches

ENTRY = r"""
static const void *places[6]; static u64 given_bytes; static double by; static i64 five[5];
static u32 numbers[6], flag_;
static void body()
{
    multiply((const u8 *)places[0], given_bytes, (const real *)places[1], five[3], five[4], (real *)places[2],
        (real *)places[3], (real)by, (const int *)places[4], (real *)places[5], numbers[0], numbers[1], five[0],
        five[1], five[2], numbers[2], numbers[3], numbers[4], numbers[5], &flag_);
}
extern "C" u32 launch(u32 blocks, u32 threads, u32 seed, const void *const *six, u64 nbytes, double factor,
                      const i64 *window, const u32 *about)
{
    memcpy(places, six, sizeof(places)), memcpy(five, window, sizeof(five)), memcpy(numbers, about, sizeof(numbers));
    given_bytes = nbytes, by = factor, flag_ = 0;
    run_blocks(blocks, threads, seed, body);
    return flag_;
}
"""
fmaf = ctypes.CDLL("libm.so.6").fmaf
fmaf.argtypes, fmaf.restype = [ctypes.c_float] * 3, ctypes.c_float
FUSED = np.vectorize(fmaf, otypes=[np.float32])


def emulated(source, dtype, rank, entry):
    """Build the kernels of `bounded`, whose own instructions have twins."""
    source, replaced = re.subn(r'asm\("bfind.*?"r"\((.*)\)\);', r"highest = highest_bit(\1);", whole(source))
    source, also = re.subn(r'asm\("szext.*?"r"\(window\).*', "field = extended(window, width);", source)
    assert (replaced, also) == (1, 1)
    return built(source, entry, tuple(defines(np.dtype(dtype), rank).items())).launch


def multiply(encoded, meeting, seed=0):
    """Run the kernel on what lies on the host; give the flag."""
    shape, dtype = encoded.shape, encoded.dtype
    payload = encoded.payload[: encoded.nbytes]
    how = encoded.codec._tiling(shape, dtype)
    views = (meeting.other, meeting.products, meeting.squares)
    six = np.array([payload.ctypes.data, *(view.pointer for view in views), meeting.slots, meeting.kept], np.uint64)
    five = np.array([*how.extents, *pitches(meeting.other, how)], np.int64)
    numbers = np.array([MAGIC, how.kind, *how.counts[1:], how.tiles, how.shift], np.uint32)
    return emulated(SOURCE, dtype.name, how.rank, ENTRY)(
        *(*side_by_side(how), seed, ctypes.c_void_p(six.ctypes.data)),
        *(ctypes.c_uint64(payload.nbytes), ctypes.c_double(meeting.factor)),
        *(ctypes.c_void_p(five.ctypes.data), ctypes.c_void_p(numbers.ctypes.data)),
    )


def summed(x, other, products, squares, factor):
    """Return both sums with what the kernel adds to them, in float32."""
    scaled = np.float32(factor) * x
    return FUSED(scaled, other, products), FUSED(scaled, x, squares)
