// The kernels of the codec "dense"; docs/dense-format.md describes the encoding, model.py, planes.py and host.py are
// their twins.
//
// An array is a pyramid of grids: each has every other point, along all axes, of the one below it. A launch takes one
// grid on from the one above. A cell is a point of the upper grid with the new points after it, a tile has 512 cells of
// a volume, and a thread block encodes or decodes it: first the new points between two old ones, then those in the
// middle of four, then of eight. A thread has some cells one after the other along y. The same point of all cells that
// a warp has side by side is a row, which a ballot turns into a word.
//
// DOUBLE (0 or 1) and RANK (1, 2 or 3) are given by the compiler's command line.

#ifndef RANK
#define RANK 3
#endif
#ifndef ENCODE_BLOCKS  // thread blocks a multiprocessor, at least
#define ENCODE_BLOCKS (DOUBLE ? 3 : 6)
#endif
#ifndef DECODE_BLOCKS
#define DECODE_BLOCKS (DOUBLE ? 3 : 7)
#endif

#include "../bounded/common.cuh"

constexpr int THREADS = 128, WARPS = THREADS / 32;
constexpr int TURNS = RANK == 3 ? 4 : RANK == 2 ? 8 : 16;  // cells of a thread
constexpr int KINDS = (1 << RANK) - 1;                     // new points of a cell, by the axes they are off
constexpr int ROWS = TURNS * KINDS;                        // of a warp
constexpr int CELLS = THREADS * TURNS, SYMBOLS = CELLS * KINDS;
constexpr int SIDE = RANK == 3 ? 8 : RANK == 2 ? 32 : 2048;  // cells along an axis
constexpr int HALO = SIDE + 3;                                // with one before and two after
constexpr int MANY = 32768;                                   // for a symbol
constexpr int GROUPS = ROWS / 4;                              // of four symbols of a thread
constexpr int HEAD = WARPS;                                   // words: a bit for each thread
constexpr u32 ODD = 0x40000000u;                              // a place whose tile begins with a word about it
constexpr int WHOLE = 16;                                     // its bits from here on: groups that are listed whole
constexpr int GROUP = 4 * THREADS;                            // symbols of one group in all threads
constexpr int WORTH = 3 * GROUP - THREADS;                    // of 3 a symbol, 4 a thread that has some in the group
constexpr int CHUNKS = (SYMBOLS + 31) / 32;                   // of 32 symbols each, that are not zero
constexpr int BITS_ROOM = (THREADS * 5 * GROUPS + 4 * CHUNKS) / 32 + 2;
constexpr int LINE_PITCH = RANK < 3 ? HALO : DOUBLE ? 12 : 24;  // off the banks of other lanes, where there is room
constexpr int PLANE_PITCH = RANK == 3 ? HALO * LINE_PITCH : RANK == 2 ? HALO : 0;

#if DOUBLE
__device__ inline real add(real a, real b) { return __dadd_rn(a, b); }
__device__ inline real times(real a, real b) { return __dmul_rn(a, b); }
__device__ inline real fused(real a, real b, real c) { return __fma_rn(a, b, c); }
__device__ inline real magnitude(real a) { return fabs(a); }
__device__ inline real larger(real a, real b) { return fmax(a, b); }
__device__ inline int bits_of(real t) { return __double2loint(t); }
#else
__device__ inline real add(real a, real b) { return __fadd_rn(a, b); }
__device__ inline real times(real a, real b) { return __fmul_rn(a, b); }
__device__ inline real fused(real a, real b, real c) { return __fmaf_rn(a, b, c); }
__device__ inline real magnitude(real a) { return fabsf(a); }
__device__ inline real larger(real a, real b) { return fmaxf(a, b); }
__device__ inline int bits_of(real t) { return __float_as_int(t); }
#endif
// MAGIC plus an integer has it in its lowest bits: the lowest 16 of ZERO are 0.
constexpr real MAGIC = DOUBLE ? 6755399441055744.0 : 12582912.0;

__device__ inline real none() { return (real)LARGEST * 2; }  // stands for what does not exist, and never fits

struct __align__(2 * sizeof(real)) Pair {
    real even, odd;
};

// Floats as one word: the compiler makes two stores of a Pair.
#if DOUBLE
__device__ inline void put_pair(real* at, real even, real odd) { *(Pair*)at = Pair{even, odd}; }
#else
__device__ inline void put_pair(real* at, real even, real odd) {
    *(u64*)at = (u32)__float_as_int(even) | (u64)__float_as_int(odd) << 32;
}
#endif

// A number, or zero in the place of what is none.
__device__ inline real number(real x) { return add(x, -x) == 0 ? x : 0; }

// Where the cells of a thread lie in their tile: the first, and whether others follow along y or, of a line, along x.
struct Cell {
    int z, y, x;
    __device__ Cell(int warp, int lane) {
        z = RANK == 3 ? (warp & 1) * 4 + (lane >> 3) : 0;
        y = RANK == 3 ? (warp >> 1) * TURNS : RANK == 2 ? warp * TURNS : 0;
        x = RANK == 3 ? lane & 7 : RANK == 2 ? lane : warp * (32 * TURNS) + lane;
    }
};
constexpr int TURN_Y = RANK > 1 ? 1 : 0, TURN_X = RANK > 1 ? 0 : 32;

// The part of a grid that is a tile.
struct Tile {
    i64 z, y, x;               // of its first point
    int depth, height, width;  // points that exist
    __device__ Tile(u32 tile, i64 m2, i64 m1, i64 m0, u32 t1, u32 t0) {
        const u32 row = tile / t0, tz = row / t1;
        z = (i64)tz * (RANK == 3 ? 2 * SIDE : 1), y = (i64)(row - tz * t1) * (RANK >= 2 ? 2 * SIDE : 1);
        x = (i64)(tile - row * t0) * (2 * SIDE);
        depth = part(m2 - z, RANK == 3 ? 2 * SIDE : 1), height = part(m1 - y, RANK >= 2 ? 2 * SIDE : 1);
        width = part(m0 - x, 2 * SIDE);
    }
    __device__ static inline int part(i64 left, int side) { return left < side ? (int)left : side; }
    __device__ inline bool has(int pz, int py, int px) const { return pz < depth && py < height && px < width; }
    __device__ inline bool full() const {
        return width == 2 * SIDE && (RANK < 2 || height == 2 * SIDE) && (RANK < 3 || depth == 2 * SIDE);
    }
    // Points that are not of the grid above.
    __device__ inline int fresh() const {
        return depth * height * width - (depth + 1) / 2 * ((height + 1) / 2) * ((width + 1) / 2);
    }
};

// The point of a kind in a cell. The kind's bits are the axes along which it lies off: 4 is z, 2 is y, 1 is x.
struct Point {
    int z, y, x;
    __device__ Point(const Cell& c, int kind, int turn)
        : z(2 * c.z + (kind >> 2 & 1)), y(2 * (c.y + turn * TURN_Y) + (kind >> 1 & 1)),
          x(2 * (c.x + turn * TURN_X) + (kind & 1)) {}
};

