// What the elastic loops on a GPU share: words of a row, derivatives between staggered points, and who computes what.
//
// Fields are float32 with the last axis contiguous, laid out as in acoustic.cu: the first computed point of a row is the
// fifth, and all around the computed points a field is zero. A thread owns a word of a row, of 1, 2 or 4 points, and
// marches along the first axis. Of each field that is differentiated along that axis it keeps a queue of planes in
// registers; neighbours along the other axes come from the caches. What only memory can give for the next plane is
// loaded before the current one is computed.
//
// All products and sums that are contracted are written as such, so that every variant gives the same bits.

#ifndef AXES
#define AXES 3
#endif
#ifndef RADIUS  // of the stencil, at most 4
#define RADIUS 4
#endif
#ifndef WIDE  // points of a word
#define WIDE 2
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
#ifndef EARLY  // whether what is used in one plane only is loaded while the one before it is computed
#define EARLY 1
#endif
#ifndef AHEAD  // planes by which the second-level cache is filled ahead of the loads, or 0
#define AHEAD 0
#endif
#ifndef STAGED  // whether that is loaded into shared memory, which takes no registers
#define STAGED 0
#endif
#ifndef ROWS  // extents of a field that the compiler shall know, or 0
#define ROWS 0
#endif
#ifndef WORDS
#define WORDS 0
#endif

typedef unsigned int u32;
typedef long long i64;

#if WIDE == 4
typedef float4 Raw;
#elif WIDE == 2
typedef float2 Raw;
#else
typedef float Raw;
#endif

struct alignas(sizeof(Raw)) Word {
    float at[WIDE];
};

constexpr int QUEUE = 2 * RADIUS;
constexpr int Z = 0, Y = 1, X = AXES - 1;  // numbers of the axes
constexpr int FIRST = 4 / WIDE;                    // word with the first computed point
constexpr int NEAR = (RADIUS + WIDE - 1) / WIDE;  // words on each side that a stencil reaches

struct Stencil {
    float c[RADIUS];
};

// The weights of elastic_stencil.py, rounded as they are there.
__device__ constexpr Stencil first_derivative() {
    Stencil s = {};
    for (int k = 0; k < RADIUS; ++k) {
        const double one = (2 * k + 1) * (2 * k + 1);
        double weight = k % 2 ? -1.0 : 1.0;
        for (int j = 0; j < RADIUS; ++j) {
            const double other = (2 * j + 1) * (2 * j + 1);
            if (j != k) weight *= other / (one > other ? one - other : other - one);
        }
        s.c[k] = static_cast<float>(weight / (2 * k + 1));
    }
    return s;
}

__device__ constexpr Stencil S = first_derivative();

template <typename Value>
__device__ inline Word each(Value value) {
    Word found;
#pragma unroll
    for (int i = 0; i < WIDE; ++i) found.at[i] = value(i);
    return found;
}

// Read what neighbours read too.
__device__ inline Word shared(const Word* at) {
    const Raw raw = __ldg(reinterpret_cast<const Raw*>(at));
    return reinterpret_cast<const Word&>(raw);
}

// Read and write what is used once, and need not stay in a cache.
__device__ inline Word once(const Word* at) {
    const Raw raw = __ldcs(reinterpret_cast<const Raw*>(at));
    return reinterpret_cast<const Word&>(raw);
}

__device__ inline void put(Word* at, const Word& word) {
    __stcs(reinterpret_cast<Raw*>(at), reinterpret_cast<const Raw&>(word));
}

__device__ inline void fetch_ahead(const void* at) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#endif
}

// Keep the compiler from having an address in registers for each field: it shall add the place to each base instead.
__device__ inline void unforeseen(u32& place) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(place));
#endif
}

// What a thread loads for its next plane while it computes one: into words of its own in shared memory.
template <int count>
struct Stage {
#if defined(__CUDA_ARCH__) && STAGED
    u32 mine;

