// The acoustic loops on a GPU: the twins of acoustic_cpu.py, which says what is computed and in which order.
//
// Fields are float32 with the last axis contiguous. Their rows are whole words of four points, and the first computed
// point of a row begins its second word, so that every access is one of 16 bytes. In the points around the computed ones
// a field is zero, but above a free surface. A thread owns a word of a row and marches along the first axis with the
// words it needs there in registers; neighbours along the other axes come from the caches. What only memory can give for
// the next plane is loaded before the current one is computed.
//
// A step is three launches: what layers change, the stencil, the points.
//
// In two dimensions shots of a batch advance together: their fields follow each other, and so do what layers remember
// and change, records and images. Cells of points are counted through all of them. A row of thread blocks has a shot.
//
// All products and sums that are contracted are written as such, so that every kernel here gives a step the same bits.

#ifndef AXES
#define AXES 3
#endif
#ifndef RADIUS  // of the stencil, at most a word
#define RADIUS 4
#endif
#ifndef BLOCK_X  // threads of a thread block along rows
#define BLOCK_X 32
#endif
#ifndef BLOCK_Y  // and across them; in two dimensions each has a stretch of the first axis to itself
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
#ifndef ROWS  // extents of a field that the compiler shall know, or 0
#define ROWS 0
#endif
#ifndef WORDS
#define WORDS 0
#endif

typedef unsigned int u32;
typedef long long i64;

constexpr int QUEUE = 2 * RADIUS + 1;
constexpr int LANES = 32;

struct Stencil {
    float c[RADIUS + 1];
};

__device__ constexpr double factorial(int n) { return n < 2 ? 1.0 : n * factorial(n - 1); }

// The weights of stencil.py, rounded as they are there.
__device__ constexpr Stencil second_derivative() {
    Stencil s = {};
    double sum = 0;
    for (int k = 1; k <= RADIUS; ++k) {
        const double over = factorial(RADIUS) * factorial(RADIUS) * (k % 2 ? 2 : -2);
        const double weight = over / (k * k * factorial(RADIUS - k) * factorial(RADIUS + k));
        s.c[k] = static_cast<float>(weight);
        sum += weight;
    }
    s.c[0] = static_cast<float>(-2 * sum);
    return s;
}

__device__ constexpr Stencil S = second_derivative();

__device__ inline float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

__device__ inline float4 minus(float4 a, float4 b) { return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w); }

__device__ inline float4 times(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }

__device__ inline float4 times(float a, float4 b) { return make_float4(a * b.x, a * b.y, a * b.z, a * b.w); }

__device__ inline float4 fused(float4 a, float4 b, float4 c) {
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}

__device__ inline float4 fused(float a, float4 b, float4 c) {
    return make_float4(fmaf(a, b.x, c.x), fmaf(a, b.y, c.y), fmaf(a, b.z, c.z), fmaf(a, b.w, c.w));
}

__device__ inline void fetch_ahead(const float4* word) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(word));
#endif
}

// The shot that a thread block of this number works for; where it is always 0, nothing is computed of it.
__device__ inline i64 shot_of(u32 number) { return AXES == 2 ? number : 0; }

#include "acoustic_layers.cuh"

// The extents of a field, in words along rows, and how a launch cuts the first axis.
struct Shape {
    int planes, rows, words;
    int end;  // one past the last computed point of a row
    int chunk;
};

// One over the squared spacing of each axis.
struct Weights {
    float z, y, x;
};

// The part of a field that records and images cover: where it begins, and its extents, in words along rows.
struct Window {
    int z, y, word, planes, rows, words;

    __device__ bool covers(int row, int column) const {
        return row >= y && row < y + rows && column >= word && column < word + words;
    }

    __device__ bool reaches(int plane) const { return plane >= z && plane < z + planes; }

    __device__ i64 place(int plane, int row, int column) const {
        return (static_cast<i64>(plane - z) * rows + (row - y)) * words + (column - word);
    }
};

// Sum the two neighbours at distance k in x of each of a word's four points.
template <int k>
__device__ inline float4 along_row(const float (&row)[12]) {
    return make_float4(row[4 - k] + row[4 + k], row[5 - k] + row[5 + k], row[6 - k] + row[6 + k],
                       row[7 - k] + row[7 + k]);
}

