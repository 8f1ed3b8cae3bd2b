// The acoustic stencils in two dimensions: the twins of cpu.py, which says what is computed and in which order.
//
// Fields are float32 with the last axis contiguous. Their rows are whole words of four points, and the first computed
// point of a row begins its second word, so that every access is one of 16 bytes. In the points around the computed ones
// a field is zero, but above a free surface. A thread owns a word of a row and marches along the first axis with the
// words it needs there in registers; neighbours along rows come from the caches. What only memory can give for the next
// row is loaded before the current one is computed.
//
// A step is three launches: what layers change, the stencil, the points.
//
// Shots of a batch advance together: their fields follow each other, and so do what layers remember
// and change, records and images. Cells of points are counted through all of them. A row of thread blocks has a shot.
//
// All products and sums that are contracted are written as such, so that every kernel here gives a step the same bits.

#ifndef RADIUS  // of the stencil, at most a word
#define RADIUS 4
#endif
#ifndef BLOCK_X  // threads of a thread block along rows
#define BLOCK_X 32
#endif
#ifndef BLOCK_Y  // and across them: each has a stretch of the first axis to itself
#define BLOCK_Y 8
#endif
#ifndef BLOCKS  // on a multiprocessor, at least
#define BLOCKS 2
#endif
#ifndef EARLY  // whether a plane is loaded while the one before it is computed, which takes registers
#define EARLY 1
#endif
#ifndef AHEAD  // planes by which the second-level cache is filled ahead of the loads, or 0
#define AHEAD 0
#endif
#ifndef WORDS  // of a row, where the compiler shall know them, or 0
#define WORDS 0
#endif

#include "words.cuh"

__device__ inline void fetch_ahead(const float4* word) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(word));
#endif
}

#include "plane_layers.cuh"

// The extents of a field, in words along rows, and how a launch cuts the first axis.
struct Shape {
    int planes, words;
    int end;  // one past the last computed point of a row
    int chunk;
};

template <int k>
__device__ inline void add_neighbours(const float (&row)[12], const float4 (&planes)[QUEUE], float4& in_z,
                                      float4& in_x) {
    if constexpr (k <= RADIUS) {
        in_z = fused(S.c[k], plus(planes[RADIUS - k], planes[RADIUS + k]), in_z);
        in_x = fused(S.c[k], along_row<k>(row), in_x);
        add_neighbours<k + 1>(row, planes, in_z, in_x);
    }
}

// Give the Laplacian of a word's points, whose planes are in registers.
__device__ inline float4 laplacian(const float4* __restrict__ p, const float4 (&planes)[QUEUE], const Weights& w) {
    const float4 left = __ldg(p - 1), right = __ldg(p + 1), centre = planes[RADIUS];
    const float row[12] = {left.x,   left.y,   left.z,  left.w,  centre.x, centre.y,
                           centre.z, centre.w, right.x, right.y, right.z,  right.w};
    float4 in_z = times(S.c[0], centre), in_x = in_z;
    add_neighbours<1>(row, planes, in_z, in_x);
    return fused(w.z, in_z, times(w.x, in_x));
}

// Call `job` for every word of a column, from `begin` to `end`: with its plane, its points and their Laplacian, and with
// what the job has loaded for it. Columns that no layer reaches are not asked what layers change.
template <bool LAYERED, typename Job>
__device__ inline void sweep(const float4* __restrict__ p, i64 here, i64 plane, int begin, int end, const Weights& w,
                             const Job& job) {
    float4 planes[QUEUE];  // z - RADIUS ... z + RADIUS
#pragma unroll
    for (int k = 1; k < QUEUE; ++k) planes[k] = __ldg(p + here + (k - RADIUS - 1) * plane);
    float4 next = EARLY ? __ldg(p + here + RADIUS * plane) : float4{};
    typename Job::Loaded coming = EARLY ? job.template load<LAYERED>(here, begin) : typename Job::Loaded{};

    for (int z = begin; z < end; ++z, here += plane) {
#pragma unroll
        for (int k = 0; k < QUEUE - 1; ++k) planes[k] = planes[k + 1];
        planes[QUEUE - 1] = EARLY ? next : __ldg(p + here + RADIUS * plane);
        const typename Job::Loaded loaded = EARLY ? coming : job.template load<LAYERED>(here, z);
        if (EARLY) {
            // The last plane is loaded twice: a branch here would be moved behind the computation.
            const int later = z + 1 < end;
            const i64 there = here + (later ? plane : 0);
            next = __ldg(p + there + RADIUS * plane);
            coming = job.template load<LAYERED>(there, z + later);
        }
        if (AHEAD > 1 && z + AHEAD < end) {
            fetch_ahead(p + here + (RADIUS + AHEAD) * plane);
            job.fetch(here + AHEAD * plane);
        }
        job.finish(here, z, planes[RADIUS], laplacian(p + here, planes, w), loaded);
    }
}