    __device__ Stage() {
        __shared__ Word words[count * BLOCK_X * BLOCK_Y];
        mine = static_cast<u32>(__cvta_generic_to_shared(words + threadIdx.y * BLOCK_X + threadIdx.x));
    }

    __device__ void ask(int number, const Word* from) const {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(mine + number * BLOCK_X * BLOCK_Y * static_cast<u32>(sizeof(Word))),
                     "l"(from), "n"(sizeof(Word)) : "memory");
    }

    __device__ void asked() const { asm volatile("cp.async.commit_group;" ::: "memory"); }

    // Wait for all but the last `groups` that were asked for.
    template <int groups>
    __device__ void wait() const { asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory"); }

    __device__ Word take(int number, const Word*) const {
        Word found;
        const u32 at = mine + number * BLOCK_X * BLOCK_Y * static_cast<u32>(sizeof(Word));
#if WIDE == 4
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(found.at[0]), "=f"(found.at[1]), "=f"(found.at[2]), "=f"(found.at[3]) : "r"(at) : "memory");
#elif WIDE == 2
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(found.at[0]), "=f"(found.at[1]) : "r"(at) : "memory");
#else
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(found.at[0]) : "r"(at) : "memory");
#endif
        return found;
    }
#else
    __device__ void ask(int, const Word*) const {}
    __device__ void asked() const {}
    template <int groups>
    __device__ void wait() const {}
    __device__ Word take(int, const Word* from) const { return shared(from); }
#endif
};

// One over a number, to the last bit or the one before; of infinity, zero.
__device__ inline float inverse(float value) {
#ifdef __CUDA_ARCH__
    float found;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(value));
    return found;
#else
    return 1.0f / value;
#endif
}

// Give the points one further along the row; `after` is the one that follows the word.
__device__ inline Word moved(const Word& word, float after) {
    return each([&](int i) { return i + 1 < WIDE ? word.at[i + 1 < WIDE ? i + 1 : i] : after; });
}

__device__ inline Word sum(const Word& a, const Word& b) {
    return each([&](int i) { return a.at[i] + b.at[i]; });
}

// Derivatives along each axis, in points, at the half points after the field's (half = 1) or before them (half = 0).
template <int half>
__device__ inline Word derivative(const float* row) {
    return each([&](int i) {
        float total = 0;
#pragma unroll
        for (int k = 0; k < RADIUS; ++k) {
            const int middle = NEAR * WIDE + i + half;
            total = fmaf(S.c[k], row[middle + k] - row[middle - 1 - k], total);
        }
        return total;
    });
}

template <int half>
__device__ inline Word along_x(const Word* __restrict__ field, const Word& centre) {
    float row[(2 * NEAR + 1) * WIDE];
#pragma unroll
    for (int word = -NEAR; word <= NEAR; ++word) {
        const Word near = word ? shared(field + word) : centre;
#pragma unroll
        for (int i = 0; i < WIDE; ++i) row[(NEAR + word) * WIDE + i] = near.at[i];
    }
    return derivative<half>(row);
}

template <int half>
__device__ inline Word along_y(const Word* __restrict__ field, int words, const Word& centre) {
    Word total = {};
#pragma unroll
    for (int k = 0; k < RADIUS; ++k) {
        const int after = half + k, before = half - 1 - k;
        const Word one = after ? shared(field + after * words) : centre;
        const Word other = before ? shared(field + before * words) : centre;
        total = each([&](int i) { return fmaf(S.c[k], one.at[i] - other.at[i], total.at[i]); });
    }
    return total;
}

// The planes around the current one, z - RADIUS + half to z + RADIUS - 1 + half.
template <int half>
struct Queue {
    Word at[QUEUE];

    // Load all but the last of those around a plane, one place further on than they will be.
    __device__ void fill(const Word* __restrict__ field, int plane) {
#pragma unroll
        for (int k = 1; k < QUEUE; ++k) at[k] = shared(field + (k - 1 - RADIUS + half) * plane);
    }

    __device__ void push(const Word& last) {
#pragma unroll
        for (int k = 0; k < QUEUE - 1; ++k) at[k] = at[k + 1];
        at[QUEUE - 1] = last;
    }

