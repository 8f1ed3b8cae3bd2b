// Averages under a bell along one axis, and the way there and back: the twins of what SciPy and NumPy do on the host.
//
// Sums are in SciPy's order, the farthest pair first, and no product is contracted with one: so they have its bits.

#ifndef VALUE  // the type of a model
#define VALUE float
#endif

typedef unsigned long long u64;

// Take values to double precision, or one over each.
extern "C" __global__ void widen(const VALUE* __restrict__ values, double* __restrict__ wide, u64 points, int inverse) {
    const u64 point = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (point >= points) return;
    const double value = static_cast<double>(values[point]);
    wide[point] = inverse ? 1.0 / value : value;
}

// Take them back.
extern "C" __global__ void narrow(const double* __restrict__ wide, VALUE* __restrict__ values, u64 points, int inverse) {
    const u64 point = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (point >= points) return;
    values[point] = static_cast<VALUE>(inverse ? 1.0 / wide[point] : wide[point]);
}

// Average along an axis of some length, whose points are so far apart; beyond its ends values go on as they are there.
extern "C" __global__ void average(const double* __restrict__ from, double* __restrict__ to,
                                   const double* __restrict__ weights, u64 points, u64 length, u64 apart, u64 reach) {
    const u64 point = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (point >= points) return;
    const u64 place = point / apart % length;
    double total = from[point] * weights[reach];
    for (u64 away = reach; away > 0; --away) {
        const double before = from[point - (away < place ? away : place) * apart];
        const double after = from[point + (away < length - 1 - place ? away : length - 1 - place) * apart];
        total += (before + after) * weights[reach - away];
    }
    to[point] = total;
}
