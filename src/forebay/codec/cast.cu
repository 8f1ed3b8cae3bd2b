// Casting to 16-bit floats and back; the twin of cast.py, value for value.
// REAL is float or double, MANTISSA and BIAS describe the 16-bit type.

typedef unsigned short u16;
typedef unsigned long long u64;

#define INFINITE ((u64)(2 * BIAS + 1) << MANTISSA)
#define REBIAS ((u64)(1023 - BIAS) << MANTISSA)
#define DROP (52 - MANTISSA)

struct Factors {
    double one, two;
};

__device__ double power_of_two(int exponent) { return __longlong_as_double((long long)(exponent + 1023) << 52); }

// The largest value as a fraction in [1/2, 1) times 2^exponent: that exponent.
__device__ int exponent_of(double largest) {
    u64 bits = __double_as_longlong(largest);
    int exponent = (int)(bits >> 52);
    return exponent ? exponent - 1022 : (int)(64 - __clzll(bits)) - 1074;
}

// Halves of a negative odd shift are rounded down, as Python does.
__device__ Factors factors(double largest, int sign) {
    if (largest == 0) return {1.0, 1.0};
    int shift = BIAS - exponent_of(largest);
    int half = shift >> 1;
    return {power_of_two(sign * half), power_of_two(sign * (shift - half))};
}

extern "C" __global__ void clear(u64 *header) { header[0] = header[1] = 0; }

extern "C" __global__ void largest(const REAL *values, long long count, u64 *header) {
    double most = 0;
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x; index < count; index += stride) {
        double magnitude = fabs((double)values[index]);
        if (magnitude > most && magnitude <= 1.7976931348623157e308) most = magnitude;
    }
    u64 bits = __double_as_longlong(most);
    for (int offset = 16; offset; offset /= 2) {
        u64 other = __shfl_xor_sync(0xFFFFFFFFu, bits, offset);
        if (other > bits) bits = other;
    }
    if ((threadIdx.x & 31) == 0 && bits) atomicMax(header, bits);
}

extern "C" __global__ void encode(const REAL *values, long long count, u64 *header) {
    Factors by = factors(__longlong_as_double(header[0]), 1);
    u16 *out = (u16 *)(header + 2);
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x; index < count; index += stride) {
        double value = values[index];
        u64 sign = (u64)__double_as_longlong(value) >> 63 << 15;
        u64 half;
        if (value != value) {
            half = INFINITE | 1ull << (MANTISSA - 1);
        } else if (fabs(value) > 1.7976931348623157e308) {
            half = INFINITE;
        } else {
            double magnitude = fabs(value) * by.one * by.two;
            if (magnitude < power_of_two(1 - BIAS)) {
                half = (u64)rint(magnitude * power_of_two(MANTISSA + BIAS - 1));
            } else {
                u64 bits = __double_as_longlong(magnitude);
                half = ((bits + ((1ull << (DROP - 1)) - 1) + (bits >> DROP & 1)) >> DROP) - REBIAS;
            }
            if (half > INFINITE - 1) half = INFINITE - 1;
        }
        out[index] = (u16)(sign | half);
    }
}

extern "C" __global__ void decode(const u64 *header, long long count, REAL *out, u64 *damage) {
    double most = __longlong_as_double(header[0]);
    if (!(most >= 0 && most <= 1.7976931348623157e308)) {
        if (blockIdx.x == 0 && threadIdx.x == 0) atomicOr(damage, 1ull);
        most = 0;
    }
    Factors by = factors(most, -1);
    const u16 *words = (const u16 *)(header + 2);
    double limit = sizeof(REAL) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308;
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x; index < count; index += stride) {
        u64 half = words[index] & 0x7FFF;
        double value;
        if (half > INFINITE) {
            value = __longlong_as_double(0x7FF8000000000000ll);
        } else if (half == INFINITE) {
            value = __longlong_as_double(0x7FF0000000000000ll);
        } else {
            value = half >> MANTISSA ? __longlong_as_double((half + REBIAS) << DROP)
                                     : (double)half * power_of_two(1 - MANTISSA - BIAS);
            value = fmin(value * by.one * by.two, limit);
        }
        out[index] = (REAL)(words[index] & 0x8000 ? -value : value);
    }
}
