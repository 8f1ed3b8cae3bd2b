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
constexpr int CHUNKS = (SYMBOLS + 31) / 32;                   // of 32 symbols each, that are not zero
constexpr int BITS_ROOM = (WARPS * ROWS * (4 + 32) + 4 * CHUNKS) / 32 + 2;
constexpr int LINE_PITCH = RANK == 3 ? 24 : HALO;             // off the banks of other lanes
constexpr int PLANE_PITCH = RANK == 3 ? HALO * LINE_PITCH : RANK == 2 ? HALO : 0;

__device__ inline real times(real a, real b) {
#if DOUBLE
    return __dmul_rn(a, b);
#else
    return __fmul_rn(a, b);
#endif
}
__device__ inline real add(real a, real b) {
#if DOUBLE
    return __dadd_rn(a, b);
#else
    return __fadd_rn(a, b);
#endif
}
__device__ inline real fused(real a, real b, real c) {
#if DOUBLE
    return __fma_rn(a, b, c);
#else
    return __fmaf_rn(a, b, c);
#endif
}
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
    bool inside;
    __device__ Taps(int at, int pitch) {
        const bool begins = at == 0, ends = at == SIDE - 1, nearly = at == SIDE - 2;
        before = begins ? 0 : -pitch, after = ends ? 0 : pitch, beyond = ends || nearly ? 0 : 2 * pitch;
        first = begins ? 0 : ends ? -0.5 : nearly ? -0.125 : -0.0625;
        second = begins ? 0.375 : ends ? 1.5 : nearly ? 0.75 : 0.5625;
        third = begins ? 0.75 : ends ? 0 : nearly ? 0.375 : 0.5625;
        fourth = begins ? -0.125 : ends || nearly ? 0 : -0.0625;
        inside = !ends;
    }
    __device__ inline real of(const real* at) const {
        return fused(fourth, at[beyond], fused(third, at[after], fused(second, at[0], times(first, at[before]))));
    }
};

__device__ inline real between(real a, real b, real c, real d) {
    return fused((real)-0.0625, d, fused((real)0.5625, c, fused((real)0.5625, b, times((real)-0.0625, a))));
}

// What an axis counts, beside others. Where points lie after the last cell along all of them, all count.
__device__ inline real share(bool mine, int inside, int all) {
    const int used = inside ? inside : all;
    return mine || !inside ? used == 1 ? (real)1 : used == 2 ? (real)0.5 : (real)(1.0 / 3) : (real)0;
}

struct Room {
    real coarse[RANK == 3 ? HALO * PLANE_PITCH : RANK == 2 ? HALO * PLANE_PITCH : HALO];
    real field[RANK == 1 ? 1 : (KINDS - 1) * CELLS];
};
constexpr int FIELD_Y = RANK == 3 ? SIDE * SIDE : SIDE, FIELD_Z = SIDE;

// Bring the points of the grid above that surround a tile; past its ends, the last ones. Whether all of them are 0.
__device__ inline bool surround(const real* __restrict__ above, const Tile& tile, i64 m2, i64 m1, i64 m0, real* coarse) {
    const i64 n2 = (m2 + 1) / 2, n1 = (m1 + 1) / 2, n0 = (m0 + 1) / 2;
    const auto within = [](i64 at, i64 n) { return at < 0 ? 0 : at < n ? at : n - 1; };
    bool nothing = true;
    const auto take = [&](const real* from, real* to) {
        const real x = number(*from);
        nothing = nothing && x == 0;
        *to = x;
    };
    if (RANK == 3) {
        const int z = threadIdx.x / HALO, x = threadIdx.x - z * HALO;
        if (z < HALO) {
            const real* line = above + within(tile.z / 2 + z - 1, n2) * n1 * n0 + within(tile.x / 2 + x - 1, n0);
            real* to = coarse + z * LINE_PITCH + x;
#pragma unroll
            for (int y = 0; y < HALO; ++y)
                take(line + within(tile.y / 2 + y - 1, n1) * n0, to + y * PLANE_PITCH);
        }
    } else {
        const int lines = RANK == 2 ? HALO : 1;
#pragma unroll 4
        for (int k = threadIdx.x; k < lines * HALO; k += THREADS) {
            const int y = k / HALO, x = k - y * HALO;
            const i64 line = RANK == 2 ? within(tile.y / 2 + y - 1, n1) * n0 : 0;
            take(above + line + within(tile.x / 2 + x - 1, n0), coarse + k);
        }
    }
    return nothing;
}