// Call a job for every word that a thread owns; `make` makes that of a column of words.
template <typename Job, typename Make>
__device__ inline void march(const float4* __restrict__ p, const Shape& shape, const Weights& w, const Make& make) {
    const int word = 1 + blockIdx.x * BLOCK_X + threadIdx.x;
    const int part = blockIdx.z * BLOCK_Y + threadIdx.y;
    const int begin = RADIUS + part * shape.chunk;
    const int end = min(begin + shape.chunk, shape.planes - RADIUS);
    if (4 * word >= shape.end || begin >= end) return;
    const Job job = make(word);
    const i64 plane = WORDS ? WORDS : shape.words, here = begin * plane + word;
    if (job.layered(begin, end)) return sweep<true>(p, here, plane, begin, end, w, job);
    sweep<false>(p, here, plane, begin, end, w, job);
}

struct Advance {
    struct Loaded {
        float4 before, speed, change;
    };

    float4* __restrict__ old;
    const float4* __restrict__ squared;
    Changes changes;
    i64 plane;
    int mirrored;  // the last plane that is mirrored above a free surface, or 0
    int kept;      // points of the word that are computed

    __device__ bool layered(int begin, int end) const { return changes.reach(begin, end); }

    // Used once: they need not stay in a cache.
    template <bool LAYERED>
    __device__ Loaded load(i64 here, int z) const {
        return {__ldcs(old + here), __ldcs(squared + here), LAYERED ? changes.at(z) : float4{}};
    }

    __device__ void fetch(i64 here) const {
        fetch_ahead(old + here);
        fetch_ahead(squared + here);
    }

    __device__ float4 step(float4 centre, float4 lap, const Loaded& loaded) const {
        float4 after = fused(loaded.speed, plus(lap, loaded.change), minus(plus(centre, centre), loaded.before));
        if (kept < 4) after = make_float4(after.x, kept > 1 ? after.y : 0, kept > 2 ? after.z : 0, 0);
        return after;
    }

    __device__ void store(i64 here, int z, float4 after) const {
        __stcs(old + here, after);
        if (z <= mirrored && z > RADIUS) old[here - 2 * (z - RADIUS) * plane] = times(-1.0f, after);
    }

    __device__ void finish(i64 here, int z, float4 centre, float4 lap, const Loaded& loaded) const {
        store(here, z, step(centre, lap, loaded));
    }
};

struct AdvanceAndImage {
    struct Loaded {
        Advance::Loaded step;
        float4 seen, image, light;
    };

    Advance advance;
    Window window;
    const float4* __restrict__ seen;
    float4 *__restrict__ image, *__restrict__ light;
    float factor;
    i64 start;  // the word's place in the window's first plane
    bool covered;

    __device__ i64 place(int z) const {
        return start + static_cast<i64>(z - window.z) * (static_cast<i64>(window.rows) * window.words);
    }

    __device__ bool layered(int begin, int end) const { return advance.layered(begin, end); }

    template <bool LAYERED>
    __device__ Loaded load(i64 here, int z) const {
        Loaded loaded = {};
        loaded.step = advance.template load<LAYERED>(here, z);
        if (covered && window.reaches(z)) {
            const i64 at = place(z);
            loaded.seen = __ldcs(seen + at);
            loaded.image = __ldcs(image + at);
            loaded.light = __ldcs(light + at);
        }
        return loaded;
    }

    __device__ void fetch(i64 here) const { advance.fetch(here); }

    __device__ void finish(i64 here, int z, float4 centre, float4 lap, const Loaded& loaded) const {
        const float4 after = advance.step(centre, lap, loaded.step);
        advance.store(here, z, after);
        if (covered && window.reaches(z)) {
            const i64 at = place(z);
            const float4 scaled = times(factor, loaded.seen);
            __stcs(image + at, fused(scaled, after, loaded.image));
            __stcs(light + at, fused(scaled, loaded.seen, loaded.light));
        }
    }
};

struct Curvature {
    struct Loaded {
        float4 total, other, change;
    };

    float4* __restrict__ total;
    const float4* __restrict__ other;
    Changes changes;
    float factor;

    __device__ bool layered(int begin, int end) const { return changes.reach(begin, end); }

    template <bool LAYERED>
    __device__ Loaded load(i64 here, int z) const {
        return {__ldcs(total + here), __ldcs(other + here), LAYERED ? changes.at(z) : float4{}};
    }

    __device__ void fetch(i64 here) const {
        fetch_ahead(total + here);
        fetch_ahead(other + here);
    }

