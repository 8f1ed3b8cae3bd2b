// The acoustic stencils in three dimensions: the twins of cpu.py, which says what is computed and in which order.
//
// Fields lie as in acoustic.cu. A thread block owns a tile of words and marches across it, along the planes or, in layers
// of rows, along those. The planes around the current one are in registers, the current one and those ahead in shared
// memory, into which further ones are copied while it is computed. Each word of a field is so loaded about once.
//
// A launch has several zones: the layers of planes, those of rows, and what lies between them, whose threads know
// nothing of layers. What a zone computes of a point depends on where the point is and on nothing else.
//
// All products and sums that are contracted are written as such.

#ifndef RADIUS  // of the stencil, at most a word
#define RADIUS 4
#endif
#ifndef BLOCK_X  // threads of a thread block along rows
#define BLOCK_X 32
#endif
#ifndef BLOCK_Y  // and across them
#define BLOCK_Y 16
#endif
#ifndef BLOCKS  // on a multiprocessor, at least
#define BLOCKS 1
#endif
#ifndef STAGES  // planes by which copies into shared memory are ahead at most: as many as it has room for
#define STAGES 4
#endif
#ifndef ROOM  // words of shared memory for a thread block
#define ROOM 14528
#endif
#ifndef EDGE  // threads of a tile along rows, at the ends of those that have layers: all words of such a layer
#define EDGE 32
#endif
#include "words.cuh"
#include "volume_layers.cuh"

constexpr int TILE_THREADS = BLOCK_X * BLOCK_Y;

// A box in which threads march along an axis, from `begin` to `end` in chunks, and own lines of the other and words.
struct Zone {
    int first, axis, begin, end, chunk, line, lines_end, across, word, words_end, columns;
    int side;   // the layer along the march, counted from 1, or none
    int along;  // the layer along rows
};

__device__ inline Zone zone_of(const int* __restrict__ table, int zones, int unit) {
    int number = zones - 1;
    while (number && unit < __ldg(table + 13 * number)) --number;
    const int* at = table + 13 * number;
    return {__ldg(at),     __ldg(at + 1), __ldg(at + 2), __ldg(at + 3),  __ldg(at + 4),  __ldg(at + 5), __ldg(at + 6),
            __ldg(at + 7), __ldg(at + 8), __ldg(at + 9), __ldg(at + 10), __ldg(at + 11), __ldg(at + 12)};
}

// The extents of a field, in words along rows, and one past the last computed point of a row.
struct Extents {
    int planes, rows, words, end;
};

// What layers remember, their coefficients, and the table of their sides.
struct Memory {
    float4* values;
    const float* coefficients;
    const int* sides;
};

template <int k, int PITCH>
__device__ inline void add_neighbours(const float4* at, const float (&row)[12], const float4 (&planes)[QUEUE],
                                      float4& in_march, float4& across, float4& in_x) {
    if constexpr (k <= RADIUS) {
        in_march = fused(S.c[k], plus(planes[RADIUS - k], planes[RADIUS + k]), in_march);
        across = fused(S.c[k], plus(at[-k * PITCH], at[k * PITCH]), across);
        in_x = fused(S.c[k], along_row<k>(row), in_x);
        add_neighbours<k + 1, PITCH>(at, row, planes, in_march, across, in_x);
    }
}

// Return by how many planes copies of a tile, and of words that threads have for themselves, can be ahead.
__device__ constexpr int planes_ahead(int tile, int own) {
    const int fitting = (ROOM - (RADIUS + 1) * tile) / (tile + own * TILE_THREADS);
    return fitting < STAGES ? fitting : STAGES;
}

