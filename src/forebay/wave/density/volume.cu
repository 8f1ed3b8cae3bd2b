// Waves in variable density in three dimensions: a step of sweep.cu, by words of four points.
//
// A warp owns a row of words, of which the outer ones only tell others what they know, and a thread block as many rows as
// it has warps; they march along the first axis. Fields from the current plane to the farthest that is needed, and the
// fluxes along the march, are in registers. Fluxes along rows are told by the threads beside. Those across rows are
// computed a plane ahead and handed on in shared memory, so that a barrier a plane is enough. All that is read comes into
// shared memory while what was read before is computed.
//
// What is defined from outside, ../sweeps/volume.cuh says.

#include "../sweeps/volume.cuh"
#include "stencil.cuh"

constexpr int OUTER = 2, FAR = BOTH - 1;
constexpr int HIGH = BLOCK_Y + 2 * FAR, HEAVY = BLOCK_Y + BOTH, FLUXES = BLOCK_Y + FAR, TILE = (HIGH + HEAVY) * LANES;
constexpr int OLD = 0, STIFF = THREADS, AHEAD = 2 * THREADS, RHO = 3 * THREADS, OWN = 4 * THREADS;

__device__ inline float4 light_of(float w, float4 rho, float4 next) {
    return make_float4(w * inverse(rho.x + next.x), w * inverse(rho.y + next.y), w * inverse(rho.z + next.z),
                       w * inverse(rho.w + next.w));
}

// Give the sum of differences of words around the half point after the first: `at` tells of each.
template <typename At>
__device__ inline float4 difference(const At& at) {
    float4 total = {};
#pragma unroll
    for (int n = 0; n < RADIUS; ++n) total = fused(S.c[n], minus(at(1 + n), at(-n)), total);
    return total;
}

// Give the flux across rows of a word at a place that has this difference, as layers leave it that are near.
template <int AXIS, bool BACK>
__device__ inline float4 flux_of(const Grid& g, u32 near, float4 light, float4 between, int k, int j, int i) {
    const Axis& axis = g.axes[AXIS];
    const int place = AXIS == 0 ? k : j;
    if (!(near & ON<AXIS>)) return times(light, between);
    if (BACK && (place + RADIUS >= axis.high || place - RADIUS < axis.low)) {
#pragma unroll 1
        for (int n = 1 - RADIUS; n <= RADIUS; ++n) {
            if (!axis.layered(place + n)) continue;
            const i64 at = g.memory<AXIS>(k + (AXIS == 0) * n, j + (AXIS == 2) * n, i);
            between = fused(n > 0 ? S.c[n - 1] : -S.c[-n], kept_at(axis.zeta, at), between);
        }
    }
    const float4 flux = times(light, between);
    return axis.layered(place) ? plus(flux, kept_at(axis.psi, g.memory<AXIS>(k, j, i))) : flux;
}

// Take zeta of a word further, and give the word as the layers across rows leave it.
template <int AXIS>
__device__ inline float4 stretched(const Grid& g, float4 value, int k, int j, int i) {
    const Axis& axis = g.axes[AXIS];
    const int place = AXIS == 0 ? k : j;
    if (!axis.layered(place)) return value;
    float4& zeta = kept_at(axis.zeta, g.memory<AXIS>(k, j, i));
    const float4 later = fused(axis.b[place], zeta, times(axis.a[place], value));
    zeta = later;
    return plus(value, later);
}

// Give the sums of differences along a row, around the half point after each point of a word, or before it.
template <int BEFORE>
__device__ inline float4 along(const float (&row)[12]) {
    float total[4] = {};
#pragma unroll
    for (int t = 0; t < 4; ++t) {
#pragma unroll
        for (int n = 0; n < RADIUS; ++n) {
            total[t] = fmaf(S.c[n], row[5 - BEFORE + t + n] - row[4 - BEFORE + t - n], total[t]);
        }
    }
    return make_float4(total[0], total[1], total[2], total[3]);
}

