// The kernels of the codec "dense"; docs/dense-format.md describes the encoding, model.py, planes.py and host.py are
// their twins.
//
// A thread block encodes or decodes one tile of 4096 values in shared memory, in the order of prediction: coarse grids
// first, then the points between two, in the middle of four, and of eight. Value k belongs to thread k mod 128, so that
// a warp has rows of 32, which it turns into words by ballots. Then each thread has a row of words.
//
// DOUBLE (0 or 1) and RANK (1, 2 or 3) are given by the compiler's command line.

#ifndef RANK
#define RANK 3
#endif
#ifndef ENCODE_BLOCKS  // thread blocks a multiprocessor, at least
#define ENCODE_BLOCKS (DOUBLE ? 4 : 6)
#endif
#ifndef DECODE_BLOCKS
#define DECODE_BLOCKS (DOUBLE ? 4 : 7)
#endif

#include "../bounded/common.cuh"

constexpr int THREADS = 128, WARPS = THREADS / 32;
constexpr int VALUES = 4096, ROWS = VALUES / 32, MINE = VALUES / THREADS;
constexpr int LEVELS = 12 / RANK, KINDS = 1 << RANK;
constexpr int SIDE = 1 << LEVELS;
constexpr int SECTIONS = 9;
constexpr int DEEPEST = 16, LOWEST = 22;
constexpr int TOO_LARGE = 1 << 22;  // for a symbol
constexpr int HEAD = 8, FLAGS = 4;  // words before the bits of a tile, and where those of its rows begin
constexpr int STAGED = 3584;        // words; no tile has more bits than 26 a value

__device__ inline int section_of(int row) { return row < 2 ? 0 : row < 16 ? 1 : row / 16 + 1; }
__device__ inline int first_row(int section) { return section == 0 ? 0 : section == 1 ? 2 : (section - 1) * 16; }

// The axes along which points of a kind lie between others, the slowest in the highest bit, and back.
__device__ inline int axes_of(int kind) {
    return RANK == 3 ? 0x73561240u >> 4 * kind & 7 : RANK == 2 ? 0x3120u >> 4 * kind & 3 : kind;
}
__device__ inline int kind_of(int axes) {
    return RANK == 3 ? 0x74516230u >> 4 * axes & 7 : RANK == 2 ? 0x3120u >> 4 * axes & 3 : axes;
}

// The points of a kind, of a volume on its finest level, are kept off the banks of those of other kinds.
constexpr int FIELD = VALUES + 64;
__device__ inline int slot(int k) { return RANK == 3 ? k + (k >> 9) * 8 : k; }

// Where a value lies in its tile.
struct Point {
    int z, y, x;
};

__device__ inline Point point_of(int k) {
    if (k == 0) return Point{0, 0, 0};
    const int level = (31 - __clz(k)) / RANK, bits = RANK * level, axes = axes_of(k >> bits);
    const int stride = SIDE >> (level + 1), most = (1 << level) - 1;
    const auto at = [&](int shift, int axis) { return ((k >> shift & most) * 2 + (axes >> axis & 1)) * stride; };
    return Point{RANK == 3 ? at(2 * level, 2) : 0, RANK >= 2 ? at(level, 1) : 0, at(0, 0)};
}

__device__ inline int index_of(Point p) {
    const int all = p.z | p.y | p.x;
    if (all == 0) return 0;
    const int low = __ffs(all) - 1, level = LEVELS - 1 - low;
    const int axes = (p.z >> low & 1) * 4 | (p.y >> low & 1) * 2 | (p.x >> low & 1);
    const int place = (p.z >> (low + 1)) << 2 * level | (p.y >> (low + 1)) << level | p.x >> (low + 1);
    return kind_of(axes) << RANK * level | place;
}

