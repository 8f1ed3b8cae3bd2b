// What the kernels of `bounded` and `dense` share: numbers and their quanta, the header, and the range.
//
// DOUBLE (0 or 1) is given by the compiler's command line.

#pragma once

#ifndef DOUBLE
#define DOUBLE 0
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr u32 ALL = 0xffffffffu;
constexpr int HEADER = 64;
constexpr u32 RAW = 0x80000000u;  // a tile whose values are kept as they are
constexpr u32 DAMAGED = 1;        // the bit of the flag that decoders set
constexpr int NOWEIGHT = -128;    // the exponent of a weight too small for any error

#if DOUBLE
typedef double real;
constexpr int ZERO = 0;  // what 0 is quantised to
constexpr double TINY = 4.9406564584124654e-324, LARGEST = 1.7976931348623157e308, ULP = 1.1102230246251565e-16;
constexpr double MARGIN = 1.0 / 1048576, NORMAL = 2.2250738585072014e-308;
constexpr int BITS = 64;
__device__ inline int quantise(double x, double inverse) {
    return __double2loint(__dadd_rn(__dmul_rn(x, inverse), 6755399441055744.0));
}
__device__ inline double restore(int q, double step) {
    return __dmul_rn(__dadd_rn(__hiloint2double(0x43380000 + (q >> 31), q), -6755399441055744.0), step);
}
__device__ inline bool within(double x, double y, double test) { return fabs(__dsub_rn(x, y)) < test; }
__device__ inline double towards_zero(double x) { return x < LARGEST ? x : LARGEST; }
#else
typedef float real;
constexpr int ZERO = 0x4b400000;
constexpr float TINY = 1.40129846e-45f;
constexpr double LARGEST = 3.4028234663852886e38, ULP = 5.9604644775390625e-8;
constexpr double MARGIN = 1.0 / 256, NORMAL = 1.1754943508222875e-38;
constexpr int BITS = 32;
// Adding 1.5 * 2^23 leaves the nearest integer in the lowest bits. Where that overflows, the bits are as good as any
// others: restore() is what the decoder will do, whatever they are, and within() looks at what comes of it.
__device__ inline int quantise(float x, float inverse) {
    return __float_as_int(__fadd_rn(__fmul_rn(x, inverse), 12582912.0f));
}
__device__ inline float restore(int q, float step) {
    return __fmul_rn(__fadd_rn(__int_as_float(q), -12582912.0f), step);
}
// Rounding is monotonic: what is rounded to less than `test` is less than it.
__device__ inline bool within(float x, float y, float test) { return fabsf(__fsub_rn(x, y)) < test; }
__device__ inline float towards_zero(double x) { return __double2float_rz(x < LARGEST ? x : LARGEST); }
#endif

constexpr int EACH = 16 / sizeof(real);
struct __align__(16) Vector {
    real x[EACH];
};

// Tiles begin at multiples of 4 bytes only.
__device__ inline void put_step(u8* to, real step) {
    const u32* words = (const u32*)&step;
    for (int k = 0; k < BITS / 32; ++k) ((u32*)to)[k] = words[k];
}

__device__ inline real step_of(const u8* from) {
    real step;
    for (int k = 0; k < BITS / 32; ++k) ((u32*)&step)[k] = ((const u32*)from)[k];
    return step;
}

// The header is 64 bytes; `size` grows as tiles are written.
struct Header {
    u64 size;
    u32 magic, kind;
    i64 n2, n1, n0;
    double bound, step;
    u64 tiles;
};

struct Range {
    real low, high;
    __device__ Range() : low((real)LARGEST), high((real)-LARGEST) {}
    __device__ inline void take(real x) {
        if ((x < 0 ? -x : x) <= (real)LARGEST) {
            low = x < low ? x : low;
            high = x > high ? x : high;
        }
    }