// Give the derivative of the fluxes along a row, where layers leave those as they are to be.
template <bool BACK>
__device__ inline float4 bend_of(const Axis& axis, const Along& layers, u32 row_number, float4 p, float4 rho, float w,
                                 u32 crossed) {
    if (BACK) {
        float* points[] = {&p.x, &p.y, &p.z, &p.w};
        layers.each(row_number, [&](int t, u32 at) { *points[t] += axis.zeta[at]; });
    }
    float row[12];
    tell(p, row);
    const float next = __shfl_down_sync(ALL, rho.x, 1, LANES);
    float4 flux = times(light_of(w, rho, make_float4(rho.y, rho.z, rho.w, next)), along<0>(row));
    float* points[] = {&flux.x, &flux.y, &flux.z, &flux.w};
    layers.each(row_number, [&](int t, u32 at) { *points[t] += axis.psi[at]; });
    flux = make_float4(crossed & 1 ? flux.x : 0, crossed & 2 ? flux.y : 0, crossed & 4 ? flux.z : 0,
                       crossed & 8 ? flux.w : 0);
    tell(flux, row);
    return times(0.5f * w, along<1>(row));
}

// March through planes: `old` becomes the newer field. Above a free surface fluxes are those below.
template <bool BACK, bool LAYERED>
__device__ inline void march(const Grid& g, const float4* __restrict__ p, float4* __restrict__ old,
                             const float4* __restrict__ stiff, const float4* __restrict__ rho, int mirrored, int begin,
                             int end, u32 layers) {
#ifdef __CUDA_ARCH__
    extern __shared__ float4 shared[];
#else
    static float4 shared[1 << 14];
#endif
    const int rows = g.rows, words = g.pitch / 4, planes = g.planes, lane = threadIdx.x, t_y = threadIdx.y;
    const int first = g.axes[0].first, last = g.axes[0].last, first_row = g.axes[2].first, last_row = g.axes[2].last;
    const int word = g.axes[1].first / 4 + blockIdx.x * (LANES - 2 * OUTER) + lane - OUTER, i = 4 * word;
    const int j_0 = RADIUS + blockIdx.y * BLOCK_Y, j = j_0 + t_y, plane = rows * words;
    const float w_z = g.axes[0].w, w_x = g.axes[1].w, w_y = g.axes[2].w;
    const bool in_rows = word >= 0 && word < words, live = in_rows && j < rows - RADIUS;
    const int kept = g.axes[1].last - i;
    const bool inner = in_rows && lane >= OUTER && lane < LANES - OUTER && kept > 0, own = inner && live;
    const u32 near = LAYERED ? layers : 0;
    Along along_row = {};
    if (near & ON<1> && live) along_row = Along::of(g.axes[1], i);
    u32 crossed = 0;
    for (int t = 0; t < 4; ++t) crossed |= g.axes[1].crossed(i + t) ? 1u << t : 0;

    float4 *const flux_of_row = shared, *const tiles = flux_of_row + 2 * FLUXES * LANES;
    float4* const mine = tiles + (STAGES + 1) * TILE + t_y * LANES + lane;
    // What is out of the fields is read at their edge, and asked for by nobody.
    const int near_word = max(0, min(word, words - 1));
    const Slot tile_slot(tiles + lane), own_at(mine);
    const auto copy_tile = [&](int k, int slot) {
        const Slot to = tile_slot + slot * TILE;
        const u32 from = k * plane + near_word;
        each_row<HIGH>([&](int n) {
            copy_ahead(to + n * LANES, p + (from + max(0, min(j_0 - FAR + n, rows - 1)) * words));
        });
        each_row<HEAVY>([&](int n) {
            copy_ahead(to + (HIGH + n) * LANES, rho + (from + min(j_0 - RADIUS + n, rows - 1) * words));
        });
    };
    const u32 own_place = min(j, rows - 1) * words + near_word;
    const auto copy_own = [&](int k, int slot) {
        const Slot to = own_at + slot * OWN;
        const u32 from = own_place + k * plane;
        if (k >= begin && own) {
            copy_ahead(to + OLD, old + from);
            copy_ahead(to + STIFF, stiff + from);
        }
        if (k + FAR < planes) copy_ahead(to + AHEAD, p + (from + FAR * plane));
        if (k + RADIUS < planes) copy_ahead(to + RHO, rho + (from + RADIUS * plane));
    };
#pragma unroll
    for (int n = 0; n < STAGES; ++n) {
        const int k = begin - 1 + n;
        if (k + 1 < end) copy_tile(k + 1, n);
        if (k < end) copy_own(k, n);
        end_of_stage();
    }

    const i64 column = static_cast<i64>(j) * words + word;
    const auto at_plane = [&](const float4* field, int k) {
        return live ? __ldg(field + column + static_cast<i64>(max(0, min(k, planes - 1))) * plane) : float4{};
    };
    const auto flux_down = [&](int k, float4 between, float4 heavy, float4 heavier) -> float4 {
        if (k < first || k + 1 >= last || !live) return {};
        return flux_of<0, BACK>(g, near, light_of(w_z, heavy, heavier), between, k, j, i);
    };
    const auto flux_at = [&](int k) -> float4 {
        const int there = mirrored && k < RADIUS ? FAR - k : k;
        const float4 between = difference([&](int n) { return at_plane(p, there + n); });
        return flux_down(there, between, at_plane(rho, there), at_plane(rho, there + 1));
    };
    float4 ahead[BOTH], down[BOTH];  // p from k to k + FAR, and fluxes from k - RADIUS to k + RADIUS - 1
#pragma unroll
    for (int n = 1; n < BOTH; ++n) ahead[n] = at_plane(p, begin - 2 + n);
#pragma unroll
    for (int n = 2; n < BOTH; ++n) down[n] = flux_at(begin - 2 - RADIUS + n);
    float4 heavy = at_plane(rho, begin - 2 + RADIUS), in_x = {};

    int now = 0, next = STAGES, own_slot = 0;
    i64 here = static_cast<i64>(begin - 1) * plane + column;
#pragma unroll 1
    for (int k = begin - 1; k < end; ++k, here += plane) {
        wait_for_stage<STAGES - 1>();
        if (k + STAGES + 1 < end) copy_tile(k + STAGES + 1, next);
        const float4* loaded = mine + own_slot * OWN;
        const float4 heavier = loaded[RHO];
#pragma unroll
        for (int n = 0; n < FAR; ++n) ahead[n] = ahead[n + 1], down[n] = down[n + 1];
        ahead[FAR] = loaded[AHEAD];
        const int lower = k + RADIUS - 1;
        down[FAR] = RADIUS == 1 && mirrored && lower < RADIUS
                        ? flux_at(lower)
                        : flux_down(lower, difference([&](int n) { return ahead[RADIUS - 1 + n]; }), heavy, heavier);
        heavy = heavier;

        if (near && live && k + 2 < end) {  // what the next plane needs of the layers' memory
            const Axis &down_axis = g.axes[0], &row_axis = g.axes[1], &across = g.axes[2];
            if (near & ON<0>) {
                fetch_ahead<0>(g, down_axis.psi, k + RADIUS, j, i);
                fetch_ahead<0>(g, down_axis.zeta, k + (BACK ? BOTH : 1), j, i);
            }
            if (near & ON<2>) {
                each_row<FLUXES>([&](int n) { fetch_ahead<2>(g, across.psi, k + 2, j_0 - RADIUS + n, i); });
                fetch_ahead<2>(g, across.zeta, k + 1 + BACK, j, i);
            }
            along_row.fetch(row_axis.psi, (k + 2) * rows + j);
            along_row.fetch(row_axis.zeta, (k + 1 + BACK) * rows + j);
        }
        float4 next_x = {};
        if (k + 1 < end) {
            const float4* tile = tiles + now * TILE + lane;
            const float4* tile_rho = tile + HIGH * LANES;
            float4* out = flux_of_row + (k + 1 & 1) * FLUXES * LANES + lane;
            each_row<FLUXES>([&](int n) {
                const int row = j_0 - RADIUS + n;
                float4 flux = {};
                if (row >= first_row && row + 1 < last_row && inner) {
                    const float4* at = tile + (n + RADIUS - 1) * LANES;
                    const float4 light = light_of(w_y, tile_rho[n * LANES], tile_rho[(n + 1) * LANES]);
                    const float4 between = difference([&](int m) { return at[m * LANES]; });
                    flux = flux_of<2, BACK>(g, near, light, between, k + 1, row, i);
                }
                out[n * LANES] = flux;
            });
            const float4 rho_here = tile_rho[(t_y + RADIUS) * LANES];
            next_x = bend_of<BACK>(g.axes[1], along_row, (k + 1) * rows + j, ahead[1], rho_here, w_x, crossed);
        }
        if (k >= begin && own) {
            const float4* fluxes = flux_of_row + (k & 1) * FLUXES * LANES + (t_y + RADIUS - 1) * LANES + lane;
            float4 in_z = times(0.5f * w_z, difference([&](int n) { return down[RADIUS - 1 + n]; }));
            float4 in_y = times(0.5f * w_y, difference([&](int n) { return fluxes[n * LANES]; }));
            if (!BACK) {
                if (near & ON<0>) in_z = stretched<0>(g, in_z, k, j, i);
                if (near & ON<2>) in_y = stretched<2>(g, in_y, k, j, i);
                const Axis& axis = g.axes[1];
                float* points[] = {&in_x.x, &in_x.y, &in_x.z, &in_x.w};
                along_row.each(k * rows + j, [&](int t, u32 at) {
                    const float zeta = fmaf(axis.b[i + t], axis.zeta[at], axis.a[i + t] * *points[t]);
                    axis.zeta[at] = zeta;
                    *points[t] += zeta;
                });
            }
            const float4 out = plus(plus(in_x, in_z), in_y), centre = ahead[0];
            const float4 newer = fused(loaded[STIFF], out, minus(plus(centre, centre), loaded[OLD]));
            const float4 after = put(old + here, newer, kept);
            if (k <= mirrored && k > RADIUS) old[here - 2 * static_cast<i64>(k - RADIUS) * plane] = times(-1.0f, after);
        }
        in_x = next_x;
        if (k + STAGES < end) copy_own(k + STAGES, own_slot);  // where this plane's words were
        end_of_stage();
        now = now < STAGES ? now + 1 : 0;
        next = next < STAGES ? next + 1 : 0;
        own_slot = own_slot + 1 < STAGES ? own_slot + 1 : 0;
    }
}

