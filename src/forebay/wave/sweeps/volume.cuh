// What sweeps of volumes share: a warp owns a row of words, whose threads tell each other what they hold.
//
// RADIUS, of the stencil, BLOCK_Y, warps of a thread block, BLOCKS, thread blocks of a multiprocessor, and STAGES, planes
// by which copies into shared memory are ahead, are defined from outside.

#define AXES 3
#include "float4.cuh"
#include "axes.cuh"

#ifndef UNROLL
#define UNROLL 1
#endif

constexpr int THREADS = LANES * BLOCK_Y;
constexpr unsigned ALL = 0xffffffffu;

// Give a word of what an axis across rows remembers.
__device__ inline float4& kept_at(float* memory, i64 place) { return *reinterpret_cast<float4*>(memory + place); }

// Give what `value` says of each of four points.
template <typename Value>
__device__ inline float4 each(const Value& value) {
    return make_float4(value(0), value(1), value(2), value(3));
}

// Learn the words beside one in a row.
__device__ inline void tell(const float4& own, float (&row)[12]) {
    row[0] = __shfl_up_sync(ALL, own.x, 1, LANES), row[1] = __shfl_up_sync(ALL, own.y, 1, LANES);
    row[2] = __shfl_up_sync(ALL, own.z, 1, LANES), row[3] = __shfl_up_sync(ALL, own.w, 1, LANES);
    row[4] = own.x, row[5] = own.y, row[6] = own.z, row[7] = own.w;
    row[8] = __shfl_down_sync(ALL, own.x, 1, LANES), row[9] = __shfl_down_sync(ALL, own.y, 1, LANES);
    row[10] = __shfl_down_sync(ALL, own.z, 1, LANES), row[11] = __shfl_down_sync(ALL, own.w, 1, LANES);
}

// Write a word, of which so many points are computed: those after them stay zero.
__device__ inline float4 put(float4* at, float4 word, int kept) {
    if (kept < 4) word = make_float4(word.x, kept > 1 ? word.y : 0, kept > 2 ? word.z : 0, 0);
    __stcs(at, word);
    return word;
}

// Tell whether layers reach the tile of a thread block, or what its stencils read around it.
template <int OUTER>
__device__ inline bool reached(const Grid& g, int begin, int end) {
    constexpr int around = 2 * RADIUS;
    const int j = RADIUS + blockIdx.y * BLOCK_Y, i = g.axes[1].first + 4 * blockIdx.x * (LANES - 2 * OUTER);
    return g.axes[0].reached(begin - around, end + around) || g.axes[2].reached(j - around, j + BLOCK_Y + around) ||
           g.axes[1].reached(i - 4 * OUTER, i + 4 * (LANES - OUTER));
}
