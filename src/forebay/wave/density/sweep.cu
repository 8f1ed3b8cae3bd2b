// Waves in variable density: the twins of cpu.py; propagator.py says what is computed.
//
// A thread owns a point across the first axis and marches along it, with the fluxes along it in registers. Those along
// the other axes are computed once for a thread block, in shared memory, and what is read for them comes from the near
// cache. Layers take psi, and on the way back zeta, further in launches of their own, which have a thread for each value
// of the memory: so fluxes that several thread blocks compute find it as it is to be.
//
// AXES and RADIUS, of the stencil, are defined from outside, and so are BLOCK_X and BLOCK_Y: threads of a thread block
// along rows, and across them in three dimensions.

#include "../sweeps/axes.cuh"
#include "stencil.cuh"

// Give the sum of differences of a field around the half point after a point, with zeta where it is differentiated too.
template <int AXIS>
__device__ inline float difference(const Grid& g, const float* __restrict__ p, int k, int j, int i, bool back) {
    const Axis& axis = g.axes[AXIS];
    const i64 stride = g.stride<AXIS>();
    const int place = AXIS == 0 ? k : AXIS == 1 ? i : j;
    p += g.cell(k, j, i);
    float total = 0;
#pragma unroll
    for (int n = 0; n < RADIUS; ++n) {
        total = fmaf(S.c[n], __ldg(p + (1 + n) * stride) - __ldg(p - n * stride), total);
    }
    if (back && (place + RADIUS >= axis.high || place - RADIUS < axis.low)) {
        for (int n = 1 - RADIUS; n <= RADIUS; ++n) {
            if (!axis.layered(place + n)) continue;
            const i64 at = g.memory<AXIS>(k + (AXIS == 0) * n, j + (AXIS == 2) * n, i + (AXIS == 1) * n);
            total = fmaf(n > 0 ? S.c[n - 1] : -S.c[-n], axis.zeta[at], total);
        }
    }
    return total;
}

// Give the flux there, without what layers remember; there is none out of the computed points.
template <int AXIS>
__device__ inline float plain(const Grid& g, const float* __restrict__ p, const float* __restrict__ rho, int k, int j,
                              int i, bool back = false) {
    if (!g.axes[AXIS].crossed(AXIS == 0 ? k : AXIS == 1 ? i : j)) return 0;
    const i64 at = g.cell(k, j, i);
    const float light = g.axes[AXIS].w * inverse(__ldg(rho + at) + __ldg(rho + at + g.stride<AXIS>()));
    return light * difference<AXIS>(g, p, k, j, i, back);
}

// Give the flux there as layers leave it.
template <int AXIS>
__device__ inline float flux(const Grid& g, const float* __restrict__ p, const float* __restrict__ rho, int k, int j,
                             int i, bool back) {
    const float value = plain<AXIS>(g, p, rho, k, j, i, back);
    const bool layered = g.axes[AXIS].layered(AXIS == 0 ? k : AXIS == 1 ? i : j);
    return layered ? value + g.axes[AXIS].psi[g.memory<AXIS>(k, j, i)] : value;
}

// Take zeta of a value further, and give the value as the layers leave it.
template <int AXIS>
__device__ inline float stretched(const Grid& g, float value, int k, int j, int i) {
    const Axis& axis = g.axes[AXIS];
    const int place = AXIS == 0 ? k : AXIS == 1 ? i : j;
    if (!axis.layered(place)) return value;
    float& zeta = axis.zeta[g.memory<AXIS>(k, j, i)];
    zeta = fmaf(axis.b[place], zeta, axis.a[place] * value);
    return value + zeta;
}