// Predict all new points of a tile, and let `settle(kind, turn, guess)` say what becomes of each.
template <typename Settle>
__device__ inline void predict(Room& room, const Cell& cell, const Settle& settle) {
    const real* coarse = room.coarse;
    if (RANK == 3) coarse += (cell.y + 1) * PLANE_PITCH + (cell.z + 1) * LINE_PITCH + cell.x + 1;
    if (RANK == 2) coarse += (cell.y + 1) * PLANE_PITCH + cell.x + 1;
    if (RANK == 1) coarse += cell.x + 1;
    real* field = room.field + (RANK == 1 ? 0 : cell.y * FIELD_Y + cell.z * FIELD_Z + cell.x);
    const auto here = [&](int kind, int turn) { return field + (kind - 1) * CELLS + turn * FIELD_Y; };
    const auto know = [&](int kind, int turn, real guess) {
        const real value = settle(kind, turn, guess);
        if (kind < KINDS) *here(kind, turn) = value;
    };
    const auto line = [&](const real* at, int pitch) { return between(at[-pitch], at[0], at[pitch], at[2 * pitch]); };
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const real* at = coarse + turn * (RANK > 1 ? PLANE_PITCH : TURN_X);
        know(1, turn, line(at, 1));
        if (RANK > 1) know(2, turn, line(at, PLANE_PITCH));
        if (RANK > 2) know(4, turn, line(at, LINE_PITCH));
    }
    if (RANK == 1) return;
    __syncthreads();
    const Taps along_z(RANK == 3 ? cell.z : 1, FIELD_Z), along_x(cell.x, 1);
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const Taps along_y(cell.y + turn, FIELD_Y);
        const bool z = along_z.inside, y = along_y.inside, x = along_x.inside;
        const real yx = times(share(y, y + x, 2), along_y.of(here(1, turn)));
        know(3, turn, fused(share(x, y + x, 2), along_x.of(here(2, turn)), yx));
        if (RANK == 2) continue;
        const real zx = times(share(z, z + x, 2), along_z.of(here(1, turn)));
        know(5, turn, fused(share(x, z + x, 2), along_x.of(here(4, turn)), zx));
        const real zy = times(share(z, z + y, 2), along_z.of(here(2, turn)));
        know(6, turn, fused(share(y, z + y, 2), along_y.of(here(4, turn)), zy));
    }
    if (RANK == 2) return;
    __syncthreads();
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const Taps along_y(cell.y + turn, FIELD_Y);
        const bool z = along_z.inside, y = along_y.inside, x = along_x.inside;
        const real first = times(share(z, z + y + x, 3), along_z.of(here(3, turn)));
        const real both = fused(share(y, z + y + x, 3), along_y.of(here(5, turn)), first);
        know(7, turn, fused(share(x, z + y + x, 3), along_x.of(here(6, turn)), both));
    }
}

__device__ constexpr int row_of(int kind, int turn) { return (kind - 1) * TURNS + turn; }

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

