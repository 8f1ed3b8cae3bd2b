// The range and the standard deviation of an array's finite values, in double, in an order that is always the same.
// REAL is float or double. The twin of `_spread` in bitcomp.py.

#define THREADS 256
#define LARGEST 1.7976931348623157e308

struct Part {
    double least, most, sum, squares, count;
};

__device__ Part none() { return {LARGEST, -LARGEST, 0.0, 0.0, 0.0}; }

__device__ Part joined(Part one, Part two) {
    return {fmin(one.least, two.least), fmax(one.most, two.most), one.sum + two.sum, one.squares + two.squares,
            one.count + two.count};
}

// Leaves the whole thread block's part with its first thread.
__device__ Part over_block(Part part) {
    __shared__ Part parts[THREADS];
    parts[threadIdx.x] = part;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] = joined(parts[threadIdx.x], parts[threadIdx.x + half]);
    }
    return parts[0];
}

// Sums are taken about the first value: about zero, they would lose the digits of a small spread far away from it.
__device__ double centre(const REAL *values) {
    double first = values[0];
    return fabs(first) <= LARGEST ? first : 0.0;
}

extern "C" __global__ void gather(const REAL *values, long long count, Part *parts) {
    Part part = none();
    double about = centre(values);
    long long stride = (long long)gridDim.x * THREADS;
    for (long long index = (long long)blockIdx.x * THREADS + threadIdx.x; index < count; index += stride) {
        double value = values[index];
        if (!(fabs(value) <= LARGEST)) continue;
        double away = value - about;
        part = joined(part, {value, value, away, away * away, 1.0});
    }
    part = over_block(part);
    if (threadIdx.x == 0) parts[blockIdx.x] = part;
}

extern "C" __global__ void scale(const Part *parts, int blocks, int deviation, double *out) {
    Part part = none();
    for (int index = threadIdx.x; index < blocks; index += THREADS) part = joined(part, parts[index]);
    part = over_block(part);
    if (threadIdx.x) return;
    if (part.count == 0) {
        *out = 0.0;
    } else if (deviation && !(part.squares <= LARGEST)) {
        *out = part.squares;
    } else if (deviation) {
        double mean = part.sum / part.count;
        *out = sqrt(fmax(part.squares / part.count - mean * mean, 0.0));
    } else {
        *out = part.most - part.least;
    }
}
