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
#define ENCODE_BLOCKS (DOUBLE ? 3 : 5)
#endif
#ifndef DECODE_BLOCKS
#define DECODE_BLOCKS (DOUBLE ? 3 : 6)
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
constexpr int HEAD = 4;                                       // words: a bit for each row
constexpr u32 PLAIN = 1u << 31;                               // in the last of them: zeros are symbols as others are
constexpr int CHUNKS = (SYMBOLS + 31) / 32;                   // of 32 symbols each, that are not zero
constexpr int BITS_ROOM = (WARPS * ROWS * (4 + 32) + 4 * CHUNKS) / 32 + 2;
constexpr int LINE_PITCH = RANK < 3 ? HALO : DOUBLE ? 12 : 24;  // off the banks of other lanes, where there is room
constexpr int PLANE_PITCH = RANK == 3 ? HALO * LINE_PITCH : RANK == 2 ? HALO : 0;

#if DOUBLE
__device__ inline real add(real a, real b) { return __dadd_rn(a, b); }
__device__ inline real times(real a, real b) { return __dmul_rn(a, b); }
__device__ inline real fused(real a, real b, real c) { return __fma_rn(a, b, c); }
__device__ inline real magnitude(real a) { return fabs(a); }
__device__ inline int integer(real t) { return __double2loint(t); }
#else
__device__ inline real add(real a, real b) { return __fadd_rn(a, b); }
__device__ inline real times(real a, real b) { return __fmul_rn(a, b); }
__device__ inline real fused(real a, real b, real c) { return __fmaf_rn(a, b, c); }
__device__ inline real magnitude(real a) { return fabsf(a); }
__device__ inline int integer(real t) { return __float_as_int(t) - ZERO; }
#endif
constexpr real MAGIC = DOUBLE ? 6755399441055744.0 : 12582912.0;

__device__ inline real none() { return (real)LARGEST * 2; }  // stands for what does not exist, and never fits

struct __align__(2 * sizeof(real)) Pair {
    real even, odd;
};

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
            if (aligned)
                *(Pair*)at = Pair{even, value(kind + 1, turn)};
            else
                at[0] = even, at[1] = value(kind + 1, turn);
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

// Likewise of all threads before this one, and of all.
__device__ inline int before(int mine, int* sums, int& total) {
    const int warp = threadIdx.x >> 5;
    int sum = before(mine) + mine, earlier = 0;
    if ((threadIdx.x & 31) == 31) sums[warp] = sum;
    __syncthreads();
    total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) earlier += w < warp ? sums[w] : 0, total += sums[w];
    __syncthreads();
    return earlier + sum - mine;
}

// Symbols as numbers from zero on, and back.
__device__ inline u32 code_of(int symbol) { return 2 * (u32)(symbol < 0 ? -symbol : symbol) - (symbol < 0); }
__device__ inline int symbol_of(int code) { return ((code + 1 >> 1) ^ -(code & 1)) + (code & 1); }

// Which bytes of a mask are not zero; none is told where all lanes are listed.
__device__ inline u32 bytes_of(u32 mask) {
    if (mask == ALL) return 0;
    return (mask & 0xff ? 1 : 0) | (mask & 0xff00 ? 2 : 0) | (mask & 0xff0000 ? 4 : 0) | (mask >> 24 ? 8 : 0);
}