// Which bytes of a mask are not zero.
__device__ inline u32 bytes_of(u32 mask) {
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
    int rows, bytes, symbols, exact;
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
// and `known` is for those of this one, where it is not the last.
extern "C" __global__ void __launch_bounds__(THREADS, ENCODE_BLOCKS)
    encode(const real* __restrict__ array, i64 sz, i64 sy, i64 sx, const real* __restrict__ above,
           real* __restrict__ known, u8* __restrict__ out, i64 m2, i64 m1, i64 m0, u32 t1, u32 t0, u32 number_of_first,
           u32 shift, const signed char* __restrict__ weights) {
    __shared__ __align__(16) char memory[sizeof(Room) > SYMBOLS * 2 ? sizeof(Room) : SYMBOLS * 2];
    __shared__ u32 bits[BITS_ROOM], rest[16];
    __shared__ u8 widths[CHUNKS];
    __shared__ Sums sums[WARPS];
    __shared__ int scan[WARPS];
    __shared__ u64 begin;
    Room& room = *(Room*)memory;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 number_of_tile = number_of_first + blockIdx.x;
    Header* header = (Header*)out;
    const Tile tile(blockIdx.x, m2, m1, m0, t1, t0);
    const Cell cell(warp, lane);
    real step = (real)header->step, bound = (real)header->bound;
    if (weights) {
        const Quanta own = scaled(header->bound, header->step, weights[number_of_tile]);
        bound = own.bound, step = own.step;
    }
    const real inverse = 1 / step, test = bound > TINY ? bound : TINY;
    const auto address = [&](const Point& p) {
        return array + (tile.z + p.z) * sz + (tile.y + p.y) * sy + (tile.x + p.x) * sx;
    };
    const auto spot = [&](const Point& p) { return known + ((tile.z + p.z) * m1 + tile.y + p.y) * m0 + tile.x + p.x; };

    bool nothing = surround(above, tile, m2, m1, m0, room.coarse);
    real values[ROWS];
    if (tile.full()) {
        if (sx == 1 && ((u64)array | sy * sizeof(real) | sz * sizeof(real)) % (2 * sizeof(real)) == 0) {
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
                for (int kind = 0; kind < KINDS; kind += 2) {
                    const Pair pair = *(const Pair*)address(Point(cell, kind, turn));
                    if (kind) values[row_of(kind, turn)] = pair.even;
                    values[row_of(kind + 1, turn)] = pair.odd;
                }
        } else {
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
                for (int kind = 1; kind <= KINDS; ++kind)
                    values[row_of(kind, turn)] = *address(Point(cell, kind, turn));
        }
    } else {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
            for (int kind = 1; kind <= KINDS; ++kind) {
                const Point p(cell, kind, turn);
                values[row_of(kind, turn)] = tile.has(p.z, p.y, p.x) ? *address(p) : none();
            }
    }
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
        nothing = nothing && (values[row] < 0 ? -values[row] : values[row]) < test &&
                  quantise(values[row], inverse) == ZERO;
    const bool writes = known != nullptr;
    if (writes)
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const Point p(cell, 0, turn);
            if (tile.has(p.z, p.y, p.x)) {
                const i64 n1 = (m1 + 1) / 2, n0 = (m0 + 1) / 2;
                *spot(p) = above[((tile.z + p.z) / 2 * n1 + (tile.y + p.y) / 2) * n0 + (tile.x + p.x) / 2];
            }
        }
    if (__syncthreads_and(nothing)) {
        if (threadIdx.x == 0) ((u32*)(out + HEADER))[number_of_tile] = 0;
        if (writes)
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
                for (int kind = 1; kind <= KINDS; ++kind) {
                    const Point p(cell, kind, turn);
                    if (tile.has(p.z, p.y, p.x)) *spot(p) = 0;
                }
        return;
    }

    int symbols[ROWS];
    u32 exact = 0;
    predict(room, cell, [&](int kind, int turn, real guess) {
        const int row = row_of(kind, turn);
        const real x = values[row], t = fused(add(x, -guess), inverse, MAGIC), off = add(t, -MAGIC);
        real near = fused(off, step, guess);
        const real far = add(x, -near);
        const bool fits = (far < 0 ? -far : far) < test && (off < 0 ? -off : off) < MANY;
#if DOUBLE
        symbols[row] = __double2loint(t);
#else
        symbols[row] = __float_as_int(t) - ZERO;
#endif
        const Point p(cell, kind, turn);
        real decoded = near;
        if (!fits) {
            near = number(guess), decoded = x, symbols[row] = 0;
            if (tile.has(p.z, p.y, p.x)) exact |= 1u << row;
        }
        if (writes && tile.has(p.z, p.y, p.x)) *spot(p) = decoded;
        return near;
    });

    // What is not zero, one after the other, in the order of rows.
    u16* list = (u16*)memory;
    int count = 0;
    u32 mine = 0;
    __syncthreads();
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        const int symbol = symbols[row];
        const u32 mask = __ballot_sync(ALL, symbol != 0);
        if (!mask) continue;
        if (lane == row) mine = mask;
        const u32 magnitude = symbol < 0 ? -symbol : symbol, code = 2 * magnitude - 2 + (symbol < 0);
        if (symbol) list[warp * (ROWS * 32) + count + __popc(mask & lanes_before())] = (u16)code;
        count += __popc(mask);
    }
    const u32 rows = __ballot_sync(ALL, mine != 0), some = bytes_of(mine);
    const int bytes_before = before(__popc(some)), exact_before = before(__popc(exact));
    if (lane == 31)
        sums[warp] = Sums{__popc(rows), bytes_before + (int)__popc(some), count, exact_before + (int)__popc(exact)};
    for (int k = threadIdx.x; k < BITS_ROOM; k += THREADS) bits[k] = 0;
    if (threadIdx.x < 16) rest[threadIdx.x] = 0;
    __syncthreads();
    Sums all{0, 0, 0, 0}, earlier{0, 0, 0, 0};
    int ends[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        const Sums s = sums[w];
        if (w == warp) earlier = all;
        all.rows += s.rows, all.bytes += s.bytes, all.symbols += s.symbols, all.exact += s.exact;
        ends[w] = all.symbols;
    }
    if (!all.symbols && !all.exact) {
        if (threadIdx.x == 0) ((u32*)(out + HEADER))[number_of_tile] = 0;
        return;
    }
    const auto code_at = [&](int k) -> u32 {
        const int w = (k >= ends[0]) + (k >= ends[1]) + (k >= ends[2]);
        const int start = w == 0 ? 0 : w == 1 ? ends[0] : w == 2 ? ends[1] : ends[2];
        return k < all.symbols ? list[w * (ROWS * 32) + k - start] : 0;
    };
    const int chunks = (all.symbols + 31) / 32, flags = (all.rows + 1) & ~1;
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
        for (u32 left = mine, byte = 0; byte < 4; ++byte, left >>= 8)
            if (left & 0xff) put(bits, at, left & 0xff, 8), at += 8;
    }
    __syncthreads();
    int words;
    const int partly = all.symbols & 31, own_chunk = threadIdx.x;
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
        ((u32*)(out + HEADER))[number_of_tile] = (u32)(begin >> shift) | (raw ? RAW : 0);
    }
    __shared__ u16 chunk_places[CHUNKS];
    if (own_chunk < chunks) chunk_places[own_chunk] = place;
    __syncthreads();
    u32* to = (u32*)(out + begin);
    if (raw) {
        each_fresh(tile, cell, scan, [&](int kind, int turn, int at) {
            const Point p(cell, kind, turn);
            copy_value(to + at * each, (const u32*)address(p));
            if (writes) *spot(p) = *address(p);
        });
        return;
    }
    if (own && threadIdx.x == 0) put_step((u8*)to, step);
    to += own;
    if (lane == 0) to[warp] = rows | (u32)(all.exact >> 4 * warp & 15) << 28;
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