// The part of the array that is a tile. Values past the end of the array repeat its last ones.
struct Tile {
    i64 base, plane, line;
    int depth, height, width;  // that exist
    __device__ Tile(u32 tile, i64 n2, i64 n1, i64 n0, u32 t1, u32 t0) : plane(n1 * n0), line(n0) {
        const u32 row = tile / t0, tz = row / t1;
        const i64 z = (i64)tz * (RANK == 3 ? 16 : 1), y = (i64)(row - tz * t1) * (RANK == 3 ? 16 : RANK == 2 ? 64 : 1);
        const i64 x = (i64)(tile - row * t0) * SIDE;
        base = z * plane + y * line + x;
        depth = part(n2 - z, RANK == 3 ? 16 : 1), height = part(n1 - y, RANK == 3 ? 16 : RANK == 2 ? 64 : 1);
        width = part(n0 - x, SIDE);
    }
    __device__ static inline int part(i64 left, int side) { return left < side ? (int)left : side; }
    __device__ inline int values() const { return depth * height * width; }
    __device__ inline bool has(Point p) const { return p.z < depth && p.y < height && p.x < width; }
    __device__ inline i64 at(Point p) const {
        return base + min(p.z, depth - 1) * plane + min(p.y, height - 1) * line + min(p.x, width - 1);
    }
};

__device__ inline Point natural(int k) {
    return RANK == 3 ? Point{k >> 8, k >> 4 & 15, k & 15} : RANK == 2 ? Point{0, k >> 6, k & 63} : Point{0, 0, k};
}

__device__ inline real add(real a, real b) {
#if DOUBLE
    return __dadd_rn(a, b);
#else
    return __fadd_rn(a, b);
#endif
}
__device__ inline real times(real a, real b) {
#if DOUBLE
    return __dmul_rn(a, b);
#else
    return __fmul_rn(a, b);
#endif
}
// A number, or zero in the place of what is none.
__device__ inline real number(real x) { return add(x, -x) == 0 ? x : 0; }

// What neighbours along an axis say of a point: `a` of `count` on that axis.
__device__ inline real along(const real* known, int a, int count, int stride) {
    const bool last = a == count - 1, first = a == 0, before = a == count - 2;
    real u0, u1, u2, u3;
    if (count == 1) {
        u0 = 0, u1 = 1, u2 = 0, u3 = 0;
    } else if (count == 2) {
        u0 = last ? -0.5 : 0, u1 = last ? 1.5 : 0.5, u2 = last ? 0 : 0.5, u3 = 0;
    } else {
        u0 = last ? -1.25 : first ? 0 : before ? -0.125 : -0.0625;
        u1 = last ? 1.875 : first ? 0.375 : before ? 0.75 : 0.5625;
        u2 = last ? 0.375 : first ? 0.75 : before ? 0.375 : 0.5625;
        u3 = last || before ? 0 : first ? -0.125 : -0.0625;
    }
    const int third = last ? max(a - 2, 0) : a + 1;
    const real t0 = known[(max(a - 1, 0) - a) * stride], t1 = known[0];
    const real t2 = known[(third - a) * stride], t3 = known[(min(a + 2, count - 1) - a) * stride];
    return add(add(times(u0, t0), times(u1, t1)), add(times(u2, t2), times(u3, t3)));
}

// What is predicted of a point of a kind on a level. The field has the values known before in the order of their grid,
// and then those of each kind likewise.
template <int LEVEL>
__device__ inline real predict(const real* field, int kind, int place) {
    constexpr int COUNT = 1 << LEVEL, SIZE = 1 << RANK * LEVEL;
    const int axes = axes_of(kind);
    int inside = 0, odd = 0;
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; --axis) {
        const bool between = axes >> axis & 1;
        odd += between, inside += between && (place >> LEVEL * axis & (COUNT - 1)) < COUNT - 1;
    }
    const int used = inside ? inside : odd;
    const real share = used == 1 ? (real)1 : used == 2 ? (real)0.5 : (real)(1.0 / 3);
    real total = 0;
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; --axis) {
        const int a = place >> LEVEL * axis & (COUNT - 1);
        if (!(axes >> axis & 1)) continue;
        const real* known = field + slot(kind_of(axes ^ 1 << axis) * SIZE) + place;
        // Times zero where it is not used: what overflows is no number then, as on the CPU.
        const real mine = inside && a == COUNT - 1 ? (real)0 : share;
        total = add(total, times(mine, along(known, a, COUNT, 1 << LEVEL * axis)));
    }
    return total;
}

