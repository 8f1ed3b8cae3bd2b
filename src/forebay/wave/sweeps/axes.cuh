// The axes of fields in which a thread has a point, and where layers remember: what sweeps share.
//
// AXES and RADIUS, of the stencil, are defined from outside.

typedef unsigned int u32;
typedef long long i64;

constexpr int LAST = AXES - 1;

// An axis: where its points are computed, its layers, their coefficients at whole points and at half ones, their memory,
// and the weight of what is differentiated along it.
struct Axis {
    int first, low, high, last;
    const float *a, *b, *half_a, *half_b;
    float *psi, *zeta;
    float w;

    __device__ bool crossed(int place) const { return place >= first && place + 1 < last; }
    __device__ bool layered(int place) const {
        return place >= first && place < last && (place < low || place >= high);
    }
    __device__ int count() const { return low - first + last - high; }
    // Tell whether any place from one to another is in a layer.
    __device__ bool reached(int from, int to) const { return (low > first && from < low) || (high < last && to > high); }
};

// The extents of fields, and each axis.
struct Grid {
    int planes, rows, pitch;
    Axis axes[3];  // that of planes, of what lies along rows, and of rows, if there are such

    template <int AXIS> __device__ i64 stride() const {
        return AXIS == 0 ? static_cast<i64>(rows) * pitch : AXIS == 1 ? 1 : pitch;
    }
    // Places are counted in 32 bits: fields have less than 2^32 points, and memories of an axis no more than fields.
    __device__ u32 cell(int k, int j, int i) const { return (static_cast<u32>(k) * rows + j) * pitch + i; }
    // Give where an axis remembers a point that is in a layer.
    template <int AXIS> __device__ u32 memory(int k, int j, int i) const {
        const Axis& own = axes[AXIS];
        const int place = AXIS == 0 ? k : AXIS == 1 ? i : j;
        const int at = place < own.low ? place - own.first : place - own.high + own.low - own.first;
        if (AXIS == 0) return cell(at, j, i);
        if (AXIS == 1) return (static_cast<u32>(k) * rows + j) * own.count() + at;
        return (static_cast<u32>(k) * own.count() + at) * pitch + i;
    }
};

// Read what the host says of the grid: extents, then of each axis its points, and offsets of its memory and coefficients.
__device__ inline Grid grid_of(const u32* __restrict__ table, const float* __restrict__ ab, float* pml, float w_z,
                               float w_x, float w_y) {
    Grid g = {static_cast<int>(table[0]), static_cast<int>(table[1]), static_cast<int>(table[2])};
#pragma unroll
    for (int axis = 0; axis < AXES; ++axis) {
        const u32* own = table + 3 + 8 * axis;
        const float* a = ab + own[6];
        g.axes[axis] = {static_cast<int>(own[0]), static_cast<int>(own[1]), static_cast<int>(own[2]),
                        static_cast<int>(own[3]), a, a + 2 * own[7], a + own[7], a + 3 * own[7], pml + own[4],
                        pml + own[5], axis == 0 ? w_z : axis == 1 ? w_x : w_y};
    }
    return g;
}

// Find the place of a value of an axis's memory; tell whether anything is computed there.
template <int AXIS>
__device__ inline bool remembered(const Grid& g, u32 number, int& k, int& j, int& i) {
    const Axis& axis = g.axes[AXIS];
    const u32 width = AXIS == 1 ? axis.count() : g.pitch, height = AXIS == 2 ? axis.count() : g.rows;
    i = number % width, j = number / width % height, k = number / width / height;
    int& place = AXIS == 0 ? k : AXIS == 1 ? i : j;
    place += place < axis.low - axis.first ? axis.first : axis.high - axis.low + axis.first;
    if (k < RADIUS || k >= g.planes - RADIUS || i < g.axes[1].first || i >= g.axes[1].last) return false;
    return AXES == 2 || (j >= RADIUS && j < g.rows - RADIUS);
}