#define SWEPT                                                                                                   \
    const u32 *__restrict__ table, const float *__restrict__ ab, float *__restrict__ pml, float w_z, float w_x, \
        float w_y, const float4 *__restrict__ p, const float4 *__restrict__ rho, float4 *__restrict__ old,      \
        const float4 *__restrict__ stiff, int mirrored, int chunk

template <bool BACK>
__device__ inline void sweep(SWEPT) {
    __shared__ Grid g;
    if (threadIdx.x == 0 && threadIdx.y == 0) g = grid_of(table, ab, pml, w_z, w_x, w_y);
    __syncthreads();
    const int begin = RADIUS + blockIdx.z * chunk, end = min(begin + chunk, g.planes - RADIUS);
    if (begin >= end) return;
    const u32 near = reached<OUTER>(g, begin, end);
    if (near) return march<BACK, true>(g, p, old, stiff, rho, mirrored, begin, end, near);
    march<BACK, false>(g, p, old, stiff, rho, mirrored, begin, end, 0);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) advance(SWEPT) {
    sweep<false>(table, ab, pml, w_z, w_x, w_y, p, rho, old, stiff, mirrored, chunk);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) retreat(SWEPT) {
    sweep<true>(table, ab, pml, w_z, w_x, w_y, p, rho, old, stiff, mirrored, chunk);
}