    __device__ static Word last(const Word* __restrict__ field, int plane) {
        return shared(field + (RADIUS - 1 + half) * plane);
    }

    __device__ const Word& centre() const { return at[RADIUS - half]; }

    // The derivative along depth; near a free surface the weights of a plane are in a table, over the spacing.
    __device__ Word slope(const float* __restrict__ table, float w) const {
        if (table) {
            return each([&](int i) {
                float total = 0;
#pragma unroll
                for (int k = 0; k < QUEUE; ++k) total = fmaf(table[k], at[k].at[i], total);
                return total;
            });
        }
        return each([&](int i) {
            float total = 0;
#pragma unroll
            for (int k = 0; k < RADIUS; ++k) {
                total = fmaf(S.c[k], at[RADIUS + k].at[i] - at[RADIUS - 1 - k].at[i], total);
            }
            return w * total;
        });
    }
};

// The extents of a field, in words along rows.
struct Shape {
    int planes, rows, words;
    int end;  // one past the last computed point of a row
};

// One over the spacing of each axis, and the derivatives along depth of those planes that are above `closed`.
struct Slopes {
    float z, y, x;
    const float *ahead, *back;
    int closed;

    __device__ const float* of(const float* table, int plane) const {
        return plane < closed ? table + plane * QUEUE : nullptr;
    }
};

// What a thread block computes, from a table: words, rows and planes, its threads along rows, and whether layers reach
// there, which costs all of its threads.
struct Tile {
    int word, words_end, row, rows_end, plane, planes_end, along, layered;

    __device__ static const Tile& of(const int* __restrict__ tiles) {
        return reinterpret_cast<const Tile*>(tiles)[blockIdx.x];
    }
};

// A thread's word and planes.
struct Column {
    int word, row, begin, end, words;
    u32 plane, here;  // fields have less than 2^32 points
    int kept;  // points of the word that are computed

    __device__ Column(const Shape& shape, const Tile& tile) {
        const int thread = threadIdx.y * BLOCK_X + threadIdx.x, along = tile.along;
        const int across = thread / along;
        word = tile.word + thread % along;
        row = AXES == 3 ? tile.row + across : 0;
        begin = tile.plane, end = tile.planes_end;
        if (AXES == 2) {  // each has a stretch of the first axis to itself
            const int chunk = (end - begin + BLOCK_X * BLOCK_Y / along - 1) / (BLOCK_X * BLOCK_Y / along);
            begin += across * chunk;
            end = min(begin + chunk, end);
        }
        words = WORDS ? WORDS : shape.words;
        plane = (ROWS ? ROWS : shape.rows) * words;
        here = begin * plane + row * words + word;
        kept = shape.end - WIDE * word;
        if (word >= tile.words_end || kept <= 0 || (AXES == 3 && row >= tile.rows_end)) end = begin;
    }

    __device__ Word trimmed(const Word& value) const {
        if (kept >= WIDE) return value;
        return each([&](int i) { return i < kept ? value.at[i] : 0; });
    }
};

// The absorbing layers of elastic_layers.py: the memory of derivatives on the way forward, of fields on the way back.
// Of each axis there are 2 AXES memory fields: those at velocities, then those at stresses.
enum Way { PLAIN, FORWARD, BACK };  // the first where there are none

struct Layers {
    Word* memory;
    const float *a_z, *b_z, *g_z, *a_y, *b_y, *g_y;  // at whole points, then at half ones
    const Word *a_x, *b_x, *g_x;
    int z_low, z_high, y_low, y_high, x_low, x_high;  // one past the layers before the model, and where those after begin

    // Of a thread, in which each axis has some memory fields.
    int fields, planes, rows, words, z, row, word;
    u32 in_plane, plane, from_y, from_x;
    int deep, wide, slot_y, slot_x;  // places of layers along rows' planes and along rows, and the thread's

    __device__ static int slot(int at, int first, int low, int high) {
        return at < low ? at - first : at >= high ? at - high + low - first : -1;
    }