// Step once: `old` becomes the newer field. To sense, `old` and `stiff` are the sums of a gradient, to which `factor`
// times what the step back from `p` owes is added. Above a free surface fluxes are those below.
template <bool BACK, bool SENSE>
__device__ inline void sweep(const Grid& g, const float* __restrict__ p, float* __restrict__ old,
                             float* __restrict__ stiff, const float* __restrict__ rho, const float* __restrict__ other,
                             float factor, int mirrored, int chunk) {
    __shared__ float along[BLOCK_Y][BLOCK_X + BOTH];
    __shared__ float across[AXES == 3 ? BLOCK_Y + BOTH : 1][BLOCK_X];
    const int i_0 = g.axes[1].first + blockIdx.x * BLOCK_X, j_0 = AXES == 3 ? RADIUS + blockIdx.y * BLOCK_Y : 0;
    const int t_x = threadIdx.x, t_y = threadIdx.y, i = i_0 + t_x, j = j_0 + t_y;
    const bool in_rows = AXES == 2 || j < g.rows - RADIUS, in_columns = i < g.axes[1].last;
    const int begin = RADIUS + blockIdx.z * chunk, end = min(begin + chunk, g.planes - RADIUS);
    const auto flux_down = [&](int k) {
        return in_rows && in_columns ? flux<0>(g, p, rho, mirrored && k < RADIUS ? BOTH - 1 - k : k, j, i, BACK) : 0;
    };
    float down[BOTH];  // the fluxes from k - RADIUS to k + RADIUS - 1
#pragma unroll
    for (int n = 1; n < BOTH; ++n) down[n] = flux_down(begin - RADIUS - 1 + n);
    for (int k = begin; k < end; ++k) {
#pragma unroll
        for (int n = 0; n < BOTH - 1; ++n) down[n] = down[n + 1];
        down[BOTH - 1] = flux_down(k + RADIUS - 1);
        __syncthreads();
        for (int n = t_x; n < BLOCK_X + BOTH - 1; n += BLOCK_X) {
            along[t_y][n] = in_rows ? flux<1>(g, p, rho, k, j, i_0 - RADIUS + n, BACK) : 0;
        }
        for (int n = t_y; AXES == 3 && n < BLOCK_Y + BOTH - 1; n += BLOCK_Y) {
            across[n][t_x] = in_columns ? flux<LAST>(g, p, rho, k, j_0 - RADIUS + n, i, BACK) : 0;
        }
        __syncthreads();
        if (!in_rows || !in_columns) continue;
        float z = 0, y = 0, x = 0;
#pragma unroll
        for (int n = 0; n < RADIUS; ++n) {
            z = fmaf(S.c[n], down[RADIUS + n] - down[RADIUS - 1 - n], z);
            x = fmaf(S.c[n], along[t_y][t_x + RADIUS + n] - along[t_y][t_x + RADIUS - 1 - n], x);
            if (AXES == 3) y = fmaf(S.c[n], across[t_y + RADIUS + n][t_x] - across[t_y + RADIUS - 1 - n][t_x], y);
        }
        z *= 0.5f * g.axes[0].w, x *= 0.5f * g.axes[1].w, y *= AXES == 3 ? 0.5f * g.axes[LAST].w : 0;
        if (!BACK) {
            z = stretched<0>(g, z, k, j, i), x = stretched<1>(g, x, k, j, i);
            if (AXES == 3) y = stretched<LAST>(g, y, k, j, i);
        }
        const float out = x + z + y;
        const i64 here = g.cell(k, j, i);
        if (SENSE) {
            float share = down[RADIUS] * plain<0>(g, other, rho, k, j, i);
            share = fmaf(down[RADIUS - 1], plain<0>(g, other, rho, k - 1, j, i), share);
            share = fmaf(along[t_y][t_x + RADIUS], plain<1>(g, other, rho, k, j, i), share);
            share = fmaf(along[t_y][t_x + RADIUS - 1], plain<1>(g, other, rho, k, j, i - 1), share);
            if (AXES == 3) {
                share = fmaf(across[t_y + RADIUS][t_x], plain<LAST>(g, other, rho, k, j, i), share);
                share = fmaf(across[t_y + RADIUS - 1][t_x], plain<LAST>(g, other, rho, k, j - 1, i), share);
            }
            old[here] = fmaf(factor * other[here], out, old[here]);
            stiff[here] = fmaf(0.5f * factor, share, stiff[here]);
        } else {
            const float centre = __ldg(p + here), after = fmaf(stiff[here], out, centre + centre - old[here]);
            old[here] = after;
            if (k <= mirrored && k > RADIUS) old[here - 2 * (k - RADIUS) * g.stride<0>()] = -after;
        }
    }
}

// Take a value of an axis's memory further: zeta of the field, or else psi of the flux.
template <int AXIS>
__device__ inline void recall(const Grid& g, const float* __restrict__ p, const float* __restrict__ rho, u32 number,
                              int back, int whole) {
    const Axis& axis = g.axes[AXIS];
    int k, j, i;
    if (!remembered<AXIS>(g, number, k, j, i)) return;
    const int place = AXIS == 0 ? k : AXIS == 1 ? i : j;
    if (whole) {
        stretched<AXIS>(g, p[g.cell(k, j, i)], k, j, i);
    } else {
        float& psi = axis.psi[g.memory<AXIS>(k, j, i)];
        psi = fmaf(axis.half_b[place], psi, axis.half_a[place] * plain<AXIS>(g, p, rho, k, j, i, back));
    }
}

#define ARGUMENTS                                                                                               \
    const u32 *__restrict__ table, const float *__restrict__ ab, float *__restrict__ pml, float w_z, float w_x, \
        float w_y, const float *__restrict__ p, const float *__restrict__ rho
#define SWEPT \
    ARGUMENTS, float *__restrict__ old, float *__restrict__ stiff, const float *__restrict__ other, float factor, \
        int mirrored, int chunk

// A thread a value, a row of thread blocks an axis.
extern "C" __global__ void remember(ARGUMENTS, int back, int whole) {
    const Grid g = grid_of(table, ab, pml, w_z, w_x, w_y);
    const u32 number = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.y == 0) return recall<0>(g, p, rho, number, back, whole);
    if (blockIdx.y == 1) return recall<1>(g, p, rho, number, back, whole);
    recall<LAST>(g, p, rho, number, back, whole);
}

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y) advance(SWEPT) {
    sweep<false, false>(grid_of(table, ab, pml, w_z, w_x, w_y), p, old, stiff, rho, other, factor, mirrored, chunk);
}

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y) retreat(SWEPT) {
    sweep<true, false>(grid_of(table, ab, pml, w_z, w_x, w_y), p, old, stiff, rho, other, factor, mirrored, chunk);
}

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y) sense(SWEPT) {
    sweep<true, true>(grid_of(table, ab, pml, w_z, w_x, w_y), p, old, stiff, rho, other, factor, mirrored, chunk);
}