// Call `job` for every word that a thread owns in a zone, with its place, its points, their Laplacian with what the
// layer along the march or that along rows changes in it, and the words of the job's two fields.
template <Kind KIND, Kind ALONG, typename Job>
__device__ inline void march(const float4* __restrict__ p, const Extents& extents, const Zone& zone,
                             const Memory& memory, const Weights& w, const Job& job) {
#ifdef __CUDA_ARCH__
    extern __shared__ float4 shared[];
#else
    static float4 shared[1 << 14];
#endif
    constexpr int WIDE = ALONG == NONE ? BLOCK_X : EDGE, HIGH = TILE_THREADS / WIDE, PITCH = WIDE + 2;
    constexpr int TILE = (HIGH + 2 * RADIUS) * PITCH, SHARE = (TILE + TILE_THREADS - 1) / TILE_THREADS;
    // A thread's own words of a plane: of both fields, of what layers remember, and those of the job.
    constexpr int OF_MARCH = 2, OF_ROW = OF_MARCH + (KIND == NONE ? 0 : 2), OF_JOB = OF_ROW + (ALONG == NONE ? 0 : 2);
    constexpr int OWN = OF_JOB + Job::MORE, AHEAD = planes_ahead(TILE, OWN), DEPTH = RADIUS + 1 + AHEAD;
    static_assert(AHEAD > 0, "too little shared memory for a tile");
    const int number = threadIdx.y * BLOCK_X + threadIdx.x, words = extents.words;
    const int column = number % WIDE, height = number / WIDE;
    const int unit = blockIdx.x - zone.first, tile = unit / zone.columns, part = tile / zone.across;
    const int first_word = zone.word + unit % zone.columns * WIDE, word = first_word + column;
    const int first_line = zone.line + tile % zone.across * HIGH, line = first_line + height;
    const int begin = zone.begin + part * zone.chunk, end = min(begin + zone.chunk, zone.end);
    const bool live = word < zone.words_end && line < zone.lines_end;
    const i64 plane = static_cast<i64>(extents.rows) * words;
    const i64 stride = zone.axis ? words : plane, across = zone.axis ? plane : words;
    const int lines = zone.axis ? extents.planes : extents.rows;
    const float w_march = zone.axis ? w.y : w.z, w_across = zone.axis ? w.z : w.y;

    int to[SHARE];
    i64 from[SHARE];
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        const int place = number + i * TILE_THREADS, row = place / PITCH, at = first_word - 1 + place % PITCH;
        const bool there = place < TILE && first_line - RADIUS + row < lines && at < words;
        to[i] = there ? place : -1;
        from[i] = (first_line - RADIUS + row) * across + at;
    }
    const auto copy_plane = [&](int m, int slot) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            if (to[i] >= 0) copy_ahead(shared + slot * TILE + to[i], p + m * stride + from[i]);
        }
    };

    Layer<KIND> layer = {};
    int start = 0;
    if constexpr (KIND != NONE) {
        const Side side = side_of(memory.sides, zone.side - 1);
        layer = layer_of<KIND>(side, memory.values, memory.coefficients, extents.rows, words, line, word, live);
        start = side.start;
    }
    RowLayer<ALONG> row_layer = {};
    if constexpr (ALONG != NONE) {
        const Side side = side_of(memory.sides, zone.along - 1);
        const int apart = zone.axis ? 1 : extents.rows, beside = zone.axis ? extents.rows : 1;  // rows from place to place
        row_layer = row_layer_of<ALONG>(side, memory.values, memory.coefficients, apart, line * beside, word, live);
    }
    float4* own = shared + DEPTH * TILE + number;
    i64 here = begin * stride + line * across + word;
    const auto copy_own = [&](int m, i64 at, int slot) {
        if (!live) return;
        float4* to = own + slot * OWN * TILE_THREADS;
        copy_ahead(to, job.target + at);
        copy_ahead(to + TILE_THREADS, job.beside + at);
        if constexpr (KIND != NONE) {
            const int k = m - start;
            if (layer.remembers(k)) {
                copy_ahead(to + OF_MARCH * TILE_THREADS, layer.psi + layer.of_flux(k) * layer.stride);
                copy_ahead(to + (OF_MARCH + 1) * TILE_THREADS, layer.zeta + layer.of_curve(k) * layer.stride);
            }
        }
        if constexpr (ALONG != NONE) {
            if (row_layer.inside) {
                copy_ahead(to + OF_ROW * TILE_THREADS, row_layer.psi + m * row_layer.stride);
                copy_ahead(to + (OF_ROW + 1) * TILE_THREADS, row_layer.zeta + m * row_layer.stride);
            }
        }
        job.copy_more(to + OF_JOB * TILE_THREADS, at);
    };

    for (int k = 0; k <= RADIUS; ++k) copy_plane(begin + k, k);
    copy_own(begin, here, 0);
    end_of_stage();