// Lay the values of the level before onto the grid that the next begins with.
template <int LEVEL>
__device__ inline void lay_out(real* field) {
    constexpr int SIZE = 1 << RANK * LEVEL, BEFORE = SIZE >> RANK, EVERY = (SIZE + THREADS - 1) / THREADS;
    real values[EVERY];
#pragma unroll
    for (int i = 0; i < EVERY; ++i) {
        const int k = i * THREADS + threadIdx.x;
        if (k < SIZE) values[i] = field[slot(k)];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EVERY; ++i) {
        const int k = i * THREADS + threadIdx.x, place = k & (BEFORE - 1), axes = axes_of(k / BEFORE);
        int to = 0;
#pragma unroll
        for (int axis = RANK - 1; axis >= 0; --axis) {
            const int a = place >> (LEVEL - 1) * axis & ((1 << (LEVEL - 1)) - 1);
            to |= (2 * a + (axes >> axis & 1)) << LEVEL * axis;
        }
        if (k < SIZE) field[to] = values[i];  // where there are less than 512, a slot is its number
    }
    __syncthreads();
}

// Work through the levels from one on: points between two others, in the middle of four, and of eight. Loops stay
// loops: unrolled, they would not fit into the cache of instructions.
template <int LEVEL, typename Work>
__device__ inline void each_level(real* field, const Work& work) {
    if constexpr (LEVEL < LEVELS) {
        constexpr int SIZE = 1 << RANK * LEVEL;
        if constexpr (LEVEL > 0) lay_out<LEVEL>(field);
        int from = 1;
#pragma unroll 1
        for (int phase = 0; phase < RANK; ++phase) {
            const int to = phase == RANK - 1 ? KINDS : from + RANK;
#pragma unroll 1
            for (int k = from * SIZE + threadIdx.x; k < to * SIZE; k += THREADS)
                work(k, predict<LEVEL>(field, k / SIZE, k & (SIZE - 1)));
            __syncthreads();
            from = to;
        }
        each_level<LEVEL + 1>(field, work);
    }
}

// The sum of what the threads before this one have; `total` becomes that of all.
__device__ inline int before(int mine, int* sums, int& total) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int sum = mine;
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
        const int other = __shfl_up_sync(ALL, sum, by);
        sum += lane >= by ? other : 0;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    int earlier = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) earlier += w < warp ? sums[w] : 0, total += sums[w];
    __syncthreads();
    return earlier + sum - mine;
}

__device__ inline u32 gathered(u32 bits, u32 among) {
    u32 result = 0;
    for (u32 one = 1; among; among &= among - 1, one <<= 1) result |= bits & among & (0u - among) ? one : 0;
    return result;
}

__device__ inline u32 scattered(u32 bits, u32 among) {
    u32 result = 0;
    for (; among; among &= among - 1, bits >>= 1) result |= bits & 1 ? among & (0u - among) : 0;
    return result;
}

// The groups of four bits that are not zero, and the bits of groups.
__device__ inline u32 groups(u32 mask) {
    u32 some = mask | mask >> 1;
    some = (some | some >> 2) & 0x11111111;
    some = (some | some >> 3) & 0x03030303;
    some = (some | some >> 6) & 0x000f000f;
    return (some | some >> 12) & 0xff;
}

__device__ inline u32 members(u32 flags) {
    u32 some = (flags | flags << 12) & 0x000f000f;
    some = (some | some << 6) & 0x03030303;
    some = (some | some << 3) & 0x11111111;
    return some * 15;
}

__device__ inline void put(u32* words, int at, u32 bits, int count) {
    if (!count) return;
    atomicOr(words + (at >> 5), bits << (at & 31));
    if ((at & 31) + count > 32) atomicOr(words + (at >> 5) + 1, bits >> (32 - (at & 31)));
}

__device__ inline u32 get(const u32* words, int at, int count) {
    if (!count) return 0;
    u32 bits = words[at >> 5] >> (at & 31);
    if ((at & 31) + count > 32) bits |= words[(at >> 5) + 1] << (32 - (at & 31));
    return count == 32 ? bits : bits & ((1u << count) - 1);
}