    __device__ void begin(const Column& column, const Shape& shape, int count = 2 * AXES) {
        fields = count, planes = shape.planes, rows = ROWS ? ROWS : shape.rows, words = column.words;
        row = column.row, word = column.word, plane = column.plane, in_plane = row * words + word;
        x_low /= WIDE, x_high /= WIDE;
        wide = x_low - FIRST + (shape.end + 3) / 4 * (4 / WIDE) - x_high;
        deep = AXES == 3 ? y_low - RADIUS + rows - RADIUS - y_high : 0;
        from_y = fields * (z_low - RADIUS + planes - RADIUS - z_high) * plane;
        from_x = from_y + fields * planes * deep * words;
        slot_y = AXES == 3 ? slot(row, RADIUS, y_low, y_high) : -1;
        slot_x = slot(word, FIRST, x_low, x_high);
    }

    // By what a field at whole points (0) or half ones (1) of each axis fades.
    template <int half_z, int half_y, int half_x>
    __device__ Word fade() const {
        const float beside = g_z[half_z * planes + z] * (AXES == 3 ? g_y[half_y * rows + row] : 1.0f);
        const Word along = shared(g_x + half_x * words + word);
        return each([&](int i) { return beside * along.at[i]; });
    }

    __device__ Word* at_z(int number, int slot) const {
        return memory + ((number * (z_low - RADIUS + planes - RADIUS - z_high) + slot) * plane + in_plane);
    }

    __device__ Word* at_y(int number, int slot) const {
        return memory + (from_y + ((number * planes + z) * deep + slot) * words + word);
    }

    __device__ Word* at_x(int number, int slot) const {
        return memory + (from_x + ((number * planes + z) * rows + row) * wide + slot);
    }

    // Fill the second-level cache with what the next plane remembers, for which there are too few registers.
    __device__ void fetch(int here) const {
        const int place = slot(z + 1, RADIUS, z_low, z_high);
        const bool deeper = place >= 0 && z + 1 < planes - RADIUS;
#pragma unroll
        for (int of = 0; of < AXES; ++of) {
            if (deeper) fetch_ahead(at_z(here + of, place));
            if (slot_y >= 0) fetch_ahead(at_y(here + of, slot_y) + deep * words);
            if (slot_x >= 0) fetch_ahead(at_x(here + of, slot_x) + rows * wide);
        }
    }

    // Let a derivative or a field be remembered, and return its memory.
    __device__ static Word remembered(Word* at, const Word& value, float a, float b) {
        const Word before = once(at);
        const Word after = each([&](int i) { return fmaf(b, before.at[i], a * value.at[i]); });
        put(at, after);
        return after;
    }

    __device__ static Word remembered(Word* at, const Word& value, const Word& a, const Word& b) {
        const Word before = once(at);
        const Word after = each([&](int i) { return fmaf(b.at[i], before.at[i], a.at[i] * value.at[i]); });
        put(at, after);
        return after;
    }

    template <int half>
    __device__ Word remember_z(int number, const Word& value) const {
        const int place = slot(z, RADIUS, z_low, z_high);
        if (place < 0) return Word{};
        return remembered(at_z(number, place), value, a_z[half * planes + z], b_z[half * planes + z]);
    }

    template <int half>
    __device__ Word remember_y(int number, const Word& value) const {
        if (AXES == 2 || slot_y < 0) return Word{};
        return remembered(at_y(number, slot_y), value, a_y[half * rows + row], b_y[half * rows + row]);
    }

    template <int half>
    __device__ Word remember_x(int number, const Word& value) const {
        if (slot_x < 0) return Word{};
        const Word a = shared(a_x + half * words + word), b = shared(b_x + half * words + word);
        return remembered(at_x(number, slot_x), value, a, b);
    }

