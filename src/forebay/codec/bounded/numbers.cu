// What arrays of other types become before `bounded` encodes them, and back; numbers.py is the twin.
//
// MANTISSA: 10 (float16), 7 (bfloat16), or 0 for complex numbers, of which DOUBLE says the parts.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef MANTISSA
#define MANTISSA 10
#endif
#ifndef DOUBLE
#define DOUBLE 0
#endif
#if DOUBLE
typedef double real;
#else
typedef float real;
#endif

#define EACH(at, count) \
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x)

#if MANTISSA == 0
struct Pair {
    real re, im;
};

extern "C" __global__ void widen(const Pair* __restrict__ array, u64 count, real* __restrict__ reals) {
    EACH(at, count) {
        const Pair pair = array[at];
        reals[at] = pair.re, reals[count + at] = pair.im;
    }
}

extern "C" __global__ void narrow(const real* __restrict__ reals, u64 count, Pair* __restrict__ array) {
    EACH(at, count) array[at] = Pair{reals[at], reals[count + at]};
}
#else
// What is not finite keeps its bits: conversions would make a signalling NaN quiet.
__device__ inline u32 wide(u16 bits) {
#if MANTISSA == 7
    return (u32)bits << 16;
#else
    if ((bits & 0x7c00) == 0x7c00) return (u32)(bits & 0x8000) << 16 | 0x7f800000 | (u32)(bits & 0x3ff) << 13;
    u32 value;
    asm("{.reg .f32 f; cvt.f32.f16 f, %1; mov.b32 %0, f;}" : "=r"(value) : "h"(bits));
    return value;
#endif
}

__device__ inline u16 near(u32 value) {
    const u32 sign = value >> 16 & 0x8000;
    const bool finite = (value & 0x7f800000) != 0x7f800000;
#if MANTISSA == 7
    if (!finite) return (u16)(value >> 16);
    const u32 bits = ((value & 0x7fffffff) + (0x7fff + (value >> 16 & 1))) >> 16, largest = 0x7f7f;
#else
    if (!finite) return (u16)(sign | 0x7c00 | (value >> 13 & 0x3ff));
    u16 half;
    asm("{.reg .f32 f; mov.b32 f, %1; cvt.rn.f16.f32 %0, f;}" : "=h"(half) : "r"(value & 0x7fffffff));
    const u32 bits = half, largest = 0x7bff;
#endif
    return (u16)(sign | (bits < largest ? bits : largest));
}

extern "C" __global__ void widen(const u16* __restrict__ array, u64 count, u32* __restrict__ reals) {
    EACH(at, count) reals[at] = wide(array[at]);
}

extern "C" __global__ void narrow(const u32* __restrict__ reals, u64 count, u16* __restrict__ array) {
    EACH(at, count) array[at] = near(reals[at]);
}
#endif