// Neighbours of a cell along an axis, and what they count for a point after it.
struct Taps {
    int before, after, beyond;  // in the field
    real first, second, third, fourth;
    __device__ Taps(bool begins, bool nearly, bool ends, int pitch) {
        before = begins ? 0 : -pitch, after = ends ? 0 : pitch, beyond = ends || nearly ? 0 : 2 * pitch;
        first = begins ? 0 : ends ? -0.5 : nearly ? -0.125 : -0.0625;
        second = begins ? 0.375 : ends ? 1.5 : nearly ? 0.75 : 0.5625;
        third = begins ? 0.75 : ends ? 0 : nearly ? 0.375 : 0.5625;
        fourth = begins ? -0.125 : ends || nearly ? 0 : -0.0625;
    }
    __device__ Taps(int at, int pitch) : Taps(at == 0, at == SIDE - 2, at == SIDE - 1, pitch) {}
    // Of a cell whose own value is known already.
    __device__ inline real of(const real* at, real own) const {
        return mixed(at[before], own, at[after], at[beyond]);
    }
    // Along the cells of a thread.
    __device__ inline real of(const real* at, const real (&own)[TURNS], int turn) const {
        return mixed(turn > 0 ? own[turn - 1] : at[before], own[turn], turn + 1 < TURNS ? own[turn + 1] : at[after],
                     turn + 2 < TURNS ? own[turn + 2] : at[beyond]);
    }
    __device__ inline real mixed(real a, real b, real c, real d) const {
        return fused(fourth, d, fused(third, c, fused(second, b, times(first, a))));
    }
};

__device__ inline real between(real a, real b, real c, real d) {
    return fused((real)0.5625, add(b, c), times((real)-0.0625, add(a, d)));
}

// What axes count for points that lie off along several. Where they lie after the last cell along all, all count.
struct Shares {
    real yx_y, yx_x, zx_z, zx_x, zy_z, zy_y, all_z, all_y, all_x;
    __device__ Shares(bool z, bool y, bool x) {
        const auto two = [](bool mine, bool other) { return mine ? other ? (real)0.5 : (real)1 : other ? (real)0 : (real)0.5; };
        yx_y = two(y, x), yx_x = two(x, y), zx_z = two(z, x), zx_x = two(x, z), zy_z = two(z, y), zy_y = two(y, z);
        const int inside = z + y + x;
        const real each = inside == 1 ? (real)1 : inside == 2 ? (real)0.5 : (real)(1.0 / 3);
        all_z = z || !inside ? each : 0, all_y = y || !inside ? each : 0, all_x = x || !inside ? each : 0;
    }
};

struct Room {
    real coarse[RANK == 3 ? HALO * PLANE_PITCH : RANK == 2 ? HALO * PLANE_PITCH : HALO];
    real field[KINDS * CELLS];  // what is known of new points, kind by kind
};
constexpr int FIELD_Y = RANK == 3 ? SIDE * SIDE : RANK == 2 ? SIDE : 32, FIELD_Z = SIDE;

// Where a thread's part of the field begins.
__device__ inline int field_of(const Cell& cell) { return RANK == 1 ? cell.x : cell.y * FIELD_Y + cell.z * FIELD_Z + cell.x; }

// Bring the points of the grid above that surround a tile; past its beginnings, the first ones, and past its ends the
// last two go on as a straight line, along one axis. Whether all of them are 0.
__device__ inline bool surround(const real* __restrict__ above, const Tile& tile, i64 m2, i64 m1, i64 m0, real* coarse) {
    const i64 n2 = (m2 + 1) / 2, n1 = (m1 + 1) / 2, n0 = (m0 + 1) / 2;
    const i64 z0 = tile.z / 2 - 1, y0 = tile.y / 2 - 1, x0 = tile.x / 2 - 1;
    const auto within = [](i64 at, i64 n) { return at < 0 ? 0 : at < n ? at : n - 1; };
    const auto past = [](i64 at, i64 n) { return n < 2 || at < n ? 0 : at == n ? 1 : 2; };
    bool nothing = true;
    const auto keep = [&](real x, real* to) {
        x = number(x);
        nothing = nothing && x == 0;
        *to = x;
    };
    const auto take = [&](i64 z, i64 y, i64 x, real* to) {
        const real* from = above + (within(z, n2) * n1 + within(y, n1)) * n0 + within(x, n0);
        const int pz = past(z, n2), py = past(y, n1), px = past(x, n0), by = pz ? pz : py ? py : px;
        const real last = number(*from);
        keep(by ? fused((real)by, add(last, -number(from[pz ? -n1 * n0 : py ? -n0 : -1])), last) : last, to);
    };
    if (RANK == 3) {
        const int z = threadIdx.x / HALO, x = threadIdx.x - z * HALO;
        real* to = coarse + z * LINE_PITCH + x;
        if (z0 >= 0 && z0 + HALO <= n2 && y0 >= 0 && y0 + HALO <= n1 && x0 >= 0 && x0 + HALO <= n0) {
            const real* from = above + ((z0 + z) * n1 + y0) * n0 + x0 + x;
            if (z < HALO)
#pragma unroll
                for (int y = 0; y < HALO; ++y, from += n0) keep(*from, to + y * PLANE_PITCH);
        } else if (z < HALO) {
#pragma unroll 1
            for (int y = 0; y < HALO; ++y) take(z0 + z, y0 + y, x0 + x, to + y * PLANE_PITCH);
        }
    } else {
#pragma unroll 1
        for (int k = threadIdx.x; k < (RANK == 2 ? HALO : 1) * HALO; k += THREADS) {
            const int y = k / HALO, x = k - y * HALO;
            take(0, RANK == 2 ? y0 + y : 0, x0 + x, coarse + k);
        }
    }
    return nothing;
}