template <int k>
__device__ inline void add_neighbours(const float4* __restrict__ p, int words, const float (&row)[12],
                                      const float4 (&planes)[QUEUE], float4& in_z, float4& in_y, float4& in_x) {
    if constexpr (k <= RADIUS) {
        in_z = fused(S.c[k], plus(planes[RADIUS - k], planes[RADIUS + k]), in_z);
        if constexpr (AXES == 3) in_y = fused(S.c[k], plus(__ldg(p - k * words), __ldg(p + k * words)), in_y);
        in_x = fused(S.c[k], along_row<k>(row), in_x);
        add_neighbours<k + 1>(p, words, row, planes, in_z, in_y, in_x);
    }
}

// Give the Laplacian of a word's points, whose planes are in registers.
__device__ inline float4 laplacian(const float4* __restrict__ p, int words, const float4 (&planes)[QUEUE],
                                   const Weights& w) {
    const float4 left = __ldg(p - 1), right = __ldg(p + 1), centre = planes[RADIUS];
    const float row[12] = {left.x,   left.y,   left.z,  left.w,  centre.x, centre.y,
                           centre.z, centre.w, right.x, right.y, right.z,  right.w};
    float4 in_z = times(S.c[0], centre), in_y = in_z, in_x = in_z;
    add_neighbours<1>(p, words, row, planes, in_z, in_y, in_x);
    if constexpr (AXES == 3) return fused(w.x, in_x, fused(w.y, in_y, times(w.z, in_z)));
    return fused(w.z, in_z, times(w.x, in_x));
}