    // Derivatives of memory along its own axis, in points; it is zero outside of the layers.
    template <int half, typename Load>
    __device__ static Word across(int at, int first, int low, int high, int last, Load load) {
        Word total = {};
        if (at >= low + RADIUS && at < high - RADIUS) return total;
#pragma unroll
        for (int k = 0; k < QUEUE; ++k) {
            const int near = at + k - RADIUS + half, place = slot(near, first, low, high);
            if (near < first || near >= last || place < 0) continue;
            const float weight = k < RADIUS ? -S.c[k < RADIUS ? RADIUS - 1 - k : 0] : S.c[k < RADIUS ? 0 : k - RADIUS];
            const Word word = shared(load(place));
            total = each([&](int i) { return fmaf(weight, word.at[i], total.at[i]); });
        }
        return total;
    }

    template <int half>
    __device__ Word recall_z(int number) const {
        return across<half>(z, RADIUS, z_low, z_high, planes - RADIUS, [&](int place) { return at_z(number, place); });
    }

    template <int half>
    __device__ Word recall_y(int number) const {
        if (AXES == 2) return Word{};
        return across<half>(row, RADIUS, y_low, y_high, rows - RADIUS, [&](int place) { return at_y(number, place); });
    }

    template <int half>
    __device__ Word recall_x(int number) const {
        if (word >= x_low + NEAR && word < x_high - NEAR) return Word{};
        float near[(2 * NEAR + 1) * WIDE];
#pragma unroll
        for (int k = -NEAR; k <= NEAR; ++k) {
            const int place = slot(word + k, FIRST, x_low, x_high);
            const bool there = word + k >= FIRST && place >= 0 && place < wide;
            const Word found = there ? shared(at_x(number, place)) : Word{};
#pragma unroll
            for (int i = 0; i < WIDE; ++i) near[(NEAR + k) * WIDE + i] = found.at[i];
        }
        return derivative<half>(near);
    }

    // What takes the place of a derivative for the field whose memory fields begin at `here`.
    template <Way way, int half>
    __device__ Word z_of(int here, int of, const Word& slope, float w) const {
        if constexpr (way == PLAIN) return slope;
        if constexpr (way == FORWARD) return sum(slope, remember_z<half>(here + of, slope));
        const Word more = recall_z<half>(AXES - here + of);
        return each([&](int i) { return fmaf(w, more.at[i], slope.at[i]); });
    }

    template <Way way, int half>
    __device__ Word y_of(int here, int of, const Word& slope) const {
        if constexpr (way == PLAIN) return slope;
        if constexpr (way == FORWARD) return sum(slope, remember_y<half>(here + of, slope));
        return sum(slope, recall_y<half>(AXES - here + of));
    }

    template <Way way, int half>
    __device__ Word x_of(int here, int of, const Word& slope) const {
        if constexpr (way == PLAIN) return slope;
        if constexpr (way == FORWARD) return sum(slope, remember_x<half>(here + of, slope));
        return sum(slope, recall_x<half>(AXES - here + of));
    }
};

// The layers among the arguments of a kernel.
#define LAYERS                                                                                                        \
    Word *pml, const float *__restrict__ a_z, const float *__restrict__ b_z, const float *__restrict__ g_z,           \
        const float *__restrict__ a_y, const float *__restrict__ b_y, const float *__restrict__ g_y,                  \
        const Word *__restrict__ a_x, const Word *__restrict__ b_x, const Word *__restrict__ g_x, int z_low, int z_high, \
        int y_low, int y_high, int x_low, int x_high
#define GIVEN_LAYERS pml, a_z, b_z, g_z, a_y, b_y, g_y, a_x, b_x, g_x, z_low, z_high, y_low, y_high, x_low, x_high

// fade (fade field + by push), as all fields are advanced; outside of layers nothing fades.
__device__ inline Word advanced(const Word& field, const Word& by, const Word& push) {
    return each([&](int i) { return fmaf(by.at[i], push.at[i], field.at[i]); });
}

__device__ inline Word advanced(const Word& field, const Word& by, const Word& push, const Word& fade) {
    return each([&](int i) { return fade.at[i] * fmaf(by.at[i], push.at[i], fade.at[i] * field.at[i]); });
}
