// Formulas over a volume in one pass: what `fused` has written down is FORMULA, statement by statement, and VALUE.
//
// A thread owns a column of points and goes down it. Numbers that know nothing of the depth are surfaces, one value for
// each column; those that know nothing else are levels, one value for each depth. All else is a double on the way, and
// no product is contracted with a sum: so elementary operations round as those of NumPy.

#ifndef FORMULA
#define FORMULA
#define VALUE LEVEL(0) + SURFACE(0)
#endif
#define inf (1e300 * 1e300)
#define SURFACE(k) surfaces[(k) * columns + column]
#define LEVEL(k) levels[(k) * depths + depth]

typedef unsigned long long u64;

__device__ inline double larger(double a, double b) { return a >= b ? a : b; }
__device__ inline double clipped(double a, double low, double high) {
    const double raised = a < low ? low : a;
    return raised > high ? high : raised;
}

// As numpy.interp: `knots` has as many places, and then as many values; a slope is worked out where it is needed.
__device__ inline double interpolated(double at, const double* __restrict__ knots, unsigned count) {
    const double* values = knots + count;
    if (at < knots[0]) return values[0];
    if (at >= knots[count - 1]) return values[count - 1];
    unsigned low = 0, high = count - 1;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (at >= knots[middle]) low = middle;
        else high = middle;
    }
    if (knots[low] == at) return values[low];
    return (values[low + 1] - values[low]) / (knots[low + 1] - knots[low]) * (at - knots[low]) + values[low];
}

extern "C" __global__ void fill(float* __restrict__ out, const double* __restrict__ surfaces,
                                const double* __restrict__ levels, const double* __restrict__ tables, u64 columns,
                                u64 depths) {
    const u64 column = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    for (u64 depth = blockIdx.y; depth < depths; depth += gridDim.y) {
        FORMULA
        out[depth * columns + column] = static_cast<float>(VALUE);
    }
}
