// VTI waves in three dimensions: a step of sweep.cu, by words of four points.
//
// A thread block has a row of words for each of its warps, of which the outer ones are read only, and marches along the
// first axis. The vertical stresses around the current plane are in registers. They are made of a plane ahead, whose p, r
// and share stay in shared memory until it is the current one, so that each is read once; p has the rows around, too. All
// that is read comes there while what was read before is computed.
//
// What is defined from outside, ../sweeps/volume.cuh says.

#include "../acoustic/words.cuh"
#include "../sweeps/volume.cuh"

constexpr int OUTER = 1, HIGH = BLOCK_Y + 2 * RADIUS, TILE = HIGH * LANES;
// Of each plane from the current one to the farthest that is copied: a tile of p, and a thread's own words.
constexpr int DEPTH = RADIUS + 1 + STAGES, R = TILE, SHARE = TILE + THREADS, PLANE = TILE + 2 * THREADS;
// A thread's own words that are asked for once: of a plane ahead, and of the current one.
constexpr int EXCESS = 0, P_OLD = THREADS, R_OLD = 2 * THREADS, HARD = 3 * THREADS, OWN = 4 * THREADS;

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
#pragma unroll
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

// Do so along rows, whose `row` has a number.
__device__ inline float4 layered_along(const Axis& axis, const Along& layers, u32 row, float4 bend, int i) {
    float bends[4] = {bend.x, bend.y, bend.z, bend.w}, psi[5] = {};
    layers.each<5>(row, [&](int t, u32 at) { psi[t] = axis.psi[at]; });
    layers.each(row, [&](int t, u32 at) {
        const float value = bends[t] + (psi[t + 1] - psi[t]);
        const float zeta = fmaf(axis.b[i + t], axis.zeta[at], axis.a[i + t] * value);
        axis.zeta[at] = zeta;
        bends[t] = value + zeta;
    });
    return make_float4(bends[0], bends[1], bends[2], bends[3]);
}

// Give what the layers along rows change on the way back, of what the threads of a row have of them.
__device__ inline float4 returned_along(const Axis& axis, const Along& layers, u32 row, int i) {
    const auto kept = [&](const float* factors, const float* memory) {
        float found[4] = {};
        layers.each(row, [&](int t, u32 at) { found[t] = factors[i + t] * memory[at]; });
        return make_float4(found[0], found[1], found[2], found[3]);
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
                             int mirrored, int begin, int end, u32 layers) {
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
    const u32 near = LAYERED ? layers : 0;
    Along along_row = {};
    if (near & ON<1> && (BACK ? live : own)) along_row = Along::of(g.axes[1], i);

    float4 *const mine = shared + t_y * LANES + lane, *const once = mine + DEPTH * PLANE;
    const i64 column = static_cast<i64>(j) * words + word;
    // What is out of the fields is read at their edge, and asked for by nobody.
    const int near_word = max(0, min(word, words - 1));
    const Slot tile_at(shared + lane), mine_at(mine), once_at(once);
    const auto copy_plane = [&](int k, int slot) {
        const u32 from = k * plane + near_word;
        const Slot tile = tile_at + slot * PLANE, to = mine_at + slot * PLANE;
        each_row<HIGH>([&](int n) {
            copy_ahead(tile + n * LANES, wave.p + (from + min(j_0 - RADIUS + n, rows - 1) * words));
        });
        if (!own) return;
        const u32 here = static_cast<u32>(column) + k * plane;
        copy_ahead(to + R, wave.r + here), copy_ahead(to + SHARE, wave.share + here);
    };
    const auto copy_once = [&](int k, int slot) {
        if (!own) return;
        const Slot to = once_at + slot * OWN;
        const u32 from = static_cast<u32>(column) + k * plane;
        copy_ahead(to + EXCESS, wave.excess + (from + RADIUS * plane));
        copy_ahead(to + P_OLD, p_old + from), copy_ahead(to + R_OLD, r_old + from);
        copy_ahead(to + HARD, wave.hard + from);
    };
#pragma unroll
    for (int n = 0; n < RADIUS; ++n) copy_plane(begin + n, n);
#pragma unroll
    for (int n = 0; n < STAGES; ++n) {
        if (begin + n < end) copy_plane(begin + n + RADIUS, n + RADIUS), copy_once(begin + n, n);
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

    int now = 0, front = RADIUS, next = DEPTH - 1, slot = 0;  // in shared memory
    i64 here = static_cast<i64>(begin) * plane + column;
#pragma unroll 1
    for (int k = begin; k < end; ++k, here += plane) {
        wait_for_stage<STAGES - 1>();
        if (k + STAGES < end) copy_plane(k + STAGES + RADIUS, next);
        const float4 *const loaded = once + slot * OWN, *const own_here = mine + now * PLANE;
        const float4 *const own_ahead = mine + front * PLANE;
#pragma unroll
        for (int n = 0; n < QUEUE - 1; ++n) q[n] = q[n + 1];
        q[QUEUE - 1] = vertical(own_ahead[SHARE], own_ahead[RADIUS * LANES], loaded[EXCESS], own_ahead[R]);
        const float4* at = own_here + RADIUS * LANES;
        const float4 c = at[0], left = at[-1], right = at[1];
        const float row[12] = {left.x, left.y, left.z,  left.w,  c.x,     c.y,
                               c.z,    c.w,    right.x, right.y, right.z, right.w};
        float4 in_z = times(S.c[0], q[RADIUS]), in_x = times(S.c[0], c), in_y = in_x;
        add_neighbours<1>(at, row, q, in_z, in_y, in_x);
        const u32 row_number = k * rows + j;
        if (BACK && near & ON<1>) in_x = plus(in_x, returned_along(g.axes[1], along_row, row_number, i));
        if (!BACK) in_x = layered_along(g.axes[1], along_row, row_number, in_x, i);
        if (own) {
            if (near & ON<0>) in_z = layered<BACK, 0>(g, in_z, k, j, i);
            if (near & ON<2>) in_y = layered<BACK, 2>(g, in_y, k, j, i);
            const float4 depth = times(w_z, in_z), beside = fused(w_y, in_y, times(w_x, in_x)), r = own_here[R];
            const float4 both = fused(own_here[SHARE], depth, beside);
            put(p_old + here, fused(loaded[HARD], both, minus(plus(c, c), loaded[P_OLD])), kept);
            put(r_old + here, plus(minus(plus(r, r), loaded[R_OLD]), depth), kept);
        }
        if (k + STAGES < end) copy_once(k + STAGES, slot);  // where this plane's words were
        end_of_stage();
        now = now + 1 < DEPTH ? now + 1 : 0;
        front = front + 1 < DEPTH ? front + 1 : 0;
        next = next + 1 < DEPTH ? next + 1 : 0;
        slot = slot + 1 < STAGES ? slot + 1 : 0;
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
    if (begin >= end) return;
    const u32 near = reached<OUTER>(g, begin, end);
    if (near) return march<BACK, true>(g, wave, p_old, r_old, mirrored, begin, end, near);
    march<BACK, false>(g, wave, p_old, r_old, mirrored, begin, end, 0);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) advance(SWEPT) {
    sweep<false>(table, ab, pml, w_z, w_x, w_y, p, r, hard, share, excess, p_old, r_old, mirrored, chunk);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) retreat(SWEPT) {
    sweep<true>(table, ab, pml, w_z, w_x, w_y, p, r, hard, share, excess, p_old, r_old, mirrored, chunk);
}
