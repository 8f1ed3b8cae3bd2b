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

#ifndef PARTS  // which kernels are compiled, a bit for each: the others do nothing
#define PARTS 15
#endif

typedef unsigned int u32;
typedef long long i64;

constexpr bool AHEAD_IN_TIME = PARTS & 1, BACK_IN_TIME = PARTS & 2, IMAGING = PARTS & 4, SENSING = PARTS & 8;

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

    __device__ explicit Stage(bool used) {
        if (!used) return;
        __shared__ Word words[count * BLOCK_X * BLOCK_Y];
        mine = static_cast<u32>(__cvta_generic_to_shared(words + threadIdx.y * BLOCK_X + threadIdx.x));
    }

    __device__ u32 at(int number) const { return mine + number * BLOCK_X * BLOCK_Y * static_cast<u32>(sizeof(Word)); }

    __device__ void ask(int number, const Word* from) const {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at(number)), "l"(from), "n"(sizeof(Word))
                     : "memory");
    }

    __device__ void asked() const { asm volatile("cp.async.commit_group;" ::: "memory"); }

    __device__ void wait() const { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

    __device__ Word take(int number, const Word*) const {
        Word found;
#if WIDE == 4
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(found.at[0]), "=f"(found.at[1]), "=f"(found.at[2]), "=f"(found.at[3])
                     : "r"(at(number))
                     : "memory");
#elif WIDE == 2
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(found.at[0]), "=f"(found.at[1])
                     : "r"(at(number))
                     : "memory");
#else
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(found.at[0]) : "r"(at(number)) : "memory");
#endif
        return found;
    }
#else
    __device__ explicit Stage(bool) {}
    __device__ void ask(int, const Word*) const {}
    __device__ void asked() const {}
    __device__ void wait() const {}
    __device__ Word take(int, const Word* from) const { return once(from); }
#endif
};

template <>
struct Stage<0> {
    __device__ void ask(int, const Word*) const {}
    __device__ Word take(int, const Word* from) const { return once(from); }
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

// What a thread block computes, from a table: words, rows and planes, its threads along rows, and the axes whose layers
// reach there.
struct Tile {
    int word, words_end, row, rows_end, plane, planes_end, along, axes;

    __device__ static const Tile& of(const int* __restrict__ tiles) {
        return reinterpret_cast<const Tile*>(tiles)[blockIdx.x];
    }
};

// A bit for each axis whose layers reach a thread block, whose code knows no others. Layers along rows are known wherever
// there are others, since they reach into many thread blocks.
constexpr int NONE = 0, ON_Z = 1, ON_Y = 2, ON_X = 4;

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
enum Way { FORWARD, BACK };

struct Layers {
    Word* memory;
    const float *a_z, *b_z, *g_z, *a_y, *b_y, *g_y;  // at whole points, then at half ones
    const Word *a_x, *b_x, *g_x;
    int z_low, z_high, y_low, y_high, x_low, x_high;  // one past the layers before the model, and where those after begin
};

// The layers as a thread sees them that changes the fields whose memory begins at `own`. The memory of one axis is loaded
// ahead, into the last words of the stage.
template <Way way, int on, int own, int count>
struct Slabs : Layers {
    static constexpr int staged = !STAGED || !count ? NONE : on & ON_Z ? ON_Z : on & ON_Y ? ON_Y : on & ON_X;
    static constexpr bool doubled = way == BACK && (on & ON_Z);  // queues along depth hold fields with their memory

    const Stage<count>* stage;
    int fields, planes, rows, words, z, row, word;
    u32 in_plane, plane, from_y, from_x;
    int thick, deep, wide, slot_y, slot_x;  // places of layers along each axis, and the thread's

    __device__ static int slot(int at, int first, int low, int high, int last) {
        return at < first || at >= last ? -1 : at < low ? at - first : at >= high ? at - high + low - first : -1;
    }