__device__ inline void put(u32* words, int at, u32 bits, int count) {
    atomicOr(words + (at >> 5), bits << (at & 31));
    if ((at & 31) + count > 32) atomicOr(words + (at >> 5) + 1, bits >> (32 - (at & 31)));
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

struct Sums {
    int rows, bytes, full, few, exact;  // rows, their bytes, rows that are listed whole, symbols of others, exact values
};

extern "C" __global__ void __launch_bounds__(256)
    anchors(const real* __restrict__ array, i64 sz, i64 sy, i64 sx, i64 m2, i64 m1, i64 m0, real* __restrict__ to) {
    const i64 stride = (i64)gridDim.x * 256;
    for (i64 k = (i64)blockIdx.x * 256 + threadIdx.x; k < m2 * m1 * m0; k += stride) {
        const i64 row = k / m0, z = row / m1;
        to[k] = array[z * sz + (row - z * m1) * sy + (k - row * m0) * sx];
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
    __shared__ u32 bits[BITS_ROOM], rest[16], masks[THREADS];
    __shared__ u16 chunk_places[CHUNKS], spare[THREADS];
    __shared__ u8 widths[CHUNKS];
    __shared__ Sums sums[WARPS];
    __shared__ int scan[WARPS];
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
    int symbols[ROWS];
    u32 exact = 0;
    bool fits = true;
    if (tile.full())
        predict<!LAST>(room, cell, [&](int kind, int turn, real guess) {
            const int row = row_of(kind, turn);
            const real x = values[row], t = fused(add(x, -guess), inverse, MAGIC), off = add(t, -MAGIC);
            const real near = fused(off, step, guess);
            symbols[row] = integer(t);
            fits = fits && magnitude(add(x, -near)) < test && magnitude(off) < MANY;
            return near;
        });
    const bool careful = !__syncthreads_and(fits && tile.full());
    if (careful)
        predict<!LAST>(room, cell, [&](int kind, int turn, real guess) {
            const int row = row_of(kind, turn);
            const Point p(cell, kind, turn);
            const bool here = tile.has(p.z, p.y, p.x);
            const real x = here ? *address(p) : none(), t = fused(add(x, -guess), inverse, MAGIC), off = add(t, -MAGIC);
            const real near = fused(off, step, guess);
            const bool good = magnitude(add(x, -near)) < test && magnitude(off) < MANY;
            symbols[row] = good ? integer(t) : 0;
            exact |= !good && here ? 1u << row : 0;
            return good ? near : number(guess);
        });
    if (!LAST) {
        write_points(known, above, tile, cell, m1, m0, room.field, [&](int kind, int turn) {
            return room.field[(kind - 1) * CELLS + field_of(cell) + turn * FIELD_Y];
        });
        for (u32 left = exact; left; left &= left - 1) {
            const Point p(cell, (__ffs(left) - 1) / TURNS + 1, (__ffs(left) - 1) % TURNS);
            known[((tile.z + p.z) * m1 + tile.y + p.y) * m0 + tile.x + p.x] = *address(p);
        }
    }

    // What is not zero, one after the other, in the order of rows.
    u16* list = (u16*)memory;
    u16* mine_of_list = list + warp * (ROWS * 32);  // rows that are listed whole from its beginning, others from its end
    int full = 0, few = 0;
    const u32 earlier_lanes = lanes_before();
    masks[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        const int symbol = symbols[row];
        const u32 mask = __ballot_sync(ALL, symbol != 0);
        if (!mask) continue;
        const u32 code = code_of(symbol);
        const int zeros = 32 - __popc(mask);
        const bool mostly = zeros <= 12 && zeros * width_of(__reduce_or_sync(ALL, code)) < 32;
        if (lane == 0) masks[warp * 32 + row] = mostly ? ALL : mask;
        const int at = mostly ? full * 32 + lane : ROWS * 32 - 1 - few - __popc(mask & earlier_lanes);
        *(symbol || mostly ? mine_of_list + at : spare + threadIdx.x) = (u16)(code - !mostly);
        full += mostly, few += mostly ? 0 : 32 - zeros;
    }
    __syncwarp();
    u32 mine = masks[threadIdx.x], rows = __ballot_sync(ALL, mine != 0);
    const u32 some = bytes_of(mine);
    const int bytes_before = before(__popc(some)), exact_before = careful ? before(__popc(exact)) : 0;
    if (lane == 31)
        sums[warp] = Sums{__popc(rows), bytes_before + (int)__popc(some), full, few, exact_before + (int)__popc(exact)};
    for (int k = threadIdx.x; k < BITS_ROOM; k += THREADS) bits[k] = 0;
    if (threadIdx.x < 16) rest[threadIdx.x] = 0;
    __syncthreads();
    Sums all{0, 0, 0, 0, 0}, earlier{0, 0, 0, 0, 0};
    int full_ends[WARPS], few_ends[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        const Sums s = sums[w];
        if (w == warp) earlier = all;
        all.rows += s.rows, all.bytes += s.bytes, all.full += s.full, all.few += s.few, all.exact += s.exact;
        full_ends[w] = all.full * 32, few_ends[w] = all.few;
    }
    int listed = all.full * 32 + all.few;
    if (!listed && !all.exact) {
        if (threadIdx.x == 0) *my_place = 0;
        return;
    }
    const bool plain = 8 * listed >= 7 * SYMBOLS;
    if (plain) {
        mine = rows = 0;
        all.rows = all.bytes = 0, listed = SYMBOLS;
#pragma unroll
        for (int row = 0; row < ROWS; ++row) mine_of_list[row * 32 + lane] = (u16)code_of(symbols[row]);
        __syncthreads();
    }
    const auto code_at = [&](int k) -> u32 {
        if (plain) return list[k];
        if (k >= listed) return 0;
        const bool whole = k < all.full * 32;
        const int(&ends)[WARPS] = whole ? full_ends : few_ends;
        k -= whole ? 0 : all.full * 32;
        const int w = (k >= ends[0]) + (k >= ends[1]) + (k >= ends[2]);
        k -= w == 0 ? 0 : w == 1 ? ends[0] : w == 2 ? ends[1] : ends[2];
        return list[w * (ROWS * 32) + (whole ? k : ROWS * 32 - 1 - k)];
    };
    const int chunks = (listed + 31) / 32, flags = (all.rows + 1) & ~1;
    for (int chunk = warp; chunk < chunks; chunk += WARPS) {
        const int width = width_of(__reduce_or_sync(ALL, code_at(chunk * 32 + lane)));
        if (lane == 0) {
            widths[chunk] = width;
            put(bits, 4 * (flags + 2 * all.bytes + chunk), width - 1, 4);
        }
    }
    if (mine) {
        put(bits, 4 * (earlier.rows + __popc(rows & lanes_before())), some, 4);
        int at = 4 * flags + 8 * (earlier.bytes + bytes_before);
        for (u32 left = some ? mine : 0, byte = 0; byte < 4; ++byte, left >>= 8)
            if (left & 0xff) put(bits, at, left & 0xff, 8), at += 8;
    }
    __syncthreads();
    int words;
    const int partly = listed & 31, own_chunk = threadIdx.x;
    static_assert(CHUNKS <= THREADS, "a chunk for each thread");
    const int own_width = own_chunk < chunks ? widths[own_chunk] : 0;
    const int own_words = own_chunk == chunks - 1 && partly ? (own_width * partly + 31) / 32 : own_width;
    const int place = before(own_words, scan, words);

    const int each = BITS / 32, own = weights ? each : 0, fresh = tile.fresh();
    const int bit_words = (4 * (flags + 2 * all.bytes + chunks) + 31) / 32;
    int size = own + HEAD + bit_words + words + (all.exact + 1) / 2 + all.exact * each;
    const bool raw = size >= fresh * each;
    if (raw) size = fresh * each;
    const u64 units = ((u64)size * 4 + (1ull << shift) - 1) >> shift;
    if (threadIdx.x == 0) {
        begin = atomicAdd(&header->size, units << shift);
        *my_place = (u32)(begin >> shift) | (raw ? RAW : 0);
    }
    if (own_chunk < chunks) chunk_places[own_chunk] = place;
    __syncthreads();
    u32* to = (u32*)(out + begin);
    if (raw) {
        each_fresh(tile, cell, scan, [&](int kind, int turn, int at) {
            const Point p(cell, kind, turn);
            copy_value(to + at * each, (const u32*)address(p));
            if (!LAST) known[((tile.z + p.z) * m1 + tile.y + p.y) * m0 + tile.x + p.x] = *address(p);
        });
        return;
    }
    if (own && threadIdx.x == 0) put_step((u8*)to, step);
    to += own;
    if (lane == 0) to[warp] = rows | (u32)(all.exact >> 4 * warp & 15) << 28 | (plain && warp == WARPS - 1 ? PLAIN : 0);
    to += HEAD;
    for (int k = threadIdx.x; k < bit_words; k += THREADS) to[k] = bits[k];
    to += bit_words;
    for (int chunk = warp; chunk < chunks; chunk += WARPS) {
        const u32 code = code_at(chunk * 32 + lane);
        const int width = widths[chunk];
        u32 word = 0;
        for (int bit = 0; bit < width; ++bit) {
            const u32 plane = __ballot_sync(ALL, code >> bit & 1);
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
    if (!all.exact) return;
    to += words;
    u32* kept = to + (all.exact + 1) / 2;
    int number = earlier.exact + exact_before;
    for (u32 left = exact; left; left &= left - 1, ++number) {
        const int row = __ffs(left) - 1;
        ((u16*)to)[number] = (u16)((warp * ROWS + row) * 32 + lane);
        copy_value(kept + number * each, (const u32*)address(Point(cell, row / TURNS + 1, row % TURNS)));
    }
    if (all.exact % 2 && threadIdx.x == 0) ((u16*)to)[all.exact] = 0;
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
    __shared__ __align__(16) u16 list[SYMBOLS];
    __shared__ u8 widths[CHUNKS];
    __shared__ u16 chunk_places[CHUNKS], starts[THREADS];
    __shared__ u32 masks[THREADS];
    __shared__ int scan[WARPS];
    Room& room = *(Room*)memory;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Tile tile(blockIdx.x, m2, m1, m0, t1, t0);
    const Cell cell(warp, lane);
    const Header* header = (const Header*)payload;
    // The same in all threads; nothing is read outside of the payload.
    bool whole = nbytes >= start && header->magic == magic && header->kind == kind_of_array && header->n2 == n2 &&
                 header->n1 == n1 && header->n0 == n0 && header->tiles == tiles && header->size >= start &&
                 header->size <= nbytes && header->size % 4 == 0 && possible(header->bound) && possible(header->step);
    const u32 place = whole ? ((const u32*)(payload + HEADER))[number_of_first + blockIdx.x] : 0;
    real step = whole ? (real)(header->step * fine) : 0;
    const u64 end = whole ? header->size : 0, from = (u64)(place & ~RAW) << shift;
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
        whole = whole && from + (own + HEAD) * 4 <= end;
        if (whole && own) {
            step = step_of(payload + from);
            whole = possible(step);
        }
        coded = whole;
    }
    const u32* data = (const u32*)(payload + from) + own;
    const int left = coded ? (int)min((end - from) / 4 - own, (u64)1 << 24) : 0;  // words

    int used = HEAD, exact = 0;
    u32 mine = 0, rows = 0;
    int start_of_row = 0;
    if (coded) {
        const bool plain = data[WARPS - 1] & PLAIN;
        int all_rows = 0, row = 0, bytes, symbols, words;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const u32 head = data[w], mask = plain ? 0 : head & ((1u << ROWS) - 1);
            exact |= (int)((w == WARPS - 1 ? head & ~PLAIN : head) >> 28) << 4 * w;
            if (w == warp) rows = mask, row = all_rows + __popc(mask & lanes_before());
            all_rows += __popc(mask);
        }
        const int flags = (all_rows + 1) & ~1;
        const bool flagged = rows >> lane & 1;
        coded = HEAD + (4 * flags + 31) / 32 <= left;
        const u8* packed = (const u8*)(data + HEAD);
        const u32 some = coded && flagged ? packed[row / 2] >> 4 * (row & 1) & 15 : 0;
        int at = before(__popc(some), scan, bytes);
        coded = coded && HEAD + (4 * flags + 8 * bytes + 31) / 32 <= left;
        at += flags / 2;
        if (coded)
            for (int byte = 0; byte < 4; ++byte)
                if (some >> byte & 1) mine |= (u32)packed[at++] << 8 * byte;
        if (coded && flagged && !some) mine = ALL;
        const bool entire = mine == ALL;
        start_of_row = before(entire ? 1 << 16 : __popc(mine), scan, symbols);
        start_of_row = entire ? (start_of_row >> 16) * 32 : (symbols >> 16) * 32 + (start_of_row & 0xffff);
        symbols = (symbols >> 16) * 32 + (symbols & 0xffff);
        if (plain) mine = lane < ROWS ? ALL : 0, start_of_row = (warp * ROWS + lane) * 32, symbols = SYMBOLS;
        const int chunks = (symbols + 31) / 32, partly = symbols & 31, nibble = flags + 2 * bytes + (int)threadIdx.x;
        used = HEAD + (4 * (flags + 2 * bytes + chunks) + 31) / 32;
        coded = coded && used <= left;
        int width = 0;
        if (coded && threadIdx.x < chunks) width = (packed[nibble / 2] >> 4 * (nibble & 1) & 15) + 1;
        const int own_words = threadIdx.x == chunks - 1 && partly ? (width * partly + 31) / 32 : width;
        const int chunk_place = before(own_words, scan, words);
        if (threadIdx.x < chunks) widths[threadIdx.x] = width, chunk_places[threadIdx.x] = chunk_place;
        coded = coded && (u64)used + words + (exact + 1) / 2 + (u64)exact * each <= left;
        __syncthreads();
        for (int chunk = warp; coded && chunk < chunks; chunk += WARPS) {
            const u32* there = data + used + chunk_places[chunk];
            const int bits = widths[chunk];
            u32 word = 0, code = 0;
            if (chunk == chunks - 1 && partly) {
                const int bit = lane * partly;
                if (lane < bits) {
                    word = there[bit >> 5] >> (bit & 31);
                    if ((bit & 31) + partly > 32) word |= there[(bit >> 5) + 1] << (32 - (bit & 31));
                }
            } else if (lane < bits) {
                word = there[lane];
            }
            for (int bit = 0; bit < bits; ++bit) code |= (__shfl_sync(ALL, word, bit) >> lane & 1) << bit;
            list[chunk * 32 + lane] = (u16)code;
        }
        used += words;
        for (int k = threadIdx.x; coded && k < exact; k += THREADS) whole = whole && ((u16*)(data + used))[k] < SYMBOLS;
        whole = whole && coded;
    }
    if (!whole) atomicOr(flag, DAMAGED);
    whole = __syncthreads_and(whole);
    coded = coded && whole;
    const bool zeros = __syncthreads_and(blank && !coded && !(raw && whole));
    real values[ROWS];
    masks[threadIdx.x] = coded ? mine : 0, starts[threadIdx.x] = start_of_row;
    __syncwarp();
    const u32 earlier_lanes = lanes_before();
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        const u32 mask = masks[warp * 32 + row];
        values[row] = 0;
        if (!(mask >> lane & 1)) continue;
        const int code = list[starts[warp * 32 + row] + __popc(mask & earlier_lanes)];
        values[row] = (real)symbol_of(code + (mask != ALL));
    }
    if (!zeros) {
        const bool careful = exact != 0 || !coded;
        predict<true>(room, cell, [&](int kind, int turn, real guess) {
            real& value = values[row_of(kind, turn)];
            value = fused(value, step, guess);
            if (careful) value = number(value);
            return value;
        });
    }
    if (zeros && !tile.full())
        for (int row = 0; row < ROWS; ++row)
            room.field[row / TURNS * CELLS + field_of(cell) + row % TURNS * FIELD_Y] = 0;
    write_points(known, above, tile, cell, m1, m0, room.field,
                 [&](int kind, int turn) { return values[row_of(kind, turn)]; });
    if (raw && whole) {
        __syncthreads();
        each_fresh(tile, cell, scan, [&](int kind, int turn, int at) {
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