// Decode the new points of a grid, and put them together with those of the grid above.
extern "C" __global__ void __launch_bounds__(THREADS, DECODE_BLOCKS)
    decode(const u8* __restrict__ payload, u64 nbytes, const real* __restrict__ above, real* __restrict__ known,
           u32 magic, u32 kind_of_array, i64 n2, i64 n1, i64 n0, i64 m2, i64 m1, i64 m0, u32 t1, u32 t0,
           u32 number_of_first, u32 tiles, u64 start, u32 shift, u32* __restrict__ flag) {
    __shared__ __align__(16) char memory[sizeof(Room)];
    __shared__ __align__(16) u16 list[SYMBOLS];
    __shared__ u8 widths[CHUNKS];
    __shared__ u16 chunk_places[CHUNKS];
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
    real step = whole ? (real)header->step : 0;
    const u64 end = whole ? header->size : 0, from = (u64)(place & ~RAW) << shift;
    const int each = BITS / 32, own = kind_of_array >> 24 ? each : 0;
    const auto spot = [&](const Point& p) { return known + ((tile.z + p.z) * m1 + tile.y + p.y) * m0 + tile.x + p.x; };
    const auto old = [&](const Point& p) {
        const i64 c1 = (m1 + 1) / 2, c0 = (m0 + 1) / 2;
        return above[((tile.z + p.z) / 2 * c1 + (tile.y + p.y) / 2) * c0 + (tile.x + p.x) / 2];
    };
    if (!whole) {
        if (threadIdx.x == 0) atomicOr(flag, DAMAGED);
        for (int turn = 0; turn < TURNS; ++turn)
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
        int all_rows = 0, row = 0, bytes, symbols, words;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const u32 head = data[w], mask = head & ((1u << ROWS) - 1);
            exact |= (int)(head >> 28) << 4 * w;
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
        start_of_row = before(__popc(mine), scan, symbols);
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
    if (__syncthreads_and(blank && !coded && !(raw && whole))) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
            for (int kind = 0; kind <= KINDS; ++kind) {
                const Point p(cell, kind, turn);
                if (tile.has(p.z, p.y, p.x)) *spot(p) = kind ? (real)0 : old(p);
            }
        return;
    }
    real values[ROWS];
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        const u32 mask = coded ? __shfl_sync(ALL, mine, row) : 0;
        values[row] = 0;
        if (!mask) continue;
        const int first = __shfl_sync(ALL, start_of_row, row);
        if (!(mask >> lane & 1)) continue;
        const int code = list[first + __popc(mask & lanes_before())], magnitude = (code >> 1) + 1;
        values[row] = (real)(code & 1 ? -magnitude : magnitude);
    }
    const bool careful = exact != 0;
    predict(room, cell, [&](int kind, int turn, real guess) {
        const int row = row_of(kind, turn);
        real near = fused(values[row], step, guess);
        if (careful || !coded) near = number(near);
        values[row] = near;
        return near;
    });
    const bool pairs = tile.full() && ((u64)known | m0 * sizeof(real)) % sizeof(Pair) == 0;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
        for (int kind = 0; kind <= KINDS; kind += 2) {
            const Point p(cell, kind, turn);
            const bool here = tile.has(p.z, p.y, p.x);
            const real even = kind ? values[row_of(kind, turn)] : here ? old(p) : (real)0;
            const real odd = values[row_of(kind + 1, turn)];
            if (pairs) {
                *(Pair*)spot(p) = Pair{even, odd};
            } else {
                if (here) *spot(p) = even;
                if (tile.has(p.z, p.y, p.x + 1)) *(spot(p) + 1) = odd;
            }
        }
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
