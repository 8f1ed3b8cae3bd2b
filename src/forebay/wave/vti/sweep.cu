// VTI waves: the twins of cpu.py; propagator.py says what is computed.
//
// A thread owns a point across the first axis and marches along it, with the vertical stresses along it in registers. The
// horizontal stresses of a plane, and of what stencils reach around it, are in shared memory: in one half of it while
// those of the next plane come into the other. Layers take psi, and on the way back zeta, further in launches of their
// own, which have a thread for each value of the memory.
//
// AXES and RADIUS, of the stencil, are defined from outside, and so are BLOCK_X and BLOCK_Y: threads of a thread block
// along rows, and across them in three dimensions.

#include "../acoustic/words.cuh"
#include "../sweeps/axes.cuh"

constexpr int WIDE = BLOCK_X + 2 * RADIUS, BESIDE = AXES == 3 ? RADIUS : 0, HIGH = AXES == 3 ? BLOCK_Y + 2 * RADIUS : 1;

// Both fields, and what the stresses follow from.
struct Waves {
    const float *__restrict__ p, *__restrict__ r, *__restrict__ hard, *__restrict__ share, *__restrict__ excess;

    __device__ float vertical(i64 at) const {
        return fmaf(__ldg(share + at), __ldg(p + at), __ldg(excess + at) * __ldg(r + at));
    }
    template <int AXIS> __device__ float stress(i64 at) const { return AXIS ? __ldg(p + at) : vertical(at); }
};

// Take zeta of a second derivative further, and give that as the layers leave it.
template <int AXIS>
__device__ inline float stretched(const Grid& g, float bend, int k, int j, int i) {
    const Axis& axis = g.axes[AXIS];
    const int place = AXIS == 0 ? k : AXIS == 1 ? i : j;
    if (!axis.layered(place)) return bend;
    const i64 at = g.memory<AXIS>(k, j, i);
    const bool more = axis.layered(place + 1);
    const float ahead = more ? axis.psi[g.memory<AXIS>(k + (AXIS == 0), j + (AXIS == 2), i + (AXIS == 1))] : 0;
    bend += ahead - axis.psi[at];
    const float zeta = fmaf(axis.b[place], axis.zeta[at], axis.a[place] * bend);
    axis.zeta[at] = zeta;
    return bend + zeta;
}

// Give what the layers change in a second derivative on the way back.
template <int AXIS>
__device__ inline float returned(const Grid& g, int k, int j, int i) {
    const Axis& axis = g.axes[AXIS];
    const int place = AXIS == 0 ? k : AXIS == 1 ? i : j;
    float total = 0;
    if (place - RADIUS >= axis.low && place + RADIUS < axis.high) return total;
#pragma unroll 1  // few threads are here, and registers are wanted elsewhere
    for (int n = -RADIUS; n <= RADIUS; ++n) {
        if (!axis.layered(place + n)) continue;
        const i64 at = g.memory<AXIS>(k + (AXIS == 0) * n, j + (AXIS == 2) * n, i + (AXIS == 1) * n);
        total = fmaf(S.c[n < 0 ? -n : n], axis.a[place + n] * axis.zeta[at], total);
        if (n > -RADIUS) total = fmaf(n > 0 ? -F.c[n] : F.c[1 - n], axis.half_a[place + n] * axis.psi[at], total);
    }
    return total;
}

template <bool BACK, int AXIS>
__device__ inline float layered(const Grid& g, float bend, int k, int j, int i) {
    return BACK ? bend + returned<AXIS>(g, k, j, i) : stretched<AXIS>(g, bend, k, j, i);
}

