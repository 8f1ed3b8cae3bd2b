// VTI waves in three dimensions: a step of sweep.cu, by words of four points.
//
// A thread block has a row of words for each of its warps, of which the outer ones are read only, and marches along the
// first axis. The vertical stresses around the current plane are in registers; the horizontal ones of it, with the rows
// around, and all that is read at a point come into shared memory while what was read before is computed.
//
// What is defined from outside, ../sweeps/volume.cuh says.

#include "../acoustic/words.cuh"
#include "../sweeps/volume.cuh"

constexpr int OUTER = 1, HIGH = BLOCK_Y + 2 * RADIUS, TILE = HIGH * LANES;
// A thread's own words: those of a plane ahead, of which the vertical stress is made, and those of the current one.
constexpr int P_AHEAD = 0, R_AHEAD = THREADS, SHARE_AHEAD = 2 * THREADS, EXCESS_AHEAD = 3 * THREADS;
constexpr int P_OLD = 4 * THREADS, R_OLD = 5 * THREADS, R = 6 * THREADS, HARD = 7 * THREADS, SHARE = 8 * THREADS;
constexpr int OWN = 9 * THREADS;

struct Waves {
    const float4 *__restrict__ p, *__restrict__ r, *__restrict__ hard, *__restrict__ share, *__restrict__ excess;
};

__device__ inline float4 vertical(float4 share, float4 p, float4 excess, float4 r) {
    return fused(share, p, times(excess, r));
}

// Give a second derivative across rows as the layers leave it, which remember that on the way forward.
template <bool BACK, int AXIS>
__device__ inline float4 layered(const Grid& g, float4 bend, int k, int j, int i) {
    const Axis& axis = g.axes[AXIS];
    const int place = AXIS == 0 ? k : j;
    const auto memory = [&](int n) { return g.memory<AXIS>(k + (AXIS == 0) * n, j + (AXIS == 2) * n, i); };
    if (BACK) {
        if (place - RADIUS >= axis.low && place + RADIUS < axis.high) return bend;
        float4 total = {};
#pragma unroll 1
        for (int n = -RADIUS; n <= RADIUS; ++n) {
            if (!axis.layered(place + n)) continue;
            const i64 at = memory(n);
            total = fused(S.c[n < 0 ? -n : n], times(axis.a[place + n], kept_at(axis.zeta, at)), total);
            if (n == -RADIUS) continue;
            total = fused(n > 0 ? -F.c[n] : F.c[1 - n], times(axis.half_a[place + n], kept_at(axis.psi, at)), total);
        }
        return plus(bend, total);
    }
    if (!axis.layered(place)) return bend;
    const float4 ahead = axis.layered(place + 1) ? kept_at(axis.psi, memory(1)) : float4{};
    bend = plus(bend, minus(ahead, kept_at(axis.psi, memory(0))));
    float4& zeta = kept_at(axis.zeta, memory(0));
    const float4 later = fused(axis.b[place], zeta, times(axis.a[place], bend));
    zeta = later;
    return plus(bend, later);
}

// Do so along rows, for the points that are the thread's own.
__device__ inline float4 layered_along(const Grid& g, float4 bend, int k, int j, int i, bool own) {
    const Axis& axis = g.axes[1];
    if (!own) return bend;
    const float bends[4] = {bend.x, bend.y, bend.z, bend.w};
    return each([&](int t) {
        if (!axis.layered(i + t)) return bends[t];
        const i64 at = g.memory<1>(k, j, i + t);
        const float ahead = axis.layered(i + t + 1) ? axis.psi[g.memory<1>(k, j, i + t + 1)] : 0;
        const float value = bends[t] + (ahead - axis.psi[at]);
        const float zeta = fmaf(axis.b[i + t], axis.zeta[at], axis.a[i + t] * value);
        axis.zeta[at] = zeta;
        return value + zeta;
    });
}