// Predict all new points of a tile, and let `settle(kind, turn, guess)` say what becomes of each. Those from which no
// others are predicted go to the field only where ALL_KINDS do.
template <bool ALL_KINDS, typename Settle>
__device__ inline void predict(Room& room, const Cell& cell, const Settle& settle) {
    const real* coarse = room.coarse;
    if (RANK == 3) coarse += (cell.y + 1) * PLANE_PITCH + (cell.z + 1) * LINE_PITCH + cell.x + 1;
    if (RANK == 2) coarse += (cell.y + 1) * PLANE_PITCH + cell.x + 1;
    if (RANK == 1) coarse += cell.x + 1;
    real* field = room.field + field_of(cell);
    real own[KINDS + 1][TURNS];
    const auto here = [&](int kind, int turn) { return field + (kind - 1) * CELLS + turn * FIELD_Y; };
    const auto know = [&](int kind, int turn, real guess) {
        own[kind][turn] = settle(kind, turn, guess);
        if (ALL_KINDS || kind < KINDS) *here(kind, turn) = own[kind][turn];
    };
    real column[TURNS + 3];  // of the grid above
#pragma unroll
    for (int turn = 0; turn < (RANK > 1 ? TURNS + 3 : TURNS); ++turn)
        column[turn] = RANK > 1 ? coarse[(turn - 1) * PLANE_PITCH] : coarse[turn * TURN_X];
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const real* at = coarse + turn * (RANK > 1 ? PLANE_PITCH : TURN_X);
        const real mine = column[RANK > 1 ? turn + 1 : turn];
        know(1, turn, between(at[-1], mine, at[1], at[2]));
        if (RANK > 1) know(2, turn, between(column[turn], mine, column[turn + 2], column[turn + 3]));
        if (RANK > 2) know(4, turn, between(at[-LINE_PITCH], mine, at[LINE_PITCH], at[2 * LINE_PITCH]));
    }
    if (RANK == 1) return;
    __syncthreads();
    const Taps along_z(RANK == 3 ? cell.z : 1, FIELD_Z), along_x(cell.x, 1);
    const bool lowest = cell.y == 0, highest = cell.y == SIDE - TURNS;
    const bool z = RANK == 3 && cell.z < SIDE - 1, x = cell.x < SIDE - 1;
    const Shares usual(z, true, x), last(z, !highest, x);
    const auto line_x = [&](int kind, int turn) { return along_x.of(here(kind, turn), own[kind][turn]); };
    const auto line_z = [&](int kind, int turn) { return along_z.of(here(kind, turn), own[kind][turn]); };
    const auto line_y = [&](int kind, int turn) {
        const Taps along_y(turn == 0 && lowest, turn == TURNS - 2 && highest, turn == TURNS - 1 && highest, FIELD_Y);
        return along_y.of(here(kind, turn), own[kind], turn);
    };
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const Shares& share = turn == TURNS - 1 ? last : usual;
        know(3, turn, fused(share.yx_x, line_x(2, turn), times(share.yx_y, line_y(1, turn))));
        if (RANK == 2) continue;
        know(5, turn, fused(share.zx_x, line_x(4, turn), times(share.zx_z, line_z(1, turn))));
        know(6, turn, fused(share.zy_y, line_y(4, turn), times(share.zy_z, line_z(2, turn))));
    }
    if (RANK == 2) return;
    __syncthreads();
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const Shares& share = turn == TURNS - 1 ? last : usual;
        const real both = fused(share.all_y, line_y(5, turn), times(share.all_z, line_z(3, turn)));
        know(7, turn, fused(share.all_x, line_x(6, turn), both));
    }
}

__device__ constexpr int row_of(int kind, int turn) { return (kind - 1) * TURNS + turn; }

// Work through the cells of a thread: `work(turn, kind, first of a pair)`, where the pair's kinds are `kind` and the
// next. The strides are those of the grid in an array.
template <typename Real, typename Work>
__device__ inline void each_pair(Real* array, const Tile& tile, const Cell& cell, i64 sz, i64 sy, i64 sx, const Work& work) {
    Real* at = array + (tile.z + 2 * cell.z) * sz + (tile.y + 2 * cell.y) * sy + (tile.x + 2 * cell.x) * sx;
    const i64 next = RANK > 1 ? 2 * sy : 2 * TURN_X * sx;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn, at += next) {
        work(turn, 0, at);
        if (RANK > 1) work(turn, 2, at + sy);
        if (RANK > 2) work(turn, 4, at + sz);
        if (RANK > 2) work(turn, 6, at + sz + sy);
    }
}

// Write the points of a tile, old ones and new ones: `value(kind, turn)`, or out of the field where some do not exist.
template <typename Value>
__device__ inline void write_points(real* known, const real* __restrict__ above, const Tile& tile, const Cell& cell,
                                    i64 m1, i64 m0, const real* field, const Value& value) {
    const i64 n1 = (m1 + 1) / 2, n0 = (m0 + 1) / 2;
    if (tile.full()) {
        const real* old = above + ((tile.z / 2 + cell.z) * n1 + tile.y / 2 + cell.y) * n0 + tile.x / 2 + cell.x;
        const bool aligned = ((u64)known | m0 * sizeof(real)) % sizeof(Pair) == 0;
        each_pair(known, tile, cell, m1 * m0, m0, 1, [&](int turn, int kind, real* at) {
            const real even = kind ? value(kind, turn) : old[turn * (RANK > 1 ? n0 : TURN_X)];
            const real odd = value(kind + 1, turn);
            if (aligned)
                put_pair(at, even, odd);
            else
                at[0] = even, at[1] = odd;
        });
        return;
    }
#pragma unroll 1
    for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll 1
        for (int kind = 0; kind <= KINDS; ++kind) {
            const Point p(cell, kind, turn);
            if (!tile.has(p.z, p.y, p.x)) continue;
            const i64 z = tile.z + p.z, y = tile.y + p.y, x = tile.x + p.x;
            known[(z * m1 + y) * m0 + x] = kind ? field[(kind - 1) * CELLS + field_of(cell) + turn * FIELD_Y]
                                                : above[(z / 2 * n1 + y / 2) * n0 + x / 2];
        }
}

__device__ inline u32 lanes_before() { return (1u << (threadIdx.x & 31)) - 1; }

// The sum of what the lanes before this one have.
__device__ inline int before(int mine) {
    const int lane = threadIdx.x & 31;
    int sum = mine;
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
        const int other = __shfl_up_sync(ALL, sum, by);
        sum += lane >= by ? other : 0;
    }
    return sum - mine;
}

// Likewise of all threads before this one, and of all. `sums` is for this call alone.
__device__ inline int before(int mine, int* sums, int& total) {
    const int warp = threadIdx.x >> 5;
    int sum = before(mine) + mine, earlier = 0;
    if ((threadIdx.x & 31) == 31) sums[warp] = sum;
    __syncthreads();
    total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) earlier += w < warp ? sums[w] : 0, total += sums[w];
    return earlier + sum - mine;
}

// Symbols as numbers from zero on, and back.
__device__ inline u32 code_of(int symbol) { return (u32)symbol << 1 ^ (u32)(symbol >> 31); }
__device__ inline int symbol_of(u32 code) { return (int)(code >> 1) ^ -(int)(code & 1); }

// Which groups of a thread's symbols are not all zero, by the bits that tell which symbols are not.
__device__ inline u32 groups_of(u32 mask) {
    mask |= mask >> 2, mask |= mask >> 1, mask &= 0x11111111;
    mask = (mask | mask >> 3) & 0x03030303, mask = (mask | mask >> 6) & 0x000f000f;
    return (mask | mask >> 12) & 0xff;
}

// Leave out those bits of groups that are listed whole, and put them in again.
__device__ inline u32 without(u32 groups, u32 whole) {
    u32 left = 0;
    int at = 0;
#pragma unroll
    for (int group = 0; group < GROUPS; ++group)
        if (!(whole >> group & 1)) left |= (groups >> group & 1) << at++;
    return left;
}
__device__ inline u32 among(u32 left, u32 whole) {
    u32 groups = 0;
    int at = 0;
#pragma unroll
    for (int group = 0; group < GROUPS; ++group)
        if (!(whole >> group & 1)) groups |= (left >> at++ & 1) << group;
    return groups;
}