    // Where nothing is computed the other field is zero, and so is what is added.
    __device__ void finish(i64 here, int, float4, float4 lap, const Loaded& loaded) const {
        __stcs(total + here, fused(times(factor, loaded.other), plus(lap, loaded.change), loaded.total));
    }
};

// Take what layers remember a step further, and tell what they change in it: a thread a line, a row of blocks a side.
extern "C" __global__ void change(const float4* __restrict__ p, float4* __restrict__ memory,
                                  float4* __restrict__ changes, const float* __restrict__ coefficients,
                                  const u32* __restrict__ table, u32 remembered, u32 reach, u32 numbers, int planes,
                                  int words, int end, float w_z, float w_x) {
    const i64 shot = blockIdx.z;
    p += shot * planes * words, memory += shot * remembered;
    changes += shot * reach, coefficients += shot * numbers;
    const Side side = side_of(table, blockIdx.y);
    Line line;
    if (!line_of(side, blockIdx.x * blockDim.x + threadIdx.x, planes, words, end, line)) return;
    const float* ab = coefficients + side.coefficients;
    if (side.axis == 1) return change_along(p, memory, changes, ab, side, line, w_x);
    change_across(p, memory, changes, ab, side, line, w_z);
}

// Do so in a step back: the transpose.
extern "C" __global__ void change_back(const float4* __restrict__ p, float4* __restrict__ memory,
                                       float4* __restrict__ changes, const float* __restrict__ coefficients,
                                       const u32* __restrict__ table, u32 remembered, u32 reach, u32 numbers,
                                       int planes, int words, int end, float w_z, float w_x) {
    const i64 shot = blockIdx.z;
    p += shot * planes * words, memory += shot * remembered;
    changes += shot * reach, coefficients += shot * numbers;
    const Side side = side_of(table, blockIdx.y);
    Line line;
    if (!line_of(side, blockIdx.x * blockDim.x + threadIdx.x, planes, words, end, line)) return;
    const float* ab = coefficients + side.coefficients;
    if (side.axis == 1) return change_back_along(p, memory, changes, ab, side, line, w_x);
    change_back_across(p, memory, changes, ab, side, line, w_z);
}

// Step once: `old` becomes the newer field.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    advance(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ squared,
            const float4* __restrict__ changes, const u32* __restrict__ table, int sides, int beyond, u32 reach,
            int planes, int words, int end, int chunk, int mirrored, int models, float w_z, float w_x) {
    const i64 shot = blockIdx.y, field = shot * planes * words;
    p += field, old += field, squared += models * field, changes += shot * reach;
    march<Advance>(p, {planes, words, end, chunk}, {w_z, 0, w_x}, [&](int word) {
        return Advance{old,
                       squared,
                       Changes(changes, table, sides, beyond, words, word),
                       words,
                       mirrored,
                       end - 4 * word};
    });
}

// Step once, and add the product of the newer field with `seen` to the image and the square of `seen` to the light.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    advance_and_image(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ squared,
                      const float4* __restrict__ changes, const u32* __restrict__ table, int sides, int beyond,
                      u32 reach, int planes, int words, int end, int chunk, int mirrored, int models, float w_z,
                      float w_x, const float4* __restrict__ seen, float4* __restrict__ image,
                      float4* __restrict__ light, float factor, int first_plane, int first_row, int first_word,
                      int seen_planes, int seen_rows, int seen_words) {
    const Window window = {first_plane, first_row, first_word, seen_planes, seen_rows, seen_words};
    const i64 shot = blockIdx.y, field = shot * planes * words, covered = shot * seen_planes * seen_words;
    p += field, old += field, squared += models * field, changes += shot * reach;
    seen += covered, image += covered, light += covered;
    march<AdvanceAndImage>(p, {planes, words, end, chunk}, {w_z, 0, w_x}, [&](int word) {
        const Advance step = {old,
                              squared,
                              Changes(changes, table, sides, beyond, words, word),
                              words,
                              mirrored,
                              end - 4 * word};
        return AdvanceAndImage{step,
                               window,
                               seen,
                               image,
                               light,
                               factor,
                               window.place(window.z, window.y, word),
                               window.covers(window.y, word)};
    });
}

// Add factor other (lap(p) + changes) to a total.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    curvature(const float4* __restrict__ p, float4* __restrict__ total, const float4* __restrict__ other, float factor,
              const float4* __restrict__ changes, const u32* __restrict__ table, int sides, int beyond, u32 reach,
              int planes, int words, int end, int chunk, float w_z, float w_x) {
    const i64 shot = blockIdx.y, field = shot * planes * words;
    p += field, total += field, other += field, changes += shot * reach;
    march<Curvature>(p, {planes, words, end, chunk}, {w_z, 0, w_x}, [&](int word) {
        return Curvature{total, other, Changes(changes, table, sides, beyond, words, word), factor};
    });
}