// Call `job` for every word that a thread owns: with its number, its plane, its points and their Laplacian, and with
// what the job has loaded for it. `make` makes the job of a column of words.
template <typename Job, typename Make>
__device__ inline void march(const float4* __restrict__ p, const Shape& shape, const Weights& w, const Make& make) {
    const int word = 1 + blockIdx.x * BLOCK_X + threadIdx.x;
    const int row = AXES == 3 ? RADIUS + blockIdx.y * BLOCK_Y + threadIdx.y : 0;
    const int part = AXES == 3 ? blockIdx.z : blockIdx.z * BLOCK_Y + threadIdx.y;
    const int begin = RADIUS + part * shape.chunk;
    const int end = min(begin + shape.chunk, shape.planes - RADIUS);
    if (4 * word >= shape.end || (AXES == 3 && row >= shape.rows - RADIUS) || begin >= end) return;
    const Job job = make(row, word);
    const int words = WORDS ? WORDS : shape.words;
    const i64 plane = static_cast<i64>(ROWS ? ROWS : shape.rows) * words;
    i64 here = begin * plane + static_cast<i64>(row) * words + word;

    float4 planes[QUEUE];  // z - RADIUS ... z + RADIUS
#pragma unroll
    for (int k = 1; k < QUEUE; ++k) planes[k] = __ldg(p + here + (k - RADIUS - 1) * plane);
    float4 next = EARLY ? __ldg(p + here + RADIUS * plane) : float4{};
    typename Job::Loaded coming = EARLY ? job.load(here, begin) : typename Job::Loaded{};

    for (int z = begin; z < end; ++z, here += plane) {
#pragma unroll
        for (int k = 0; k < QUEUE - 1; ++k) planes[k] = planes[k + 1];
        planes[QUEUE - 1] = EARLY ? next : __ldg(p + here + RADIUS * plane);
        const typename Job::Loaded loaded = EARLY ? coming : job.load(here, z);
        if (EARLY) {
            // The last plane is loaded twice: a branch here would be moved behind the computation.
            const int later = z + 1 < end;
            const i64 there = here + (later ? plane : 0);
            next = __ldg(p + there + RADIUS * plane);
            coming = job.load(there, z + later);
        }
        if (AHEAD > 1 && z + AHEAD < end) {
            fetch_ahead(p + here + (RADIUS + AHEAD) * plane);
            job.fetch(here + AHEAD * plane);
        }
        job.finish(here, z, planes[RADIUS], laplacian(p + here, words, planes, w), loaded);
    }
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

    // Used once: they need not stay in a cache.
    __device__ Loaded load(i64 here, int z) const {
        return {__ldcs(old + here), __ldcs(squared + here), changes.at(z)};
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

    __device__ Loaded load(i64 here, int z) const {
        Loaded loaded = {};
        loaded.step = advance.load(here, z);
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

    __device__ Loaded load(i64 here, int z) const {
        return {__ldcs(total + here), __ldcs(other + here), changes.at(z)};
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
                                  int rows, int words, int end, float w_z, float w_y, float w_x) {
    const i64 shot = shot_of(blockIdx.z);
    p += shot * planes * words, memory += shot * remembered;
    changes += shot * reach, coefficients += shot * numbers;
    const Side side = side_of(table, blockIdx.y);
    Line line;
    if (!line_of(side, blockIdx.x * blockDim.x + threadIdx.x, planes, rows, words, end, line)) return;
    const float* ab = coefficients + side.coefficients;
    if (side.axis == 2) return change_along(p, memory, changes, ab, side, line, w_x);
    change_across(p, memory, changes, ab, side, line, side.axis == 0 ? w_z : w_y);
}

// Do so in a step back: the transpose.
extern "C" __global__ void change_back(const float4* __restrict__ p, float4* __restrict__ memory,
                                       float4* __restrict__ changes, const float* __restrict__ coefficients,
                                       const u32* __restrict__ table, u32 remembered, u32 reach, u32 numbers,
                                       int planes, int rows, int words, int end, float w_z, float w_y, float w_x) {
    const i64 shot = shot_of(blockIdx.z);
    p += shot * planes * words, memory += shot * remembered;
    changes += shot * reach, coefficients += shot * numbers;
    const Side side = side_of(table, blockIdx.y);
    Line line;
    if (!line_of(side, blockIdx.x * blockDim.x + threadIdx.x, planes, rows, words, end, line)) return;
    const float* ab = coefficients + side.coefficients;
    if (side.axis == 2) return change_back_along(p, memory, changes, ab, side, line, w_x);
    change_back_across(p, memory, changes, ab, side, line, side.axis == 0 ? w_z : w_y);
}

// Step once: `old` becomes the newer field.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    advance(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ squared,
            const float4* __restrict__ changes, const u32* __restrict__ table, int sides, int beyond, u32 reach,
            int planes, int rows, int words, int end, int chunk, int mirrored, int models, float w_z, float w_y,
            float w_x) {
    const i64 shot = shot_of(blockIdx.y), field = shot * planes * words;
    p += field, old += field, squared += models * field, changes += shot * reach;
    march<Advance>(p, {planes, rows, words, end, chunk}, {w_z, w_y, w_x}, [&](int row, int word) {
        return Advance{old,
                       squared,
                       Changes(changes, table, sides, beyond, rows, words, row, word),
                       static_cast<i64>(rows) * words,
                       mirrored,
                       end - 4 * word};
    });
}

// Step once, and add the product of the newer field with `seen` to the image and the square of `seen` to the light.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    advance_and_image(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ squared,
                      const float4* __restrict__ changes, const u32* __restrict__ table, int sides, int beyond,
                      u32 reach, int planes, int rows, int words, int end, int chunk, int mirrored, int models,
                      float w_z, float w_y, float w_x, const float4* __restrict__ seen, float4* __restrict__ image,
                      float4* __restrict__ light, float factor, int first_plane, int first_row, int first_word,
                      int seen_planes, int seen_rows, int seen_words) {
    const Window window = {first_plane, first_row, first_word, seen_planes, seen_rows, seen_words};
    const i64 shot = shot_of(blockIdx.y), field = shot * planes * words, covered = shot * seen_planes * seen_words;
    p += field, old += field, squared += models * field, changes += shot * reach;
    seen += covered, image += covered, light += covered;
    march<AdvanceAndImage>(p, {planes, rows, words, end, chunk}, {w_z, w_y, w_x}, [&](int row, int word) {
        const Advance step = {old,
                              squared,
                              Changes(changes, table, sides, beyond, rows, words, row, word),
                              static_cast<i64>(rows) * words,
                              mirrored,
                              end - 4 * word};
        const int across = AXES == 3 ? row : window.y;
        return AdvanceAndImage{step,
                               window,
                               seen,
                               image,
                               light,
                               factor,
                               window.place(window.z, across, word),
                               window.covers(across, word)};
    });
}

// Add factor other (lap(p) + changes) to a total.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    curvature(const float4* __restrict__ p, float4* __restrict__ total, const float4* __restrict__ other, float factor,
              const float4* __restrict__ changes, const u32* __restrict__ table, int sides, int beyond, u32 reach,
              int planes, int rows, int words, int end, int chunk, float w_z, float w_y, float w_x) {
    const i64 shot = shot_of(blockIdx.y), field = shot * planes * words;
    p += field, total += field, other += field, changes += shot * reach;
    march<Curvature>(p, {planes, rows, words, end, chunk}, {w_z, w_y, w_x}, [&](int row, int word) {
        return Curvature{total, other, Changes(changes, table, sides, beyond, rows, words, row, word), factor};
    });
}