// The groups that are worth listing whole, by the bits of all threads; `worth` begins as zeros.
__device__ inline u32 whole_groups(u32 mask, int* worth) {
    const int lane = threadIdx.x & 31;
    const u32 count = mask - (mask >> 1 & 0x77777777) - (mask >> 2 & 0x33333333) - (mask >> 3 & 0x11111111);
    const u32 some = (count | count >> 1 | count >> 2) & 0x11111111;
    const u32 each = 0x0f0f0f0f;
    const u32 even = __reduce_add_sync(ALL, count & each), odd = __reduce_add_sync(ALL, count >> 4 & each);
    const u32 even_some = __reduce_add_sync(ALL, some & each), odd_some = __reduce_add_sync(ALL, some >> 4 & each);
    if (lane < GROUPS) {
        const int at = lane / 2 * 8;
        const u32 symbols = (lane & 1 ? odd : even) >> at & 0xff, threads = (lane & 1 ? odd_some : even_some) >> at & 0xff;
        atomicAdd(worth + lane, (int)(3 * symbols + 4 * threads));
    }
    __syncthreads();
    return __ballot_sync(ALL, lane < GROUPS && worth[lane] > WORTH);
}

__device__ inline void put(u32* words, int at, u32 bits, int count) {
    atomicOr(words + (at >> 5), bits << (at & 31));
    if ((at & 31) + count > 32) atomicOr(words + (at >> 5) + 1, bits >> (32 - (at & 31)));
}

// So many bits from one on; nothing is read but the words that have them.
__device__ inline u32 bits_at(const u32* words, int at, int count) {
    const int shift = at & 31;
    u32 found = words[at >> 5] >> shift;
    if (shift + count > 32) found |= words[(at >> 5) + 1] << (32 - shift);
    return count < 32 ? found & (1u << count) - 1 : found;
}

__device__ inline int width_of(u32 code) { return 32 - __clz(code | 1); }

__device__ inline void copy_value(u32* __restrict__ to, const u32* __restrict__ from) {
#pragma unroll
    for (int part = 0; part < BITS / 32; ++part) to[part] = from[part];
}

// Work through the new points of a tile that exist, row by row: `work(kind, turn, number)`, the number among them.
template <typename Work>
__device__ inline void each_fresh(const Tile& tile, const Cell& cell, int* sums, const Work& work) {
    int mine = 0, all;
#pragma unroll 1
    for (int kind = 1; kind <= KINDS; ++kind)
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn) {
            const Point p(cell, kind, turn);
            mine += __popc(__ballot_sync(ALL, tile.has(p.z, p.y, p.x)));
        }
    int at = before((threadIdx.x & 31) == 0 ? mine : 0, sums, all);
    at = __shfl_sync(ALL, at, 0);
#pragma unroll 1
    for (int kind = 1; kind <= KINDS; ++kind)
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn) {
            const Point p(cell, kind, turn);
            const bool here = tile.has(p.z, p.y, p.x);
            const u32 who = __ballot_sync(ALL, here);
            if (here) work(kind, turn, at + __popc(who & lanes_before()));
            at += __popc(who);
        }
}

// Whether an encoding's header is that of an array; the same in all threads, and nothing is read outside of it.
__device__ inline bool intact(const u8* payload, u64 nbytes, u32 magic, u32 kind_of_array, i64 n2, i64 n1, i64 n0,
                              u32 tiles, u64 start) {
    const Header* header = (const Header*)payload;
    return nbytes >= start && header->magic == magic && header->kind == kind_of_array && header->n2 == n2 &&
           header->n1 == n1 && header->n0 == n0 && header->tiles == tiles && header->size >= start &&
           header->size <= nbytes && header->size % 4 == 0 && possible(header->bound) && possible(header->step);
}

// The points of the uppermost grid are quantised as they are. A thread has a brick of 32, which is a row of its warp;
// or, in odd tiles, the differences along each axis are kept, and a row has the same point of all bricks of a warp.
constexpr int BRICK = 32, BRICK_Z = RANK == 3 ? 2 : 1, BRICK_Y = RANK == 1 ? 1 : 4, BRICK_X = BRICK / BRICK_Z / BRICK_Y;
constexpr int BRICKS_Y = RANK == 1 ? 1 : 2 * SIDE / BRICK_Y, BRICKS_X = 2 * SIDE / BRICK_X;
constexpr int TOP_HEAD = THREADS / 4;  // words: the width of each row in a byte
constexpr real MOST = 1 << 20;         // quanta of a point stay below it