__device__ inline u32 lanes_before(int lane) { return (1u << lane) - 1; }

__device__ inline void copy_value(u32* __restrict__ to, const real* from) {
#pragma unroll
    for (int part = 0; part < BITS / 32; ++part) to[part] = ((const u32*)from)[part];
}

// Copy the values of a tile that exist, in the order of prediction, to words or from them.
template <bool ENCODE>
__device__ __noinline__ void copy_raw(real* __restrict__ array, Tile tile, u32* __restrict__ words, int* sums) {
    int done = 0;
#pragma unroll 1
    for (int k = threadIdx.x; k < VALUES; k += THREADS) {
        const Point point = point_of(k);
        const bool here = tile.has(point);
        int all;
        const int at = done + before(here, sums, all);
        u32* value = (u32*)(array + tile.at(point));
#pragma unroll
        for (int part = 0; part < BITS / 32; ++part) {
            u32* word = words + at * (BITS / 32) + part;
            if (here && ENCODE) *word = value[part];
            if (here && !ENCODE) value[part] = *word;
        }
        done += all;
    }
}

// The field while values are predicted, and words after that.
union Room {
    real field[FIELD];
    struct {
        u32 planes[DEEPEST + 1][ROWS], signs[ROWS], stage[STAGED];
    };
    __device__ Room() {}
};

// They have less than 24 bits, their sign included.
struct Symbols {
    u16 low[VALUES];
    signed char high[VALUES];
    __device__ inline void put(int k, int symbol) { low[k] = (u16)symbol, high[k] = (signed char)(symbol >> 16); }
    __device__ inline int get(int k) const { return (int)high[k] * 65536 + low[k]; }
};

struct Section {
    u32 total, every;  // of the magnitudes of its symbols: their sum, and their bits
    int low, depth, words;
};