#pragma unroll
    for (int k = 1; k < AHEAD; ++k) {
        if (begin + k < end) {
            copy_plane(begin + k + RADIUS, k + RADIUS);
            copy_own(begin + k, here + k * stride, k);
        }
        end_of_stage();
    }
    float4 planes[QUEUE] = {};  // m - RADIUS ... m + RADIUS
    if (live) {
#pragma unroll
        for (int k = 1; k < QUEUE; ++k) planes[k] = __ldg(p + here + (k - RADIUS - 1) * stride);
        if constexpr (KIND == BACK) {
#pragma unroll
            for (int k = 0; k < RADIUS; ++k) {
                const int i = begin - start + k, at = i >= 0 && i < layer.count ? i : 0;
                layer.push(i, planes[RADIUS + 1 + k], planes[RADIUS + k], layer.psi[at * layer.stride],
                           layer.zeta[at * layer.stride]);
            }
        }
    }

    int now = 0, front = RADIUS, next = DEPTH - 1, mine = 0;  // slots in shared memory
    for (int m = begin; m < end; ++m, here += stride) {
        wait_for_stage<AHEAD - 1>();
        if (m + AHEAD < end) copy_plane(m + AHEAD + RADIUS, next);
        const float4* centre = shared + (height + RADIUS) * PITCH + column + 1;
        const float4* at = centre + now * TILE;
#pragma unroll
        for (int k = 0; k < QUEUE - 1; ++k) planes[k] = planes[k + 1];
        planes[QUEUE - 1] = centre[front * TILE];
        const float4 left = at[-1], right = at[1], c = planes[RADIUS];
        const float row[12] = {left.x, left.y, left.z,  left.w,  c.x,     c.y,
                               c.z,    c.w,    right.x, right.y, right.z, right.w};
        float4 in_march = times(S.c[0], c), in_line = in_march, in_x = in_march;
        add_neighbours<1, PITCH>(at, row, planes, in_march, in_line, in_x);
        const float4* loaded = own + mine * OWN * TILE_THREADS;
        if constexpr (KIND == FORWARD) {
            in_march = plus(in_march, layer.forward(m - start, planes, in_march, loaded[OF_MARCH * TILE_THREADS],
                                                    loaded[(OF_MARCH + 1) * TILE_THREADS]));
        } else if constexpr (KIND == BACK) {
            layer.push(m - start + RADIUS, planes[QUEUE - 1], planes[QUEUE - 2], loaded[OF_MARCH * TILE_THREADS],
                       loaded[(OF_MARCH + 1) * TILE_THREADS]);
            in_march = plus(in_march, layer.returned.change());
        }
        if constexpr (ALONG == FORWARD) {
            in_x = plus(in_x, row_layer.forward(m, row, in_x, loaded[OF_ROW * TILE_THREADS],
                                                loaded[(OF_ROW + 1) * TILE_THREADS]));
        } else if constexpr (ALONG == BACK) {
            in_x = plus(in_x, row_layer.back(m, c, loaded[OF_ROW * TILE_THREADS], loaded[(OF_ROW + 1) * TILE_THREADS]));
        }
        const float4 lap = fused(w.x, in_x, fused(w_across, in_line, times(w_march, in_march)));
        if (live) {
            job.finish(here, zone.axis ? line : m, word, c, lap, loaded[0], loaded[TILE_THREADS],
                       loaded + OF_JOB * TILE_THREADS);
        }
        if (m + AHEAD < end) copy_own(m + AHEAD, here + AHEAD * stride, mine);  // where this plane's words were
        end_of_stage();
        now = now + 1 < DEPTH ? now + 1 : 0;
        front = front + 1 < DEPTH ? front + 1 : 0;
        next = next + 1 < DEPTH ? next + 1 : 0;
        mine = mine + 1 < AHEAD ? mine + 1 : 0;
    }
}

struct Advance {
    static constexpr int MORE = 0;  // words that are copied ahead beside those of its two fields

    float4* __restrict__ target;        // the older field
    const float4* __restrict__ beside;  // the squared velocity
    i64 plane;
    int mirrored;  // the last plane that is mirrored above a free surface, or 0
    int end;       // one past the last computed point of a row

    __device__ void copy_more(float4*, i64) const {}

    __device__ void step(i64 here, int z, int word, float4 centre, float4 lap, float4 before, float4 speed) const {
        float4 after = fused(speed, lap, minus(plus(centre, centre), before));
        const int kept = end - 4 * word;
        if (kept < 4) after = make_float4(after.x, kept > 1 ? after.y : 0, kept > 2 ? after.z : 0, 0);
        __stcs(target + here, after);
        if (z <= mirrored && z > RADIUS) target[here - 2 * (z - RADIUS) * plane] = times(-1.0f, after);
    }

    __device__ void finish(i64 here, int z, int word, float4 centre, float4 lap, float4 before, float4 speed,
                           const float4*) const {
        step(here, z, word, centre, lap, before, speed);
    }
};

struct AdvanceAndSense {
    static constexpr int MORE = 2;

    Advance advance;
    float4* __restrict__ target;
    const float4* __restrict__ beside;
    const float4* __restrict__ record;
    float4* __restrict__ total;
    float factor;

    __device__ void copy_more(float4* to, i64 at) const {
        copy_ahead(to, record + at);
        copy_ahead(to + TILE_THREADS, total + at);
    }

    __device__ void finish(i64 here, int z, int word, float4 centre, float4 lap, float4 before, float4 speed,
                           const float4* more) const {
        const float4 known = more[0], sum = more[TILE_THREADS];
        advance.step(here, z, word, centre, lap, before, speed);
        // Where nothing is computed the record is zero, and so is what is added.
        __stcs(total + here, fused(times(factor, known), lap, sum));
    }
};