// Step once: the older fields become the newer ones. To sense, the sums of a gradient are in their place, to which
// `factor` times what the step back is owed for the other wave is added. Above a free surface vertical stresses are those
// below with their sign changed.
template <bool BACK, bool SENSE>
__device__ inline void sweep(const Grid& g, const Waves& wave, float* __restrict__ p_old, float* __restrict__ r_old,
                             float* __restrict__ third, const float* __restrict__ other_p,
                             const float* __restrict__ other_r, float factor, int mirrored, int chunk) {
    __shared__ float tile[2][HIGH][WIDE];
    const int i_0 = g.axes[1].first + blockIdx.x * BLOCK_X, j_0 = BESIDE + blockIdx.y * BLOCK_Y;
    const int t_x = threadIdx.x, t_y = threadIdx.y, i = i_0 + t_x, j = j_0 + t_y;
    const bool own = j < g.rows - BESIDE && i < g.axes[1].last;
    const int begin = RADIUS + blockIdx.z * chunk, end = min(begin + chunk, g.planes - RADIUS);
    const auto stress_at = [&](int k) -> float {
        if (!own) return 0;
        return mirrored && k < RADIUS ? -wave.vertical(g.cell(2 * RADIUS - k, j, i)) : wave.vertical(g.cell(k, j, i));
    };
    float q[QUEUE];  // from k - RADIUS to k + RADIUS
#pragma unroll
    for (int n = 1; n < QUEUE; ++n) q[n] = stress_at(begin - RADIUS - 1 + n);
    for (int k = begin; k < end; ++k) {
        float(&plane)[HIGH][WIDE] = tile[k & 1];
#pragma unroll
        for (int y = t_y; y < HIGH; y += BLOCK_Y) {
#pragma unroll
            for (int x = t_x; x < WIDE; x += BLOCK_X) {
                const int row = j_0 - BESIDE + y, column = i_0 - RADIUS + x;
                plane[y][x] = row < g.rows && column < g.pitch ? __ldg(wave.p + g.cell(k, row, column)) : 0;
            }
        }
#pragma unroll
        for (int n = 0; n < QUEUE - 1; ++n) q[n] = q[n + 1];
        q[QUEUE - 1] = stress_at(k + RADIUS);
        const i64 here = own ? g.cell(k, j, i) : 0;
        const float hard = __ldg(wave.hard + here), share = __ldg(wave.share + here), strain = __ldg(wave.r + here);
        const float before = p_old[here], r_before = r_old[here];
        __syncthreads();
        if (!own) continue;
        const float* at = &plane[BESIDE + t_y][RADIUS + t_x];
        float z = S.c[0] * q[RADIUS], x = S.c[0] * at[0], y = x;
#pragma unroll
        for (int n = 1; n <= RADIUS; ++n) {
            z = fmaf(S.c[n], q[RADIUS - n] + q[RADIUS + n], z);
            x = fmaf(S.c[n], at[-n] + at[n], x);
            if (AXES == 3) y = fmaf(S.c[n], at[-n * WIDE] + at[n * WIDE], y);
        }
        const float depth = g.axes[0].w * layered<BACK, 0>(g, z, k, j, i);
        float beside = g.axes[1].w * layered<BACK, 1>(g, x, k, j, i);
        if (AXES == 3) beside = fmaf(g.axes[LAST].w, layered<BACK, LAST>(g, y, k, j, i), beside);
        if (SENSE) {
            const float other = other_r[here], stress = other_p[here], across = stress / hard - share * other;
            const float vertical = fmaf(share, stress, __ldg(wave.excess + here) * other);
            p_old[here] = fmaf(factor, beside * across, before);
            r_old[here] = fmaf(factor, fmaf(beside, other, depth * across), r_before);
            third[here] = fmaf(factor, fmaf(beside, stress, depth * vertical), third[here]);
        } else {
            p_old[here] = fmaf(hard, fmaf(share, depth, beside), at[0] + at[0] - before);
            r_old[here] = (strain + strain - r_before) + depth;
        }
    }
}

// Take a value of an axis's memory further: zeta of what is differentiated, or else psi.
template <int AXIS>
__device__ inline void recall(const Grid& g, const Waves& wave, u32 number, int back, int whole) {
    const Axis& axis = g.axes[AXIS];
    int k, j, i;
    if (!remembered<AXIS>(g, number, k, j, i)) return;
    const int place = AXIS == 0 ? k : AXIS == 1 ? i : j;
    const i64 here = g.cell(k, j, i), stride = g.stride<AXIS>(), at = g.memory<AXIS>(k, j, i);
    if (whole) {
        axis.zeta[at] = fmaf(axis.b[place], axis.zeta[at], wave.stress<AXIS>(here));
        return;
    }
    float flux = 0, gain = 1;
    if (back) {
        flux = wave.stress<AXIS>(here - stride) - wave.stress<AXIS>(here) - axis.a[place] * axis.zeta[at];
        if (axis.layered(place - 1)) {
            const i64 last = g.memory<AXIS>(k - (AXIS == 0), j - (AXIS == 2), i - (AXIS == 1));
            flux = fmaf(axis.a[place - 1], axis.zeta[last], flux);
        }
    } else {
        gain = axis.half_a[place];
#pragma unroll
        for (int n = 1; n <= RADIUS; ++n) {
            const float after = wave.stress<AXIS>(here + (n - 1) * stride);
            flux = fmaf(F.c[n], after - wave.stress<AXIS>(here - n * stride), flux);
        }
    }
    axis.psi[at] = fmaf(axis.half_b[place], axis.psi[at], gain * flux);
}

#define ARGUMENTS                                                                                               \
    const u32 *__restrict__ table, const float *__restrict__ ab, float *__restrict__ pml, float w_z, float w_x, \
        float w_y, const float *__restrict__ p, const float *__restrict__ r, const float *__restrict__ hard,    \
        const float *__restrict__ share, const float *__restrict__ excess
#define SWEPT                                                                                      \
    ARGUMENTS, float *__restrict__ p_old, float *__restrict__ r_old, float *__restrict__ third,    \
        const float *__restrict__ other_p, const float *__restrict__ other_r, float factor, int mirrored, int chunk
#define SWEEP(BACK, SENSE)                                                                                           \
    sweep<BACK, SENSE>(grid_of(table, ab, pml, w_z, w_x, w_y), {p, r, hard, share, excess}, p_old, r_old, third, other_p, \
                       other_r, factor, mirrored, chunk)

// A thread a value, a row of thread blocks an axis.
extern "C" __global__ void remember(ARGUMENTS, int back, int whole) {
    const Grid g = grid_of(table, ab, pml, w_z, w_x, w_y);
    const Waves wave = {p, r, hard, share, excess};
    const u32 number = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.y == 0) return recall<0>(g, wave, number, back, whole);
    if (blockIdx.y == 1) return recall<1>(g, wave, number, back, whole);
    recall<LAST>(g, wave, number, back, whole);
}

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y) advance(SWEPT) { SWEEP(false, false); }

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y) retreat(SWEPT) { SWEEP(true, false); }

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y) sense(SWEPT) { SWEEP(true, true); }