extern "C" __global__ void __launch_bounds__(THREADS, ENCODE_BLOCKS)
    encode(const real* __restrict__ array, u8* __restrict__ out, i64 n2, i64 n1, i64 n0, u32 t1, u32 t0, u32 tiles,
           u32 shift, const signed char* __restrict__ weights) {
    __shared__ __align__(16) char memory[sizeof(Room)];
    __shared__ Section sections[SECTIONS];
    __shared__ Symbols symbols;
    __shared__ u32 exact[ROWS];
    __shared__ int sums[WARPS];
    __shared__ u64 begin;
    Room& room = *(Room*)memory;
    real* field = room.field;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row = threadIdx.x;
    Header* header = (Header*)out;
    const Tile tile(blockIdx.x, n2, n1, n0, t1, t0);
    real step = (real)header->step, bound = (real)header->bound;
    if (weights) {
        const Quanta own = scaled(header->bound, header->step, weights[blockIdx.x]);
        bound = own.bound, step = own.step;
    }
    const real inverse = 1 / step, test = bound > TINY ? bound : TINY;
    bool nothing = true;
#pragma unroll 8
    for (int k = threadIdx.x; k < VALUES; k += THREADS) {
        const Point point = natural(k);
        const real x = __ldcs(array + tile.at(point));
        field[slot(index_of(point))] = x;
        nothing = nothing && quantise(x, inverse) == ZERO && within(x, 0, test);
    }
    if (threadIdx.x < SECTIONS) sections[threadIdx.x] = Section{0, 0, 0, 0, 0};
    exact[row] = 0;
    if (__syncthreads_and(nothing)) {
        if (threadIdx.x == 0) ((u32*)(out + HEADER))[blockIdx.x] = 0;
        return;
    }

    const auto settle = [&](int k, real guess) {
        const real x = field[slot(k)];
        const int q = quantise(add(x, -guess), inverse), symbol = (int)((u32)q - (u32)ZERO);
        const real near = add(guess, restore(q, step));
        const bool fits = within(x, near, test) && symbol > -TOO_LARGE && symbol < TOO_LARGE;
        symbols.put(k, fits ? symbol : 0);
        field[slot(k)] = fits ? near : number(guess);
        if (!fits) atomicOr(exact + k / 32, 1u << k % 32);
    };
    if (threadIdx.x == 0) settle(0, 0);
    __syncthreads();
    each_level<0>(field, settle);

    // Of each section, how many of the lowest bits are written as they are.
#pragma unroll 4
    for (int i = 0; i < MINE; ++i) {
        const int symbol = symbols.get(i * THREADS + threadIdx.x);
        const u32 magnitude = symbol < 0 ? -symbol : symbol, every = __reduce_or_sync(ALL, magnitude);
        if (!every) continue;
        const u32 total = __reduce_add_sync(ALL, magnitude);
        Section& mine = sections[section_of(i * WARPS + warp)];
        if (lane == 0) atomicOr(&mine.every, every), atomicAdd(&mine.total, total);
    }
    for (int k = threadIdx.x; k < STAGED; k += THREADS) room.stage[k] = 0;
    __syncthreads();
    if (threadIdx.x < SECTIONS) {
        Section& mine = sections[threadIdx.x];
        const int count = first_row(threadIdx.x + 1) - first_row(threadIdx.x);
        int low = max(0, 28 - __clz(mine.every));
        while (4 * (u64)mine.total > (u64)(5 * count * 32) << low) ++low;
        mine.low = low;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int words = HEAD;
        for (int k = 0; k < SECTIONS; ++k) {
            sections[k].words = words;
            words += sections[k].low * (first_row(k + 1) - first_row(k));
        }
    }
    __syncthreads();

    // Rows of symbols become words.
#pragma unroll 1
    for (int i = 0; i < MINE; ++i) {
        const int here = i * WARPS + warp, section = section_of(here), low = sections[section].low;
        const int symbol = symbols.get(i * THREADS + threadIdx.x) + (1 << low >> 1), rest = symbol >> low, magnitude = rest < 0 ? -rest : rest;
        for (int bit = 0; bit < low; ++bit) {
            const u32 word = __ballot_sync(ALL, symbol >> bit & 1);
            if (lane == 0) room.stage[sections[section].words + (here - first_row(section)) * low + bit] = word;
        }
        const u32 sign = __ballot_sync(ALL, rest < 0);
        int depth = 0;
        u32 mask = __ballot_sync(ALL, magnitude > 0);
        while (mask) {
            if (lane == 0) room.planes[depth][here] = mask;
            mask = __ballot_sync(ALL, magnitude > ++depth);
        }
        if (lane == 0) {
            room.planes[depth][here] = 0, room.signs[here] = sign;
            if (depth) atomicMax(&sections[section].depth, depth);
        }
    }
    __syncthreads();

    // Each thread writes the bits of its row.
    const Section& last = sections[SECTIONS - 1];
    int at = 32 * (last.words + last.low * (ROWS - first_row(SECTIONS - 1))), total, deepest = 0;
    for (int k = 0; k < SECTIONS; ++k) deepest = max(deepest, sections[k].depth);
    const int depth = sections[section_of(row)].depth;
    u32 mask = room.planes[0][row];
    const u32 flags = groups(mask), some = members(flags);
    put(room.stage, at + before(mask ? 8 : 0, sums, total), flags, mask ? 8 : 0);
    at += total;
    put(room.stage, at + before(__popc(some), sums, total), gathered(mask, some), __popc(some));
    at += total;
    put(room.stage, at + before(__popc(mask), sums, total), gathered(room.signs[row], mask), __popc(mask));
    at += total;
    const u32 rows = __ballot_sync(ALL, mask != 0);
    for (int plane = 1; plane < deepest; ++plane) {
        const u32 next = mask ? room.planes[plane][row] : 0;
        const int count = plane < depth ? __popc(mask) : 0;
        put(room.stage, at + before(count, sums, total), gathered(next, mask), count);
        at += total;
        mask = next;
    }
    if (lane == 0) room.stage[FLAGS + warp] = rows;
    const int used = (at + 31) >> 5, failed = before(__popc(exact[row]), sums, total), count = total;
    if (threadIdx.x < SECTIONS) {
        const Section& mine = sections[threadIdx.x];
        atomicOr(room.stage + 1 + threadIdx.x / 3, (u32)(mine.low | mine.depth << 5) << 10 * (threadIdx.x % 3));
    }
    if (threadIdx.x == 0) room.stage[0] = count;

    // Room in the encoding.
    const int each = BITS / 32, own = weights ? each : 0, values = tile.values();
    int size = own + used + (count + 1) / 2 + count * each;
    const bool raw = size >= values * each, empty = count == 0 && deepest == 0 && used == HEAD;
    if (raw) size = values * each;
    const u64 units = empty ? 0 : ((u64)size * 4 + (1ull << shift) - 1) >> shift;
    if (threadIdx.x == 0) {
        begin = units ? atomicAdd(&header->size, units << shift) : 0;
        ((u32*)(out + HEADER))[blockIdx.x] = (u32)(begin >> shift) | (raw && units ? RAW : 0);
    }
    __syncthreads();
    if (!units) return;
    u32* to = (u32*)(out + begin);
    if (raw) {
        copy_raw<true>(const_cast<real*>(array), tile, to, sums);
        return;
    }
    if (own && threadIdx.x == 0) put_step((u8*)to, step);
    to += own;
    for (int k = threadIdx.x; k < used; k += THREADS) to[k] = room.stage[k];
    to += used;
    u32* kept = to + (count + 1) / 2;
    int number = failed;
    for (u32 left = exact[row]; left; left &= left - 1, ++number) {
        const int k = row * 32 + __ffs(left) - 1;
        ((u16*)to)[number] = (u16)k;
        copy_value(kept + number * each, array + tile.at(point_of(k)));
    }
    if (count % 2 && threadIdx.x == 0) ((u16*)to)[count] = 0;
}