// Where the points of a thread lie in their tile.
struct Place {
    int z, y, x;
    __device__ Place(int point) {
        const int brick = threadIdx.x, row = brick / BRICKS_X;
        z = row / BRICKS_Y * BRICK_Z + point / (BRICK_Y * BRICK_X), y = row % BRICKS_Y * BRICK_Y + point / BRICK_X % BRICK_Y;
        x = brick % BRICKS_X * BRICK_X + point % BRICK_X;
    }
    // That of a point that exists: itself, or the last along each axis.
    __device__ Place(int point, const Tile& tile) : Place(point) {
        z = min(z, tile.depth - 1), y = min(y, tile.height - 1), x = min(x, tile.width - 1);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    encode_top(const real* __restrict__ array, i64 sz, i64 sy, i64 sx, real* __restrict__ known, u8* __restrict__ out,
               i64 m2, i64 m1, i64 m0, u32 t1, u32 t0, u32 shift, double fine, const signed char* __restrict__ weights) {
    __shared__ u32 codes[WARPS][BRICK][BRICK + 1];
    __shared__ int scan[WARPS];
    __shared__ u64 begin;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Tile tile(blockIdx.x, m2, m1, m0, t1, t0);
    Header* header = (Header*)out;
    u32* my_place = (u32*)(out + HEADER) + blockIdx.x;
    double wide = header->step;
    real bound = (real)header->bound;
    if (weights) {
        const Quanta own = scaled(header->bound, header->step, weights[blockIdx.x]);
        bound = own.bound, wide = own.step;
    }
    const real step = (real)(wide * fine), inverse = 1 / step, test = bound > TINY ? bound : TINY;
    const auto address = [&](const Place& p) {
        return array + (tile.z + p.z) * sz + (tile.y + p.y) * sy + (tile.x + p.x) * sx;
    };
    const auto spot = [&](const Place& p) { return known + ((tile.z + p.z) * m1 + tile.y + p.y) * m0 + tile.x + p.x; };
    int quanta[BRICK];
    real near[BRICK];
    bool fits = true;
#pragma unroll
    for (int k = 0; k < BRICK; ++k) near[k] = *address(Place(k, tile));
#pragma unroll
    for (int k = 0; k < BRICK; ++k) {
        const real x = near[k], t = fused(x, inverse, MAGIC), off = add(t, -MAGIC);
        quanta[k] = bits_of(t) - ZERO;
        near[k] = times(off, step);
        fits = fits & (magnitude(add(x, -near[k])) < test) & (magnitude(off) < MOST);
    }
    const bool raw = !__syncthreads_and(fits);
#pragma unroll
    for (int k = 0; k < BRICK; ++k) {
        const Place p(k);
        if (tile.has(p.z, p.y, p.x)) *spot(p) = raw ? *address(p) : near[k];
    }
    u32 most = 0;
#pragma unroll
    for (int k = 0; k < BRICK; ++k) {
        const u32 code = code_of(quanta[k]);
        codes[warp][lane][k] = code, most |= code;
    }
    const int plainly = 32 - __clz(most);
#pragma unroll
    for (int k = BRICK - 1; k >= 0; --k)
        if (k % BRICK_X) quanta[k] -= quanta[k - 1];
#pragma unroll
    for (int k = BRICK - 1; k >= 0; --k)
        if (k / BRICK_X % BRICK_Y) quanta[k] -= quanta[k - BRICK_X];
#pragma unroll
    for (int k = BRICK - 1; k >= 0; --k)
        if (k / (BRICK_X * BRICK_Y)) quanta[k] -= quanta[k - BRICK_X * BRICK_Y];
    int changes = 0, both;
#pragma unroll
    for (int k = 0; k < BRICK; ++k) {
        const int width_of_row = 32 - __clz(__reduce_or_sync(ALL, code_of(quanta[k])));
        if (lane == k) changes = width_of_row;
    }
    const int earlier = before(plainly | changes << 16, scan, both);
    const bool odd = both >> 16 < (both & 0xffff);
    const int width = odd ? changes : plainly, at = odd ? earlier >> 16 : earlier & 0xffff;
    const int words = odd ? both >> 16 : both & 0xffff;
    if (odd) {
#pragma unroll
        for (int k = 0; k < BRICK; ++k) codes[warp][k][lane] = code_of(quanta[k]);
    }
    __syncwarp();
    const int each = BITS / 32, own = weights ? each : 0, points = tile.depth * tile.height * tile.width;
    if (!raw && !words) {
        if (threadIdx.x == 0) *my_place = 0;
        return;
    }
    int size = own + TOP_HEAD + words;
    const bool kept = raw || size >= points * each;
    if (kept) size = points * each;
    if (threadIdx.x == 0) {
        begin = atomicAdd(&header->size, ((u64)size * 4 + (1ull << shift) - 1) >> shift << shift);
        *my_place = (u32)(begin >> shift) | (kept ? RAW : odd ? ODD : 0);
    }
    __syncthreads();
    u32* to = (u32*)(out + begin);
    if (kept) {
#pragma unroll 1
        for (int k = 0; k < BRICK; ++k) {
            const Place p(k);
            if (!tile.has(p.z, p.y, p.x)) continue;
            copy_value(to + ((p.z * tile.height + p.y) * tile.width + p.x) * each, (const u32*)address(p));
            *spot(p) = *address(p);
        }
        return;
    }
    if (own && threadIdx.x == 0) put_step((u8*)to, step);
    to += own;
    ((u8*)to)[threadIdx.x] = (u8)width;
    to += TOP_HEAD;
#pragma unroll 1
    for (int k = 0; k < BRICK; ++k) {
        const int bits = __shfl_sync(ALL, width, k), there = __shfl_sync(ALL, at, k);
        const u32 code = codes[warp][k][lane];
        u32 word = 0;
        for (int bit = 0; bit < bits; ++bit) {
            const u32 plane = __ballot_sync(ALL, code >> bit & 1);
            if (lane == bit) word = plane;
        }
        if (lane < bits) to[there + lane] = word;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    decode_top(const u8* __restrict__ payload, u64 nbytes, real* __restrict__ known, u32 magic, u32 kind_of_array,
               i64 n2, i64 n1, i64 n0, i64 m2, i64 m1, i64 m0, u32 t1, u32 t0, u32 tiles, u64 start, u32 shift,
               double fine, u32* __restrict__ flag) {
    __shared__ u32 codes[WARPS][BRICK][BRICK + 1];
    __shared__ int scan[WARPS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Tile tile(blockIdx.x, m2, m1, m0, t1, t0);
    const Header* header = (const Header*)payload;
    bool whole = intact(payload, nbytes, magic, kind_of_array, n2, n1, n0, tiles, start);
    const u32 place = whole ? ((const u32*)(payload + HEADER))[blockIdx.x] : 0;
    const u64 end = whole ? header->size : 0, from = (u64)(place & ODD - 1) << shift;
    const int each = BITS / 32, own = kind_of_array >> 24 ? each : 0, points = tile.depth * tile.height * tile.width;
    const auto spot = [&](const Place& p) { return known + ((tile.z + p.z) * m1 + tile.y + p.y) * m0 + tile.x + p.x; };
    real step = whole ? (real)(header->step * fine) : 0;
    if (place) whole = from >= start;
    if (place & RAW && whole && from + (u64)points * sizeof(real) <= end) {
#pragma unroll 1
        for (int k = 0; k < BRICK; ++k) {
            const Place p(k);
            if (!tile.has(p.z, p.y, p.x)) continue;
            const int at = ((p.z * tile.height + p.y) * tile.width + p.x) * each;
            copy_value((u32*)spot(p), (const u32*)(payload + from) + at);
        }
        return;
    }
    whole = whole && !(place & RAW);
    if (place) {
        whole = whole && from + (own + TOP_HEAD) * 4 <= end;
        if (whole && own) {
            step = step_of(payload + from);
            whole = possible(step);
        }
    }
    const u32* data = (const u32*)(payload + from) + own;
    int words;
    const int width = place && whole ? ((const u8*)data)[threadIdx.x] : 0, at = before(width, scan, words);
    const bool possible_widths = __syncthreads_and(width <= 32);
    whole = whole && possible_widths && from + (u64)(own + TOP_HEAD + words) * 4 <= end;
    if (place) whole = whole && words;
    if (!whole && threadIdx.x == 0) atomicOr(flag, DAMAGED);
    const bool coded = place && whole;
#pragma unroll 1
    for (int k = 0; k < BRICK && coded; ++k) {
        const int bits = __shfl_sync(ALL, width, k), there = __shfl_sync(ALL, at, k);
        const u32 word = lane < bits ? data[TOP_HEAD + there + lane] : 0;
        u32 code = 0;
        for (int bit = 0; bit < bits; ++bit) code |= (__shfl_sync(ALL, word, bit) >> lane & 1) << bit;
        codes[warp][k][lane] = code;
    }
    __syncwarp();
    int quanta[BRICK];
#pragma unroll
    for (int k = 0; k < BRICK; ++k)
        quanta[k] = coded ? symbol_of(place & ODD ? codes[warp][k][lane] : codes[warp][lane][k]) : 0;
    if (place & ODD) {
#pragma unroll
        for (int k = 0; k < BRICK; ++k)
            if (k % BRICK_X) quanta[k] += quanta[k - 1];
#pragma unroll
        for (int k = 0; k < BRICK; ++k)
            if (k / BRICK_X % BRICK_Y) quanta[k] += quanta[k - BRICK_X];
#pragma unroll
        for (int k = 0; k < BRICK; ++k)
            if (k / (BRICK_X * BRICK_Y)) quanta[k] += quanta[k - BRICK_X * BRICK_Y];
    }
#pragma unroll
    for (int k = 0; k < BRICK; ++k) {
        const Place p(k);
        if (tile.has(p.z, p.y, p.x)) *spot(p) = times((real)quanta[k], step);
    }
}

// Encode the new points of a grid: `array` has them at these strides, `above` has the decoded points of the grid above,
// and `known` is for those of this one, where it is not the last. The step is `fine` of the header's.
template <bool LAST>
__device__ inline void encode_tile(const real* __restrict__ array, i64 sz, i64 sy, i64 sx,
                                   const real* __restrict__ above, real* __restrict__ known, u8* __restrict__ out,
                                   i64 m2, i64 m1, i64 m0, u32 t1, u32 t0, u32 number_of_first, u32 shift,
                                   double fine, const signed char* __restrict__ weights) {
    __shared__ __align__(16) char memory[sizeof(Room)];
    __shared__ u32 bits[BITS_ROOM], rest[16];
    __shared__ u16 chunk_places[CHUNKS];
    __shared__ u8 widths[CHUNKS];
    __shared__ int scan[5][WARPS], worth[GROUPS];
    __shared__ u64 begin;
    Room& room = *(Room*)memory;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Tile tile(blockIdx.x, m2, m1, m0, t1, t0);
    const Cell cell(warp, lane);
    Header* header = (Header*)out;
    u32* my_place = (u32*)(out + HEADER) + number_of_first + blockIdx.x;
    double wide = header->step;
    real bound = (real)header->bound;
    if (weights) {
        const Quanta own = scaled(header->bound, header->step, weights[number_of_first + blockIdx.x]);
        bound = own.bound, wide = own.step;
    }
    const real step = (real)(wide * fine);
    const real inverse = 1 / step, test = bound > TINY ? bound : TINY;
    const auto address = [&](const Point& p) {
        return array + (tile.z + p.z) * sz + (tile.y + p.y) * sy + (tile.x + p.x) * sx;
    };

    const bool blank = surround(above, tile, m2, m1, m0, room.coarse);
    real values[ROWS];
    if (LAST && tile.full() && ((u64)array | (u64)sy * sizeof(real) | (u64)sz * sizeof(real)) % sizeof(Pair) == 0) {
        each_pair(array, tile, cell, sz, sy, 1, [&](int turn, int kind, const real* at) {
            const Pair pair = *(const Pair*)at;
            if (kind) values[row_of(kind, turn)] = pair.even;
            values[row_of(kind + 1, turn)] = pair.odd;
        });
    } else if (!LAST && !DOUBLE && tile.full() && sx == 2 && ((u64)array | (u64)sy * 4 | (u64)sz * 4) % 16 == 0) {
        each_pair(array, tile, cell, sz, sy, 2, [&](int turn, int kind, const real* at) {
            const Vector four = *(const Vector*)at;
            if (kind) values[row_of(kind, turn)] = four.x[0];
            values[row_of(kind + 1, turn)] = four.x[EACH / 2];
        });
    } else if (tile.full()) {
        each_pair(array, tile, cell, sz, sy, sx, [&](int turn, int kind, const real* at) {
            if (kind) values[row_of(kind, turn)] = at[0];
            values[row_of(kind + 1, turn)] = at[sx];
        });
    } else {
        real* mine = room.field + field_of(cell);
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
            for (int kind = 1; kind <= KINDS; ++kind) {
                const Point p(cell, kind, turn);
                mine[(kind - 1) * CELLS + turn * FIELD_Y] = tile.has(p.z, p.y, p.x) ? *address(p) : none();
            }
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
            for (int kind = 1; kind <= KINDS; ++kind)
                values[row_of(kind, turn)] = mine[(kind - 1) * CELLS + turn * FIELD_Y];
    }
    if (__syncthreads_and(blank)) {
        bool nothing = true;
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
            nothing = nothing && magnitude(values[row]) < test && fused(values[row], inverse, MAGIC) == MAGIC;
        if (__syncthreads_and(nothing)) {
            if (threadIdx.x == 0) *my_place = 0;
            if (LAST) return;
#pragma unroll 1
            for (int k = threadIdx.x; k < KINDS * CELLS; k += THREADS) room.field[k] = 0;
            __syncthreads();
            write_points(known, above, tile, cell, m1, m0, room.field, [](int, int) { return (real)0; });
            return;
        }
    }

    // First as if all fitted, which is quick.
    u32 symbols[ROWS / 2];  // of 16 bits each
    u32 exact = 0, mask = 0;
    const auto keep = [&](int row, real t) {
        symbols[row / 2] = row % 2 ? (symbols[row / 2] & 0xffff) | (u32)bits_of(t) << 16 : (u32)bits_of(t);
        mask |= t != MAGIC ? 1u << row : 0;
    };
    bool careful = !tile.full();
    if (!careful) {
        bool fits = true;
        real most = 0;
        predict<!LAST>(room, cell, [&](int kind, int turn, real guess) {
            const int row = row_of(kind, turn);
            const real x = values[row], t = fused(add(x, -guess), inverse, MAGIC), off = add(t, -MAGIC);
            const real near = fused(off, step, guess);
            keep(row, t);
            fits = fits & (magnitude(add(x, -near)) < test);
            most = larger(most, magnitude(off));
            return near;
        });
        careful = !__syncthreads_and(fits && most < MANY);
    }
    if (careful) {
        u32 here = 0;
        mask = 0;
        if (tile.full())  // it is not worth keeping them until here
            each_pair(array, tile, cell, sz, sy, sx, [&](int turn, int kind, const real* at) {
                if (kind) values[row_of(kind, turn)] = at[0];
                values[row_of(kind + 1, turn)] = at[sx];
            });
#pragma unroll 1
        for (int row = 0; row < ROWS; ++row) {
            const Point p(cell, row / TURNS + 1, row % TURNS);
            here |= tile.has(p.z, p.y, p.x) ? 1u << row : 0;
        }
        predict<!LAST>(room, cell, [&](int kind, int turn, real guess) {
            const int row = row_of(kind, turn);
            const real x = values[row], t = fused(add(x, -guess), inverse, MAGIC), off = add(t, -MAGIC);
            const real near = fused(off, step, guess);
            const bool good = magnitude(add(x, -near)) < test && magnitude(off) < MANY;
            keep(row, good ? t : MAGIC);
            exact |= good ? 0 : here & 1u << row;
            return good ? near : number(guess);
        });
    }
    if (!LAST) {
        write_points(known, above, tile, cell, m1, m0, room.field, [&](int kind, int turn) {
            return room.field[(kind - 1) * CELLS + field_of(cell) + turn * FIELD_Y];
        });
        for (u32 left = exact; left; left &= left - 1) {
            const Point p(cell, (__ffs(left) - 1) / TURNS + 1, (__ffs(left) - 1) % TURNS);
            known[((tile.z + p.z) * m1 + tile.y + p.y) * m0 + tile.x + p.x] = *address(p);
        }
    }

    // What is not zero, one after the other, thread by thread.
    for (int k = threadIdx.x; k < BITS_ROOM; k += THREADS) bits[k] = 0;
    if (threadIdx.x < 16) rest[threadIdx.x] = 0;
    if (threadIdx.x < GROUPS) worth[threadIdx.x] = 0;
    u32 groups = groups_of(mask), whole = 0;
    int total, all_exact = 0, told_groups = GROUPS;
    int earlier = before((mask ? 1 : 0) + (__popc(groups) << 8) + (__popc(mask) << 18), scan[0], total);
    const int exact_before = careful ? before(__popc(exact), scan[1], all_exact) : 0;
    if (!(total >> 18) && !all_exact) {
        if (threadIdx.x == 0) *my_place = 0;
        return;
    }
    u16* list = (u16*)memory;
    const auto symbol = [&](int row) { return (u16)(symbols[row / 2] >> row % 2 * 16); };
    if (3 * (total >> 18) > WORTH - 4 * THREADS) whole = whole_groups(mask, worth);
    if (whole) {
        const int rows_of_warp = 4 * __popc(whole);
        int at = warp * rows_of_warp * 32 + lane;
        told_groups -= __popc(whole);
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
            if (whole >> row / 4 & 1) {
                list[at] = symbol(row), at += 32;
                mask &= ~(1u << row);
            }
        groups = groups_of(mask);
        earlier = before((mask ? 1 : 0) + (__popc(groups) << 8) + (__popc(mask) << 18), scan[4], total);
        groups = without(groups, whole);
    }
    const u32 flags = __ballot_sync(ALL, mask != 0);
    const int all_flagged = total & 0xff, listed = GROUP * __popc(whole) + (total >> 18);
    const int mask_bits = told_groups * all_flagged + 4 * (total >> 8 & 0x3ff);
    const bool odd = whole || all_exact;
    u16* next = list + GROUP * __popc(whole) + (earlier >> 18);
    if (flags)
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
            if (mask >> row & 1) *next++ = symbol(row);
    if (mask) {
        put(bits, told_groups * (earlier & 0xff), groups, told_groups);
        u32 told = 0;
        int count = 0;
#pragma unroll
        for (int group = 0; group < GROUPS; ++group)
            if (mask >> 4 * group & 15) told |= (mask >> 4 * group & 15) << count, count += 4;
        put(bits, told_groups * all_flagged + 4 * (earlier >> 8 & 0x3ff), told, count);
    }
    __syncthreads();
    const int chunks = (listed + 31) / 32, entire = GROUP * __popc(whole);
    const auto code = [&](int chunk) {
        const int at = chunk * 32 + lane;
        return at < listed ? code_of((short)list[at]) - (at >= entire) : 0;
    };
    for (int chunk = warp; chunk < chunks; chunk += WARPS) {
        const int width = width_of(__reduce_or_sync(ALL, code(chunk)));
        if (lane == 0) {
            widths[chunk] = width;
            put(bits, mask_bits + 4 * chunk, width - 1, 4);
        }
    }
    __syncthreads();
    int words;
    const int partly = listed & 31, own_chunk = threadIdx.x;
    static_assert(CHUNKS <= THREADS, "a chunk for each thread");
    const int own_width = own_chunk < chunks ? widths[own_chunk] : 0;
    const int own_words = own_chunk == chunks - 1 && partly ? (own_width * partly + 31) / 32 : own_width;
    const int place = before(own_words, scan[2], words);

    const int each = BITS / 32, own = weights ? each : 0, fresh = tile.fresh();
    const int bit_words = (mask_bits + 4 * chunks + 31) / 32;
    int size = own + odd + (told_groups ? HEAD : 0) + bit_words + words + (all_exact + 1) / 2 + all_exact * each;
    const bool raw = size >= fresh * each;
    if (raw) size = fresh * each;
    const u64 units = ((u64)size * 4 + (1ull << shift) - 1) >> shift;
    if (threadIdx.x == 0) {
        begin = atomicAdd(&header->size, units << shift);
        *my_place = (u32)(begin >> shift) | (raw ? RAW : odd ? ODD : 0);
    }
    if (own_chunk < chunks) chunk_places[own_chunk] = place;
    __syncthreads();
    u32* to = (u32*)(out + begin);
    if (raw) {
        each_fresh(tile, cell, scan[3], [&](int kind, int turn, int at) {
            const Point p(cell, kind, turn);
            copy_value(to + at * each, (const u32*)address(p));
            if (!LAST) known[((tile.z + p.z) * m1 + tile.y + p.y) * m0 + tile.x + p.x] = *address(p);
        });
        return;
    }
    if (own && threadIdx.x == 0) put_step((u8*)to, step);
    to += own;
    if (odd && threadIdx.x == 0) *to = (u32)all_exact | whole << WHOLE;
    to += odd;
    if (told_groups) {
        if (lane == 0) to[warp] = flags;
        to += HEAD;
    }
    for (int k = threadIdx.x; k < bit_words; k += THREADS) to[k] = bits[k];
    to += bit_words;
    for (int chunk = warp; chunk < chunks; chunk += WARPS) {
        const u32 mine = code(chunk);
        const int width = widths[chunk];
        u32 word = 0;
        for (int bit = 0; bit < width; ++bit) {
            const u32 plane = __ballot_sync(ALL, mine >> bit & 1);
            if (lane == bit) word = plane;
        }
        u32* there = to + chunk_places[chunk];
        if (chunk == chunks - 1 && partly) {
            if (lane < width) put(rest, lane * partly, word, partly);
            __syncwarp();
            if (lane < (width * partly + 31) / 32) there[lane] = rest[lane];
        } else if (lane < width) {
            there[lane] = word;
        }
    }
    if (!all_exact) return;
    to += words;
    u32* kept = to + (all_exact + 1) / 2;
    int number = exact_before;
    for (u32 left = exact; left; left &= left - 1, ++number) {
        const int row = __ffs(left) - 1;
        ((u16*)to)[number] = (u16)((warp * ROWS + row) * 32 + lane);
        copy_value(kept + number * each, (const u32*)address(Point(cell, row / TURNS + 1, row % TURNS)));
    }
    if (all_exact % 2 && threadIdx.x == 0) ((u16*)to)[all_exact] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, ENCODE_BLOCKS)
    encode(const real* __restrict__ array, i64 sz, i64 sy, i64 sx, const real* __restrict__ above,
           real* __restrict__ known, u8* __restrict__ out, i64 m2, i64 m1, i64 m0, u32 t1, u32 t0, u32 number_of_first,
           u32 shift, double fine, const signed char* __restrict__ weights) {
    encode_tile<true>(array, sz, sy, sx, above, known, out, m2, m1, m0, t1, t0, number_of_first, shift, fine, weights);
}

extern "C" __global__ void __launch_bounds__(THREADS, ENCODE_BLOCKS)
    encode_above(const real* __restrict__ array, i64 sz, i64 sy, i64 sx, const real* __restrict__ above,
                 real* __restrict__ known, u8* __restrict__ out, i64 m2, i64 m1, i64 m0, u32 t1, u32 t0,
                 u32 number_of_first, u32 shift, double fine, const signed char* __restrict__ weights) {
    encode_tile<false>(array, sz, sy, sx, above, known, out, m2, m1, m0, t1, t0, number_of_first, shift, fine, weights);
}

// Decode the new points of a grid, and put them together with those of the grid above.
extern "C" __global__ void __launch_bounds__(THREADS, DECODE_BLOCKS)
    decode(const u8* __restrict__ payload, u64 nbytes, const real* __restrict__ above, real* __restrict__ known,
           u32 magic, u32 kind_of_array, i64 n2, i64 n1, i64 n0, i64 m2, i64 m1, i64 m0, u32 t1, u32 t0,
           u32 number_of_first, u32 tiles, u64 start, u32 shift, double fine, u32* __restrict__ flag) {
    __shared__ __align__(16) char memory[sizeof(Room)];
    __shared__ u8 widths[CHUNKS];
    __shared__ u16 chunk_places[CHUNKS];
    __shared__ int scan[4][WARPS];
    Room& room = *(Room*)memory;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Tile tile(blockIdx.x, m2, m1, m0, t1, t0);
    const Cell cell(warp, lane);
    const Header* header = (const Header*)payload;
    bool whole = intact(payload, nbytes, magic, kind_of_array, n2, n1, n0, tiles, start);
    const u32 place = whole ? ((const u32*)(payload + HEADER))[number_of_first + blockIdx.x] : 0;
    real step = whole ? (real)(header->step * fine) : 0;
    const u64 end = whole ? header->size : 0, from = (u64)(place & ODD - 1) << shift;
    const int each = BITS / 32, own = kind_of_array >> 24 ? each : 0;
    const auto spot = [&](const Point& p) { return known + ((tile.z + p.z) * m1 + tile.y + p.y) * m0 + tile.x + p.x; };
    if (!whole) {
        if (threadIdx.x == 0) atomicOr(flag, DAMAGED);
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll 1
            for (int kind = 0; kind <= KINDS; ++kind) {
                const Point p(cell, kind, turn);
                if (tile.has(p.z, p.y, p.x)) *spot(p) = 0;
            }
        return;
    }
    const bool blank = surround(above, tile, m2, m1, m0, room.coarse);
    const int fresh = tile.fresh();
    bool coded = false, raw = place & RAW;
    if (place) whole = from >= start;
    if (raw) {
        whole = whole && from + (u64)fresh * sizeof(real) <= end;
    } else if (place) {
        whole = whole && from + (own + 1) * 4 <= end;
        if (whole && own) {
            step = step_of(payload + from);
            whole = possible(step);
        }
        coded = whole;
    }
    const u32* data = (const u32*)(payload + from) + own;
    const int left = coded ? (int)min((end - from) / 4 - own, (u64)1 << 24) : 0;  // words

    int used = 0, exact = 0, first = 0;
    u32 mask = 0;
    u32 entire = 0;  // groups that are listed whole
    real* list = room.field;
    if (coded) {
        if (place & ODD) entire = data[used++];
        exact = entire & 0xffff, entire >>= WHOLE;
        int flagged = 0, rank = 0, all_groups, listed, words;
        u32 flags = 0;
        const int told_groups = GROUPS - __popc(entire);
        coded = exact <= SYMBOLS && entire < 1u << GROUPS && (!told_groups || used + HEAD <= left);
        if (coded && told_groups) {
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                const u32 word = data[used + w];
                if (w == warp) flags = word, rank = flagged + __popc(word & lanes_before());
                flagged += __popc(word);
            }
            used += HEAD;
        }
        const u32* packed = data + used;
        coded = coded && used + (told_groups * flagged + 31) / 32 <= left;
        u32 groups = coded && flags >> lane & 1 ? bits_at(packed, told_groups * rank, told_groups) : 0;
        const int groups_before = before(__popc(groups), scan[0], all_groups);
        if (entire) groups = among(groups, entire);
        const int mask_bits = told_groups * flagged + 4 * all_groups;
        coded = coded && used + (mask_bits + 31) / 32 <= left;
        if (coded && groups) {
            u32 told = bits_at(packed, told_groups * flagged + 4 * groups_before, 4 * __popc(groups));
#pragma unroll
            for (int group = 0; group < GROUPS; ++group)
                if (groups >> group & 1) mask |= (told & 15) << 4 * group, told >>= 4;
        }
        first = GROUP * __popc(entire) + before(__popc(mask), scan[1], listed);
        listed += GROUP * __popc(entire);
        const int chunks = (listed + 31) / 32, partly = listed & 31, entire_chunks = GROUP / 32 * __popc(entire);
        used += (mask_bits + 4 * chunks + 31) / 32;
        coded = coded && used <= left;
        int width = 0;
        if (coded && threadIdx.x < chunks) width = bits_at(packed, mask_bits + 4 * (int)threadIdx.x, 4) + 1;
        const int own_words = threadIdx.x == chunks - 1 && partly ? (width * partly + 31) / 32 : width;
        const int chunk_place = before(own_words, scan[2], words);
        if (threadIdx.x < chunks) widths[threadIdx.x] = width, chunk_places[threadIdx.x] = chunk_place;
        coded = coded && (u64)used + words + (exact + 1) / 2 + (u64)exact * each <= left;
        __syncthreads();
        for (int chunk = warp; coded && chunk < chunks; chunk += WARPS) {
            const u32* there = data + used + chunk_places[chunk];
            const int bits = widths[chunk];
            u32 word = 0, code = 0;
            if (chunk == chunks - 1 && partly) {
                if (lane < bits) word = bits_at(there, lane * partly, partly);
            } else if (lane < bits) {
                word = there[lane];
            }
            for (int bit = 0; bit < bits; ++bit) code |= (__shfl_sync(ALL, word, bit) >> lane & 1) << bit;
            list[chunk * 32 + lane] = (real)symbol_of(code + (chunk >= entire_chunks));
        }
        used += words;
        for (int k = threadIdx.x; coded && k < exact; k += THREADS) whole = whole && ((u16*)(data + used))[k] < SYMBOLS;
        whole = whole && coded;
    }
    if (!whole) atomicOr(flag, DAMAGED);
    whole = __syncthreads_and(whole);
    coded = coded && whole;
    real values[ROWS];
    if (!coded) mask = entire = 0;
    const real* next = list + first;
#pragma unroll
    for (int row = 0; row < ROWS; ++row) values[row] = 0;
    if (__any_sync(ALL, mask != 0))
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
            if (mask >> row & 1) values[row] = *next++;
    if (entire) {
        next = list + warp * 128 * __popc(entire) + lane;
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
            if (entire >> row / 4 & 1) values[row] = *next, next += 32;
    }
    const bool zeros = __syncthreads_and(blank && !coded && !(raw && whole));
    if (!zeros) {
        if (exact != 0 || !coded || !tile.full())
            predict<true>(room, cell, [&](int kind, int turn, real guess) {
                return values[row_of(kind, turn)] = number(fused(values[row_of(kind, turn)], step, guess));
            });
        else
            predict<false>(room, cell, [&](int kind, int turn, real guess) {
                return values[row_of(kind, turn)] = fused(values[row_of(kind, turn)], step, guess);
            });
    }
    if (zeros && !tile.full())
        for (int row = 0; row < ROWS; ++row)
            room.field[row / TURNS * CELLS + field_of(cell) + row % TURNS * FIELD_Y] = 0;
    write_points(known, above, tile, cell, m1, m0, room.field,
                 [&](int kind, int turn) { return values[row_of(kind, turn)]; });
    if (raw && whole) {
        __syncthreads();
        each_fresh(tile, cell, scan[3], [&](int kind, int turn, int at) {
            copy_value((u32*)spot(Point(cell, kind, turn)), (const u32*)(payload + from) + at * each);
        });
    }
    if (!coded || !exact) return;
    __syncthreads();
    const u32* kept = data + used + (exact + 1) / 2;
    for (int k = threadIdx.x; k < exact; k += THREADS) {
        const int which = ((const u16*)(data + used))[k], row = which / 32 % ROWS;
        const Point p(Cell(which / 32 / ROWS, which % 32), row / TURNS + 1, row % TURNS);
        if (tile.has(p.z, p.y, p.x)) copy_value((u32*)spot(p), kept + k * each);
    }
}