    // Write what the thread block has taken.
    __device__ inline void put(double* __restrict__ parts) {
        __shared__ real lows[256], highs[256];
        lows[threadIdx.x] = low, highs[threadIdx.x] = high;
        __syncthreads();
        for (int half = 128; half; half >>= 1) {
            if (threadIdx.x < half) {
                lows[threadIdx.x] = min(lows[threadIdx.x], lows[threadIdx.x + half]);
                highs[threadIdx.x] = max(highs[threadIdx.x], highs[threadIdx.x + half]);
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) parts[2 * blockIdx.x] = lows[0], parts[2 * blockIdx.x + 1] = highs[0];
    }
};

// The smallest and the largest finite value of each thread block's part; the wrong way round where there is none.
extern "C" __global__ void __launch_bounds__(256)
    range(const real* __restrict__ array, u64 n, double* __restrict__ parts) {
    Range all;
    const u64 stride = (u64)gridDim.x * 256, first = (u64)blockIdx.x * 256 + threadIdx.x;
    const u64 ahead = ((16 - (u64)array % 16) % 16) / sizeof(real), skipped = ahead < n ? ahead : n;
    const u64 vectors = (n - skipped) / EACH;
    const Vector* __restrict__ aligned = (const Vector*)(array + skipped);
#pragma unroll 4
    for (u64 at = first; at < vectors; at += stride) {
        const Vector v = aligned[at];
#pragma unroll
        for (int k = 0; k < EACH; ++k) all.take(v.x[k]);
    }
    if (first < skipped) all.take(array[first]);
    const u64 rest = skipped + vectors * EACH;
    if (first < n - rest) all.take(array[rest + first]);
    all.put(parts);
}

// The same of a window of a larger array: a warp takes a line at a time, whole vectors where they are.
extern "C" __global__ void __launch_bounds__(256)
    range_of_window(const real* __restrict__ array, i64 n2, i64 n1, i64 n0, i64 plane, i64 pitch,
                    double* __restrict__ parts) {
    Range all;
    const u32 lane = threadIdx.x & 31, lines = (u32)(n2 * n1), rows = (u32)n1, values = (u32)n0;
    for (u32 at = blockIdx.x * 8 + threadIdx.x / 32; at < lines; at += gridDim.x * 8) {
        const u32 z = at / rows;
        const real* __restrict__ line = array + z * plane + (at - z * rows) * pitch;
        const u32 ahead = (u32)((16 - (u64)line % 16) % 16) / sizeof(real), skipped = ahead < values ? ahead : values;
        const u32 vectors = (values - skipped) / EACH, rest = skipped + vectors * EACH;
        const Vector* __restrict__ aligned = (const Vector*)(line + skipped);
#pragma unroll 8
        for (u32 k = lane; k < vectors; k += 32) {
            const Vector v = aligned[k];
#pragma unroll
            for (int each = 0; each < EACH; ++each) all.take(v.x[each]);
        }
        if (lane < skipped) all.take(line[lane]);
        if (lane < values - rest) all.take(line[rest + lane]);
    }
    all.put(parts);
}

// Write the header. `parts` > 0: the bound is relative, and the range is that of so many parts. `unit` > 0: decoded
// values are rounded to 16 bits, with errors up to `unit` of them or `tiny`; see format.py. One warp.
extern "C" __global__ void begin(Header* __restrict__ header, const double* __restrict__ part, u32 parts, double bound,
                                 double unit, double tiny, u32 magic, u32 kind, i64 n2, i64 n1, i64 n0, u64 tiles,
                                 u64 start) {
    double low = LARGEST, high = -LARGEST;
    for (u32 at = threadIdx.x; at < parts; at += 32) low = fmin(low, part[2 * at]), high = fmax(high, part[2 * at + 1]);
    for (int half = 16; half; half >>= 1) {
        low = fmin(low, __shfl_xor_sync(ALL, low, half));
        high = fmax(high, __shfl_xor_sync(ALL, high, half));
    }
    if (low > high) low = high = 0;
    const double peak = fmax(fabs(low), fabs(high));
    double range = __dsub_rn(high, low);
    if (!(range < LARGEST) && DOUBLE) range = LARGEST;
    const double wanted = parts ? __dmul_rn(bound, range) : bound;
    double held = towards_zero(wanted);
    if (unit > 0) {
        const double rounding = fmax(__dmul_rn(unit, __dadd_rn(peak, held)), tiny);
        held = towards_zero(rounding <= 0.5 * held ? __dsub_rn(held, rounding) : 0.5 * held);
    }
    if (parts && range == 0) held = 0;
    const double margin = parts ? __dmul_rn(4 * ULP, peak) : __dmul_rn(MARGIN, held);
    double step = margin <= 0.5 * held ? __dmul_rn(2, __dsub_rn(held, margin)) : held;
    step = towards_zero(step);
    if (parts && range == 0) step = peak > 0 ? peak : 1;
    if (threadIdx.x == 0) *header = Header{start, magic, kind, n2, n1, n0, held, step, tiles};
}

// Bound and step of a tile whose weight has this exponent; see scaled() in format.py.
struct Quanta {
    real bound, step;
};

__device__ __noinline__ Quanta scaled(double bound, double step, int exponent) {
    const double margin = __dsub_rn(bound, 0.5 * step), held = fmin(ldexp(bound, exponent), LARGEST);
    if (bound > 0 && (exponent == NOWEIGHT || held < NORMAL)) return Quanta{0, 0};
    const double kept = exponent == NOWEIGHT ? 0 : held;
    return Quanta{(real)kept, towards_zero(margin <= 0.5 * kept ? __dmul_rn(2, __dsub_rn(kept, margin)) : kept)};
}

// Whether a header's bound or step is a number of the array's type; the smallest bounds are rounded to 0.
__device__ inline bool possible(double x) { return x >= 0 && x <= LARGEST; }