// Each kernel can be compiled alone, beside the others: ONE_KERNEL and its own name in capitals are 1 then.

#if !ONE_KERNEL || ADVANCE
// Step once: `old` becomes the newer field, and what layers remember goes along.
extern "C" __global__ void __launch_bounds__(TILE_THREADS, BLOCKS)
    advance(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ squared,
            float4* __restrict__ memory, const float* __restrict__ coefficients, const int* __restrict__ sides,
            const int* __restrict__ table, int zones, int planes, int rows, int words, int end, int mirrored,
            float w_z, float w_y, float w_x) {
    const Zone zone = zone_of(table, zones, blockIdx.x);
    const Advance job = {old, squared, static_cast<i64>(rows) * words, mirrored, end};
    const Extents extents = {planes, rows, words, end};
    const Memory layers = {memory, coefficients, sides};
    if (zone.side && zone.along) return march<FORWARD, FORWARD>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
    if (zone.side) return march<FORWARD, NONE>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
    if (zone.along) return march<NONE, FORWARD>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
    march<NONE, NONE>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
}
#endif

#if !ONE_KERNEL || RETREAT
// Step once back: the transpose.
extern "C" __global__ void __launch_bounds__(TILE_THREADS, BLOCKS)
    retreat(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ squared,
            float4* __restrict__ memory, const float* __restrict__ coefficients, const int* __restrict__ sides,
            const int* __restrict__ table, int zones, int planes, int rows, int words, int end, int mirrored,
            float w_z, float w_y, float w_x) {
    const Zone zone = zone_of(table, zones, blockIdx.x);
    const Advance job = {old, squared, static_cast<i64>(rows) * words, mirrored, end};
    const Extents extents = {planes, rows, words, end};
    const Memory layers = {memory, coefficients, sides};
    if (zone.side && zone.along) return march<BACK, BACK>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
    if (zone.side) return march<BACK, NONE>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
    if (zone.along) return march<NONE, BACK>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
    march<NONE, NONE>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
}
#endif

#if !ONE_KERNEL || RETREAT_AND_SENSE
// Step once back, and add factor times `record` times what the velocity multiplies in the step to a total.
extern "C" __global__ void __launch_bounds__(TILE_THREADS, BLOCKS)
    retreat_and_sense(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ squared,
                      float4* __restrict__ memory, const float* __restrict__ coefficients,
                      const int* __restrict__ sides, const int* __restrict__ table, int zones, int planes, int rows,
                      int words, int end, int mirrored, float w_z, float w_y, float w_x,
                      const float4* __restrict__ record, float4* __restrict__ total, float factor) {
    const Zone zone = zone_of(table, zones, blockIdx.x);
    const Advance step = {old, squared, static_cast<i64>(rows) * words, mirrored, end};
    const AdvanceAndSense job = {step, old, squared, record, total, factor};
    const Extents extents = {planes, rows, words, end};
    const Memory layers = {memory, coefficients, sides};
    if (zone.side && zone.along) return march<BACK, BACK>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
    if (zone.side) return march<BACK, NONE>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
    if (zone.along) return march<NONE, BACK>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
    march<NONE, NONE>(p, extents, zone, layers, {w_z, w_y, w_x}, job);
}
#endif

#if !ONE_KERNEL || CHANGE
// What layers of rows change that no stencil knows of, taken from the older field before a step.
extern "C" __global__ void change(const float4* __restrict__ p, float4* __restrict__ old,
                                  const float4* __restrict__ squared, float4* __restrict__ memory,
                                  const float* __restrict__ coefficients, const int* __restrict__ sides,
                                  const int* __restrict__ table, int parts, int rows, int words, int first_word, int end,
                                  float w_z, float w_y, float w_x) {
    change_parts<FORWARD>(p, {old, squared, nullptr, nullptr, 0}, memory, coefficients, sides, table, parts,
                          {rows, words, first_word, end}, {w_z, w_y, w_x});
}
#endif

#if !ONE_KERNEL || CHANGE_BACK
// The same before a step back; where there is a total, factor times `record` times the change is added to it.
extern "C" __global__ void change_back(const float4* __restrict__ p, float4* __restrict__ old,
                                       const float4* __restrict__ squared, float4* __restrict__ memory,
                                       const float* __restrict__ coefficients, const int* __restrict__ sides,
                                       const int* __restrict__ table, int parts, int rows, int words, int first_word, int end,
                                       float w_z, float w_y, float w_x,
                                       const float4* __restrict__ record, float4* __restrict__ total, float factor) {
    change_parts<BACK>(p, {old, squared, record, total, factor}, memory, coefficients, sides, table, parts,
                          {rows, words, first_word, end}, {w_z, w_y, w_x});
}
#endif