// What decoding takes of shared memory: words of rows, and the field.
struct Words {
    u32 planes[DEEPEST + 1][ROWS], signs[ROWS];
};

extern "C" __global__ void __launch_bounds__(THREADS, DECODE_BLOCKS)
    decode(const u8* __restrict__ payload, u64 nbytes, real* __restrict__ array, u32 magic, u32 kind, i64 n2, i64 n1,
           i64 n0, u32 t1, u32 t0, u32 tiles, u32 shift, u32* __restrict__ flag) {
    __shared__ real field[FIELD];
    __shared__ Words words;
    __shared__ Section sections[SECTIONS];
    __shared__ int sums[WARPS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row = threadIdx.x;
    const Tile tile(blockIdx.x, n2, n1, n0, t1, t0);
    const Header* header = (const Header*)payload;
    const u64 start = (HEADER + 4 * (u64)tiles + (1ull << shift) - 1) >> shift << shift;
    // The same in all threads; nothing is read outside of the payload.
    bool whole = nbytes >= start && header->magic == magic && header->kind == kind && header->n2 == n2 &&
                 header->n1 == n1 && header->n0 == n0 && header->tiles == tiles && header->size >= start &&
                 header->size <= nbytes && header->size % 4 == 0 && possible(header->bound) && possible(header->step);
    const u32 place = whole ? ((const u32*)(payload + HEADER))[blockIdx.x] : RAW;
    real step = whole ? (real)header->step : 0;
    const u64 end = whole ? header->size : 0;
    const int each = BITS / 32, own = kind >> 24 ? each : 0;
    u64 from = (u64)(place & ~RAW) << shift;
    bool coded = false;
    if (place) whole = whole && from >= start;
    if (place & RAW) {
        whole = whole && from + (u64)tile.values() * sizeof(real) <= end;
        if (whole) {
            copy_raw<false>(array, tile, (u32*)(payload + from), sums);
            return;
        }
    } else if (place) {
        whole = whole && from + (own + HEAD) * 4 <= end;
        if (whole && own) {
            step = step_of(payload + from);
            whole = possible(step);
        }
        coded = whole;
    }
    const u32* data = (const u32*)(payload + from) + own;
    const u64 left = coded ? (end - from) / 4 - own : 0;  // words
    int used = HEAD, count = 0;
    if (coded) {
        for (int k = 0; k < SECTIONS; ++k) {
            const u32 told = data[1 + k / 3] >> 10 * (k % 3) & 1023;
            const int low = told & 31, depth = told >> 5;
            coded = coded && low <= LOWEST && depth <= DEEPEST;
            if (threadIdx.x == k) sections[k] = Section{0, 0, low, depth, used};
            used += low * (first_row(k + 1) - first_row(k));
        }
        __syncthreads();
        int at = 32 * used, total, deepest = 0;
        const bool flagged = data[FLAGS + warp] >> lane & 1;
        int mine = before(flagged ? 8 : 0, sums, total);
        coded = coded && (u64)(at + total + 31) / 32 <= left;
        u32 mask = coded && flagged ? members(get(data, at + mine, 8)) : 0;
        at += total;
        mine = before(__popc(mask), sums, total);
        coded = coded && (u64)(at + total + 31) / 32 <= left;
        mask = coded ? scattered(get(data, at + mine, __popc(mask)), mask) : 0;
        at += total;
        mine = before(__popc(mask), sums, total);
        coded = coded && (u64)(at + total + 31) / 32 <= left;
        words.planes[0][row] = mask;
        words.signs[row] = coded ? scattered(get(data, at + mine, __popc(mask)), mask) : 0;
        at += total;
        for (int k = 0; k < SECTIONS; ++k) deepest = max(deepest, min(sections[k].depth, DEEPEST));
        const int depth = sections[section_of(row)].depth;
        for (int plane = 1; plane < deepest; ++plane) {
            const int bits = plane < depth ? __popc(mask) : 0;
            mine = before(bits, sums, total);
            coded = coded && (u64)(at + total + 31) / 32 <= left;
            mask = coded && bits ? scattered(get(data, at + mine, bits), mask) : 0;
            words.planes[plane][row] = mask;
            at += total;
        }
        used = (at + 31) / 32;
        count = coded ? data[0] : 0;
        coded = coded && (u32)count <= VALUES && (u64)used + (count + 1) / 2 + (u64)count * each <= left;
        for (int k = threadIdx.x; coded && k < count; k += THREADS) whole = whole && ((u16*)(data + used))[k] < VALUES;
        whole = __syncthreads_and(whole && coded);
    }
    if (!whole || !place) {
        if (!whole && threadIdx.x == 0) atomicOr(flag, DAMAGED);
        for (int k = threadIdx.x; k < VALUES; k += THREADS)
            if (tile.has(natural(k))) array[tile.at(natural(k))] = 0;
        return;
    }

    const auto symbol_at = [&](int k) {
        const int here = k / 32, lane = k & 31, section = section_of(here), low = sections[section].low;
        const int depth = sections[section].depth;
        int rest = 0;
        for (int plane = 0; plane < depth; ++plane) {
            const u32 mask = words.planes[plane][here];
            if (!mask) break;
            rest += mask >> lane & 1;
        }
        if (words.signs[here] >> lane & 1) rest = -rest;
        int symbol = (int)((u32)rest << low);
        const u32* plain = data + sections[section].words + (here - first_row(section)) * low;
        for (int bit = 0; bit < low; ++bit) symbol += (plain[bit] >> lane & 1) << bit;
        return symbol - (1 << low >> 1);
    };
    const auto settle = [&](int k, real guess) {
        field[slot(k)] = number(add(guess, restore((int)((u32)symbol_at(k) + (u32)ZERO), step)));
    };
    if (threadIdx.x == 0) settle(0, 0);
    __syncthreads();
    each_level<0>(field, settle);
#pragma unroll 8
    for (int k = threadIdx.x; k < VALUES; k += THREADS) {
        const Point p = natural(k);
        const int axes = (p.z & 1) * 4 | (p.y & 1) * 2 | (p.x & 1), half = LEVELS - 1;
        const int index = kind_of(axes) * (VALUES >> RANK) | (p.z >> 1) << 2 * half | (p.y >> 1) << half | p.x >> 1;
        if (tile.has(p)) array[tile.at(p)] = field[slot(index)];
    }
    if (!count) return;
    __syncthreads();
    const u32* kept = data + used + (count + 1) / 2;
    for (int k = threadIdx.x; k < count; k += THREADS) {
        const Point p = point_of(((const u16*)(data + used))[k]);
        if (tile.has(p)) copy_value((u32*)(array + tile.at(p)), (const real*)(kept + k * each));
    }
}