// Give what the layers along rows change on the way back, of what the threads of a row have of them.
__device__ inline float4 returned_along(const Grid& g, int k, int j, int i, bool live) {
    const Axis& axis = g.axes[1];
    const auto kept = [&](const float* factors, const float* memory) {
        return each([&](int t) {
            return live && axis.layered(i + t) ? factors[i + t] * memory[g.memory<1>(k, j, i + t)] : 0;
        });
    };
    float zeta[12], psi[12];
    tell(kept(axis.a, axis.zeta), zeta);
    tell(kept(axis.half_a, axis.psi), psi);
    return each([&](int t) {
        float total = S.c[0] * zeta[4 + t];
#pragma unroll
        for (int n = 1; n <= RADIUS; ++n) {
            total = fmaf(S.c[n], zeta[4 + t - n] + zeta[4 + t + n], total);
            total = fmaf(F.c[n], psi[5 + t - n] - psi[4 + t + n], total);
        }
        return total;
    });
}

template <int k>
__device__ inline void add_neighbours(const float4* at, const float (&row)[12], const float4 (&q)[QUEUE], float4& in_z,
                                      float4& in_y, float4& in_x) {
    if constexpr (k <= RADIUS) {
        in_z = fused(S.c[k], plus(q[RADIUS - k], q[RADIUS + k]), in_z);
        in_y = fused(S.c[k], plus(at[-k * LANES], at[k * LANES]), in_y);
        in_x = fused(S.c[k], along_row<k>(row), in_x);
        add_neighbours<k + 1>(at, row, q, in_z, in_y, in_x);
    }
}

// March through planes: the older fields become the newer ones. Above a free surface vertical stresses are those below
// with their sign changed.
template <bool BACK, bool LAYERED>
__device__ inline void march(const Grid& g, const Waves& wave, float4* __restrict__ p_old, float4* __restrict__ r_old,
                             int mirrored, int begin, int end) {
#ifdef __CUDA_ARCH__
    extern __shared__ float4 shared[];
#else
    static float4 shared[1 << 14];
#endif
    const int rows = g.rows, words = g.pitch / 4, lane = threadIdx.x, t_y = threadIdx.y, plane = rows * words;
    const int word = g.axes[1].first / 4 + blockIdx.x * (LANES - 2 * OUTER) + lane - OUTER, i = 4 * word;
    const int j_0 = RADIUS + blockIdx.y * BLOCK_Y, j = j_0 + t_y, kept = g.axes[1].last - i;
    const bool in_rows = word >= 0 && word < words, live = in_rows && j < rows - RADIUS;
    const bool own = live && lane >= OUTER && lane < LANES - OUTER && kept > 0;
    const float w_z = g.axes[0].w, w_x = g.axes[1].w, w_y = g.axes[2].w;
    const bool along = LAYERED && g.axes[1].reached(i - 4 * (lane + 1), i + 4 * (LANES - lane + 1));

    float4 *const tiles = shared, *const mine = tiles + (STAGES + 1) * TILE + t_y * LANES + lane;
    const i64 column = static_cast<i64>(j) * words + word;
    const auto copy_tile = [&](int k, int slot) {
        if (!in_rows) return;
#pragma unroll
        for (int n = t_y; n < HIGH; n += BLOCK_Y) {
            const int row = j_0 - RADIUS + n;
            const float4* from = wave.p + static_cast<i64>(k) * plane + row * words + word;
            if (row < rows) copy_ahead(tiles + slot * TILE + n * LANES + lane, from);
        }
    };
    const auto copy_own = [&](int k, int slot) {
        if (!own) return;
        float4* to = mine + slot * OWN;
        const i64 from = static_cast<i64>(k) * plane + column, ahead = from + static_cast<i64>(RADIUS) * plane;
        copy_ahead(to + P_AHEAD, wave.p + ahead), copy_ahead(to + R_AHEAD, wave.r + ahead);
        copy_ahead(to + SHARE_AHEAD, wave.share + ahead), copy_ahead(to + EXCESS_AHEAD, wave.excess + ahead);
        copy_ahead(to + P_OLD, p_old + from), copy_ahead(to + R_OLD, r_old + from);
        copy_ahead(to + R, wave.r + from), copy_ahead(to + HARD, wave.hard + from);
        copy_ahead(to + SHARE, wave.share + from);
    };
#pragma unroll
    for (int n = 0; n < STAGES; ++n) {
        if (begin + n < end) copy_tile(begin + n, n), copy_own(begin + n, n);
        end_of_stage();
    }
    float4 q[QUEUE] = {};  // from k - RADIUS to k + RADIUS
    if (own) {
#pragma unroll
        for (int n = 1; n < QUEUE; ++n) {
            const int k = begin - RADIUS - 1 + n;
            const bool above = mirrored && k < RADIUS;
            const i64 at = static_cast<i64>(above ? 2 * RADIUS - k : k) * plane + column;
            const float4 stress = vertical(__ldg(wave.share + at), __ldg(wave.p + at), __ldg(wave.excess + at),
                                           __ldg(wave.r + at));
            q[n] = above ? times(-1.0f, stress) : stress;
        }
    }

    int now = 0, next = STAGES, own_slot = 0;
    i64 here = static_cast<i64>(begin) * plane + column;
#pragma unroll UNROLL
    for (int k = begin; k < end; ++k, here += plane) {
        wait_for_stage<STAGES - 1>();
        if (k + STAGES < end) copy_tile(k + STAGES, next);
        const float4* loaded = mine + own_slot * OWN;
#pragma unroll
        for (int n = 0; n < QUEUE - 1; ++n) q[n] = q[n + 1];
        q[QUEUE - 1] = vertical(loaded[SHARE_AHEAD], loaded[P_AHEAD], loaded[EXCESS_AHEAD], loaded[R_AHEAD]);
        const float4* at = tiles + now * TILE + (t_y + RADIUS) * LANES + lane;
        const float4 c = at[0], left = at[-1], right = at[1];
        const float row[12] = {left.x, left.y, left.z,  left.w,  c.x,     c.y,
                               c.z,    c.w,    right.x, right.y, right.z, right.w};
        float4 in_z = times(S.c[0], q[RADIUS]), in_x = times(S.c[0], c), in_y = in_x;
        add_neighbours<1>(at, row, q, in_z, in_y, in_x);
        if (BACK && along) in_x = plus(in_x, returned_along(g, k, j, i, live));
        if (!BACK && along) in_x = layered_along(g, in_x, k, j, i, own);
        if (own) {
            if (LAYERED) in_z = layered<BACK, 0>(g, in_z, k, j, i), in_y = layered<BACK, 2>(g, in_y, k, j, i);
            const float4 depth = times(w_z, in_z), beside = fused(w_y, in_y, times(w_x, in_x)), r = loaded[R];
            const float4 both = fused(loaded[SHARE], depth, beside);
            put(p_old + here, fused(loaded[HARD], both, minus(plus(c, c), loaded[P_OLD])), kept);
            put(r_old + here, plus(minus(plus(r, r), loaded[R_OLD]), depth), kept);
        }
        if (k + STAGES < end) copy_own(k + STAGES, own_slot);  // where this plane's words were
        end_of_stage();
        now = now < STAGES ? now + 1 : 0;
        next = next < STAGES ? next + 1 : 0;
        own_slot = own_slot + 1 < STAGES ? own_slot + 1 : 0;
    }
}