    __device__ Slabs(const Layers& layers, const Column& column, const Shape& shape, const Stage<count>* ahead,
                     int of_each = 2 * AXES)
        : Layers(layers), stage(ahead) {
        fields = of_each, planes = shape.planes, rows = ROWS ? ROWS : shape.rows, words = column.words;
        row = column.row, word = column.word, plane = column.plane, in_plane = row * words + word;
        x_low /= WIDE, x_high /= WIDE;
        const int last = (shape.end + 3) / 4 * (4 / WIDE);
        thick = z_low - RADIUS + planes - RADIUS - z_high;
        deep = AXES == 3 ? y_low - RADIUS + rows - RADIUS - y_high : 0;
        wide = x_low - FIRST + last - x_high;
        from_y = fields * thick * plane;
        from_x = from_y + fields * planes * deep * words;
        slot_y = AXES == 3 && (on & ON_Y) ? slot(row, RADIUS, y_low, y_high, rows - RADIUS) : -1;
        slot_x = on & ON_X ? slot(word, FIRST, x_low, x_high, last) : -1;
    }

    __device__ int slot_z(int at) const { return slot(at, RADIUS, z_low, z_high, planes - RADIUS); }

    // By what a field at whole points (0) or half ones (1) of each axis fades.
    template <int half_z, int half_y, int half_x>
    __device__ Word fade() const {
        float beside = on & ON_Z ? g_z[half_z * planes + z] : 1.0f;
        if constexpr (AXES == 3 && (on & ON_Y)) beside *= g_y[half_y * rows + row];
        if constexpr ((on & ON_X) == 0) return each([&](int) { return beside; });
        const Word along = shared(g_x + half_x * words + word);
        return each([&](int i) { return beside * along.at[i]; });
    }

    __device__ Word* at_z(int number, int slot) const { return memory + ((number * thick + slot) * plane + in_plane); }

    __device__ Word* at_y(int number, int slot, int z) const {
        return memory + (from_y + ((number * planes + z) * deep + slot) * words + word);
    }

    __device__ Word* at_x(int number, int slot, int z) const {
        return memory + (from_x + ((number * planes + z) * rows + row) * wide + slot);
    }

    // Ask for what a plane remembers: into the stage, or for the other axes into the second-level cache.
    template <int axis>
    __device__ void ask(int of, const Word* at) const {
        if constexpr (axis == staged) {
            stage->ask(count - AXES + of, at);
        } else {
            fetch_ahead(at);
        }
    }

    __device__ void ask(int next) const {
        const int place = on & ON_Z ? slot_z(next) : -1;
#pragma unroll
        for (int of = 0; of < AXES; ++of) {
            if ((on & ON_Z) && place >= 0) ask<ON_Z>(of, at_z(own + of, place));
            if ((on & ON_Y) && slot_y >= 0) ask<ON_Y>(of, at_y(own + of, slot_y, next));
            if ((on & ON_X) && slot_x >= 0) ask<ON_X>(of, at_x(own + of, slot_x, next));
        }
    }

    // Let a derivative or a field be remembered, and return its memory.
    template <int axis, typename Value>
    __device__ Word remembered(Word* at, int number, const Word& value, Value a, Value b) const {
        const Word before = axis == staged ? stage->take(count - AXES + number - own, at) : once(at);
        const Word after = each([&](int i) { return fmaf(of(b, i), before.at[i], of(a, i) * value.at[i]); });
        put(at, after);
        return after;
    }

    __device__ static float of(float value, int) { return value; }
    __device__ static float of(const Word& value, int i) { return value.at[i]; }

    template <int half>
    __device__ Word remember_z(int number, const Word& value) const {
        const int place = on & ON_Z ? slot_z(z) : -1;
        if (place < 0) return Word{};
        return remembered<ON_Z>(at_z(number, place), number, value, a_z[half * planes + z], b_z[half * planes + z]);
    }

