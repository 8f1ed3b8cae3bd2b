// What sweeps of volumes share: a warp owns a row of words, whose threads tell each other what they hold.
//
// RADIUS, of the stencil, BLOCK_Y, warps of a thread block, BLOCKS, thread blocks of a multiprocessor, and STAGES, planes
// by which copies into shared memory are ahead, are defined from outside.

#define AXES 3
#include "float4.cuh"
#include "axes.cuh"

constexpr int THREADS = LANES * BLOCK_Y;
constexpr unsigned ALL = 0xffffffffu;
template <int AXIS> constexpr u32 ON = 1u << AXIS;

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

// Call `job` for each of so many rows that is a warp's own, whose number the compiler knows.
template <int COUNT, typename Job>
__device__ inline void each_row(const Job& job) {
#pragma unroll
    for (int first = 0; first < COUNT; first += BLOCK_Y) {
        const int row = first + threadIdx.y;
        if (first + BLOCK_Y <= COUNT || row < COUNT) job(row);
    }
}

// Have the second-level cache read ahead what an axis remembers of a place, if it does.
__device__ inline void fetch_ahead(const float* at) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#endif
}

template <int AXIS>
__device__ inline void fetch_ahead(const Grid& g, const float* memory, int k, int j, int i) {
    if (g.axes[AXIS].layered(AXIS == 0 ? k : j)) fetch_ahead(memory + g.memory<AXIS>(k, j, i));
}

// The points of a word, and the one after it, that layers along rows have: a bit for each, and how far into the memory
// of a row they are.
struct Along {
    u32 bits;
    int place, gap, after, count;

    __device__ static Along of(const Axis& axis, int i) {
        Along word = {0, i - axis.first, axis.high - axis.low, axis.high - i, axis.count()};
        for (int t = 0; t < 5; ++t) word.bits |= axis.layered(i + t) ? 1u << t : 0;
        return word;
    }
    __device__ u32 at(u32 row, int t) const { return row * count + place + t - (t < after ? 0 : gap); }
    // Call `use` for each of them in a row, with its number in the word and where the memory has it.
    template <int COUNT = 4, typename Use>
    __device__ void each(u32 row, const Use& use) const {
        if (!bits) return;
#pragma unroll
        for (int t = 0; t < COUNT; ++t) {
            if (bits >> t & 1) use(t, at(row, t));
        }
    }
    __device__ void fetch(const float* memory, u32 row) const {
        if (bits) fetch_ahead(memory + at(row, bits & 1 ? 0 : 3));
    }
};

// Write a word, of which so many points are computed: those after them stay zero.
__device__ inline float4 put(float4* at, float4 word, int kept) {
    if (kept < 4) word = make_float4(word.x, kept > 1 ? word.y : 0, kept > 2 ? word.z : 0, 0);
    __stcs(at, word);
    return word;
}

// Tell by a bit for each axis whether its layers reach the tile of a thread block, or what its stencils read around it.
template <int OUTER>
__device__ inline u32 reached(const Grid& g, int begin, int end) {
    constexpr int around = 2 * RADIUS;
    const int j = RADIUS + blockIdx.y * BLOCK_Y, i = g.axes[1].first + 4 * blockIdx.x * (LANES - 2 * OUTER);
    return (g.axes[0].reached(begin - around, end + around) ? ON<0> : 0) |
           (g.axes[2].reached(j - around, j + BLOCK_Y + around) ? ON<2> : 0) |
           (g.axes[1].reached(i - 4 * OUTER, i + 4 * (LANES - OUTER)) ? ON<1> : 0);
}