#define SWEPT                                                                                                   \
    const u32 *__restrict__ table, const float *__restrict__ ab, float *__restrict__ pml, float w_z, float w_x, \
        float w_y, const float4 *__restrict__ p, const float4 *__restrict__ r, const float4 *__restrict__ hard, \
        const float4 *__restrict__ share, const float4 *__restrict__ excess, float4 *__restrict__ p_old,        \
        float4 *__restrict__ r_old, int mirrored, int chunk

template <bool BACK>
__device__ inline void sweep(SWEPT) {
    __shared__ Grid g;
    if (threadIdx.x == 0 && threadIdx.y == 0) g = grid_of(table, ab, pml, w_z, w_x, w_y);
    __syncthreads();
    const Waves wave = {p, r, hard, share, excess};
    const int begin = RADIUS + blockIdx.z * chunk, end = min(begin + chunk, g.planes - RADIUS);
    if (reached<OUTER>(g, begin, end)) return march<BACK, true>(g, wave, p_old, r_old, mirrored, begin, end);
    march<BACK, false>(g, wave, p_old, r_old, mirrored, begin, end);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) advance(SWEPT) {
    sweep<false>(table, ab, pml, w_z, w_x, w_y, p, r, hard, share, excess, p_old, r_old, mirrored, chunk);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) retreat(SWEPT) {
    sweep<true>(table, ab, pml, w_z, w_x, w_y, p, r, hard, share, excess, p_old, r_old, mirrored, chunk);
}