    template <int half>
    __device__ Word remember_y(int number, const Word& value) const {
        if (AXES == 2 || !(on & ON_Y) || slot_y < 0) return Word{};
        return remembered<ON_Y>(at_y(number, slot_y, z), number, value, a_y[half * rows + row], b_y[half * rows + row]);
    }

    template <int half>
    __device__ Word remember_x(int number, const Word& value) const {
        if (!(on & ON_X) || slot_x < 0) return Word{};
        const Word a = shared(a_x + half * words + word), b = shared(b_x + half * words + word);
        return remembered<ON_X>(at_x(number, slot_x, z), number, value, a, b);
    }

    // Derivatives of memory along its own axis, in points; it is zero outside of the layers. Along depth, queues hold
    // the sum of a field and its memory instead.
    template <int half>
    __device__ Word recall_y(int number) const {
        Word total = {};
        if (AXES == 2 || !(on & ON_Y)) return total;
#pragma unroll
        for (int k = 0; k < QUEUE; ++k) {
            const int place = slot(row + k - RADIUS + half, RADIUS, y_low, y_high, rows - RADIUS);
            const Word near = place >= 0 ? shared(at_y(number, place, z)) : Word{};
            const float weight = k < RADIUS ? -S.c[k < RADIUS ? RADIUS - 1 - k : 0] : S.c[k < RADIUS ? 0 : k - RADIUS];
            total = each([&](int i) { return fmaf(weight, near.at[i], total.at[i]); });
        }
        return total;
    }

    template <int half>
    __device__ Word recall_x(int number) const {
        if (!(on & ON_X)) return Word{};
        float near[(2 * NEAR + 1) * WIDE];
#pragma unroll
        for (int k = -NEAR; k <= NEAR; ++k) {
            const int place = slot(word + k, FIRST, x_low, x_high, x_high - x_low + FIRST + wide);
            const Word found = place >= 0 ? shared(at_x(number, place, z)) : Word{};
#pragma unroll
            for (int i = 0; i < WIDE; ++i) near[(NEAR + k) * WIDE + i] = found.at[i];
        }
        return derivative<half>(near);
    }

    // What queues hold of a plane: on the way back, a field and its memory.
    __device__ Word queued(int of, int at, const Word& value) const {
        if constexpr (!doubled) return value;
        const int place = slot_z(at);
        return place < 0 ? value : sum(value, shared(at_z(AXES - own + of, place)));
    }

    // Load all but the last of the planes around one, and change them so.
    template <int half>
    __device__ void fill(Queue<half>& queue, int of, const Word* __restrict__ field, int begin) const {
        queue.fill(field, plane);
        if constexpr (doubled) {
#pragma unroll
            for (int k = 1; k < QUEUE; ++k) queue.at[k] = queued(of, begin + k - 1 - RADIUS + half, queue.at[k]);
        }
    }

    template <int half>
    __device__ void push(Queue<half>& queue, int of, const Word& last) const {
        queue.push(queued(of, z + RADIUS - 1 + half, last));
    }

    template <int half>
    __device__ Word centre(const Queue<half>& queue, const Word* __restrict__ field) const {
        return doubled ? shared(field) : queue.centre();
    }

    // What takes the place of a derivative.
    template <int half>
    __device__ Word z_of(int of, const Word& slope) const {
        return way == FORWARD && (on & ON_Z) ? sum(slope, remember_z<half>(own + of, slope)) : slope;
    }

    template <int half>
    __device__ Word y_of(int of, const Word& slope) const {
        if constexpr (!(on & ON_Y)) return slope;
        return sum(slope, way == FORWARD ? remember_y<half>(own + of, slope) : recall_y<half>(AXES - own + of));
    }

    template <int half>
    __device__ Word x_of(int of, const Word& slope) const {
        if constexpr (!(on & ON_X)) return slope;
        return sum(slope, way == FORWARD ? remember_x<half>(own + of, slope) : recall_x<half>(AXES - own + of));
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