// Copy the part of a field that a window covers: a thread a word, a row of thread blocks a plane.
extern "C" __global__ void crop(const float4* __restrict__ p, float4* __restrict__ out, int planes, int rows,
                                int words, int first_plane, int first_row, int first_word, int seen_planes,
                                int seen_rows, int seen_words) {
    const i64 shot = shot_of(blockIdx.z);
    p += shot * planes * words, out += shot * seen_planes * seen_words;
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= seen_rows * seen_words) return;
    const int row = first_row + place / seen_words, word = first_word + place % seen_words;
    for (int plane = blockIdx.y; plane < seen_planes; plane += gridDim.y) {
        const i64 from = (static_cast<i64>(first_plane + plane) * rows + row) * words + word;
        __stcs(out + static_cast<i64>(plane) * seen_rows * seen_words + place, __ldcs(p + from));
    }
}

// Send values into a field and hear another one, side by side: the first `sending` thread blocks have a thread for each
// cell that is touched, the others a warp for each point that hears. What is sent also goes into the mirror of a free
// surface and, where there is one, into the image that the step has made of the field before.
extern "C" __global__ void points(float* __restrict__ field, const u32* __restrict__ touched,
                                  const u32* __restrict__ shares, const u32* __restrict__ sharers,
                                  const float* __restrict__ share_weights, const float* __restrict__ values,
                                  const float* __restrict__ factors, int cells, int sending, int mirrored,
                                  const float* __restrict__ heard, const u32* __restrict__ starts,
                                  const u32* __restrict__ near, const float* __restrict__ weights,
                                  float* __restrict__ out, int count, const float* __restrict__ seen,
                                  float* __restrict__ image, float factor, int planes, int rows, int words,
                                  int first_plane, int first_row, int first_word, int seen_planes, int seen_rows,
                                  int seen_words) {
    if (static_cast<int>(blockIdx.x) < sending) {
        const int number = blockIdx.x * blockDim.x + threadIdx.x;
        if (number >= cells) return;
        float total = 0;
        for (u32 k = shares[number]; k < shares[number + 1]; ++k) {
            total = fmaf(share_weights[k], values[sharers[k]], total);
        }
        const u32 cell = touched[number];
        const float before = field[cell], after = fmaf(factors[number], total, before);
        field[cell] = after;
        const u32 plane = static_cast<u32>(rows) * words * 4;
        const u32 planes_before = cell / plane, shot = AXES == 2 ? planes_before / planes : 0;
        const int z = planes_before - shot * planes;
        if (z <= mirrored && z > RADIUS) field[cell - 2 * (z - RADIUS) * plane] = -after;
        if (image) {
            const Window window = {first_plane, first_row, first_word, seen_planes, seen_rows, seen_words};
            const int row = cell % plane / (4 * words), word = cell / 4 % words;
            if (window.covers(row, word) && window.reaches(z)) {
                const i64 at = 4 * (shot_of(shot) * seen_planes * seen_words + window.place(z, row, word)) + cell % 4;
                image[at] = fmaf(factor * seen[at], after - before, image[at]);
            }
        }
        return;
    }
    const int lane = threadIdx.x % LANES;
    const int point = ((blockIdx.x - sending) * blockDim.x + threadIdx.x) / LANES;
    if (point >= count) return;
    float total = 0;
    for (u32 k = starts[point] + lane; k < starts[point + 1]; k += LANES) total = fmaf(weights[k], heard[near[k]], total);
#pragma unroll
    for (int apart = LANES / 2; apart; apart /= 2) total += __shfl_xor_sync(0xffffffffu, total, apart);
    if (lane == 0) out[point] = total;
}
