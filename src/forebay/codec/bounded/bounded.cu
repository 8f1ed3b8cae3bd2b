// The kernels of the codec "bounded"; docs/bounded-format.md describes the encoding, encoder.py and decoder.py are
// their twins.
//
// A warp encodes or decodes one tile of 2048 values. A lane owns a brick of 8 x 8 of them, so that the differences
// between neighbours stay in its registers; the same place of all 32 bricks is a row, and has one width. A lane
// concatenates the fields of its brick into a stream of its own. Because the widths are those of the rows, all
// streams are equally long, and the warp writes a word of each at once. Where the lines of a volume do not begin with
// memory sectors, the warps of a thread block put together what they decode and write longer pieces.
//
// DOUBLE (0 or 1) and RANK (1, 2 or 3) are given by the compiler's command line.

#ifndef DOUBLE
#define DOUBLE 0
#endif
#ifndef RANK
#define RANK 3
#endif
#ifndef WARPS  // of a thread block, each with a tile
#define WARPS (RANK == 3 ? 4 : 2)
#endif
#ifndef ENCODE_BLOCKS  // thread blocks a multiprocessor, at least; for float32 volumes among the fastest on an H200
#define ENCODE_BLOCKS (RANK < 3 ? (DOUBLE ? 5 : 8) : DOUBLE ? 7 : 10)
#endif
#ifndef DECODE_BLOCKS
#define DECODE_BLOCKS (RANK < 3 ? (DOUBLE ? 6 : 12) : DOUBLE ? 7 : 8)
#endif
#ifndef MULTIPLY_BLOCKS
#define MULTIPLY_BLOCKS (DOUBLE ? 4 : 6)
#endif
#ifndef STAGED  // words of a lane's stream that fit into shared memory
#define STAGED 32
#endif

#include "common.cuh"

constexpr int SIDE = 8;
constexpr int ROWS = SIDE * SIDE;
constexpr int WIDTHS = ROWS / 2;  // bytes: four bits a row
constexpr int ESCAPE = 15;        // a width that takes a byte of its own
constexpr int EXACT = 32;         // the width of a row whose values are kept as they are

struct Shape {
    i64 n2, n1, n0;
    u32 t1, t0;   // tiles along the two faster axes
    i64 plane;    // values from one plane to the next
    int pitch;    // and from one line to the next: the array may be a window of a larger one
};

__device__ inline Shape whole_shape(i64 n2, i64 n1, i64 n0, u32 t1, u32 t0) {
    return Shape{n2, n1, n0, t1, t0, n1 * n0, (int)n0};
}

// Where a lane's brick lies. Rows and columns past the end of an array repeat its last ones.
struct Brick {
    i64 base, si;
    i64 origin;  // of the tile
    int sj;  // the host folds arrays with longer rows into lines
    int ilast, jlast;  // the last of each that exist; of a line, jlast counts all of it
    bool mine;         // whether the first one exists
    int values;        // of the whole tile
};

__device__ inline int last_of(i64 left) { return left < SIDE ? (int)left - 1 : SIDE - 1; }
__device__ inline int part_of(i64 left, int extent) { return left < extent ? (int)left : extent; }

__device__ inline Brick brick(u32 tile, int lane, const Shape& s) {
    Brick b;
    const u32 row = tile / s.t0;
    const i64 tx = tile - row * s.t0;
#if RANK == 3
    const u32 plane = row / s.t1;
    const i64 z = (i64)plane * 8, y0 = (i64)(row - plane * s.t1) * 16, x0 = tx * 16;
    const i64 y = y0 + (lane >> 4) * 8, x = x0 + (lane & 15);
    const i64 yy = y < s.n1 ? y : s.n1 - 1, xx = x < s.n0 ? x : s.n0 - 1;
    b.si = s.plane, b.sj = s.pitch;
    b.base = z * b.si + yy * b.sj + xx;
    b.ilast = last_of(s.n2 - z), b.jlast = last_of(s.n1 - yy);
    b.mine = y < s.n1 && x < s.n0;
    b.values = part_of(s.n2 - z, 8) * part_of(s.n1 - y0, 16) * part_of(s.n0 - x0, 16);
#elif RANK == 2
    const i64 y0 = (i64)row * 64, x0 = tx * 32;
    const i64 y = y0 + (lane >> 2) * 8, x = x0 + (lane & 3) * 8;
    const i64 yy = y < s.n1 ? y : s.n1 - 1, xx = x < s.n0 ? x : s.n0 - 1;
    b.si = 1, b.sj = s.pitch;
    b.base = yy * b.sj + xx, b.origin = y0 * b.sj + x0;
    b.ilast = last_of(s.n0 - xx), b.jlast = last_of(s.n1 - yy);
    b.mine = y < s.n1 && x < s.n0;
    b.values = part_of(s.n1 - y0, 64) * part_of(s.n0 - x0, 32);
#else
    const i64 x0 = tx * 2048, x = x0 + lane * 64, xx = x < s.n0 ? x : s.n0 - 1;
    b.si = 8, b.sj = 1;
    b.base = xx, b.origin = x0;
    b.ilast = SIDE - 1, b.jlast = part_of(s.n0 - xx, 64) - 1;
    b.mine = x < s.n0;
    b.values = part_of(s.n0 - x0, 2048);
#endif
    return b;
}

__device__ inline i64 clamped(const Brick& b, int i, int j) {
#if RANK == 1
    const int at = i * SIDE + j;
    return b.base + (at < b.jlast ? at : b.jlast);
#else
    return b.base + (i < b.ilast ? i : b.ilast) * b.si + (j < b.jlast ? j : b.jlast) * (i64)b.sj;
#endif
}

__device__ inline bool exists(const Brick& b, int i, int j) {
#if RANK == 1
    return b.mine && i * SIDE + j <= b.jlast;
#else
    return b.mine && i <= b.ilast && j <= b.jlast;
#endif
}

#if RANK < 3
// Neighbouring lanes own values that are not neighbours in memory. A whole tile goes through shared memory, where a
// place left free after each brick, or row of bricks, keeps the lanes off each other's banks.
constexpr int ROOM = ROWS * 32 + 32;
#define SHARED_TILES __shared__ real tiles_here[WARPS][ROOM];
#define SHARED_TILE tiles_here[warp]

__device__ inline int spot(int i, int j, int lane) {
#if RANK == 2
    return ((lane >> 2) * 8 + j) * 32 + (lane & 3) * 8 + i + (lane >> 2);
#else
    return lane * 64 + i * SIDE + j + lane;
#endif
}

__device__ inline int spot_of_line(int line, int lane) { return line * 32 + lane + (line >> (RANK == 2 ? 3 : 1)); }

__device__ inline i64 line_of(const Brick& b, int line, int lane) {
    return b.origin + (i64)line * (RANK == 2 ? b.sj : 32) + lane;
}
#else
#define SHARED_TILES
#define SHARED_TILE nullptr
#endif

// Bring a whole tile to where load_side() finds it.
__device__ inline void load_tile(const real* __restrict__ array, const Brick& b, int lane, real* tile) {
#if RANK < 3
#pragma unroll 16
    for (int line = 0; line < ROWS; ++line) tile[spot_of_line(line, lane)] = __ldcs(array + line_of(b, line, lane));
    __syncwarp();
#endif
}

template <bool WHOLE>
__device__ inline void load_side(const real* __restrict__ array, const Brick& b, int i, real* tile, real (&x)[SIDE]) {
#if RANK < 3
#pragma unroll
    for (int j = 0; j < SIDE; ++j) x[j] = WHOLE ? tile[spot(i, j, threadIdx.x & 31)] : array[clamped(b, i, j)];
#else
    const real* side = array + b.base + i * b.si;
#pragma unroll
    for (int j = 0; j < SIDE; ++j, side += b.sj) x[j] = __ldcs(WHOLE ? side : array + clamped(b, i, j));
#endif
}

// The neighbours' part of a value: along j, and along i of what is left. A line goes on from one side to the next.
struct Lorenzo {
    int before;
    int e[SIDE];
    __device__ Lorenzo() {
        before = ZERO;
#pragma unroll
        for (int j = 0; j < SIDE; ++j) e[j] = 0;
    }
    __device__ inline void side() {
        if (RANK > 1) before = ZERO;
    }
    __device__ inline int residual(int q, int j) {
        const int along = q - before;
        before = q;
        if (RANK == 1) return along;
        const int d = along - e[j];
        e[j] = along;
        return d;
    }
    __device__ inline int value(int d, int j) {
        if (RANK == 1) return before += d;
        e[j] += d;
        return before += e[j];
    }
};

// The bits of the row's widest value, its sign included; 0 where all are 0.
__device__ inline int width_of(int d) {
    int highest;
    asm("bfind.u32 %0, %1;" : "=r"(highest) : "r"(__reduce_or_sync(ALL, (u32)(d ^ (d + d)))));
    return highest + 1;
}

// The lane's stream grows from the top of `word`: of `bits` in all, those of whole words have been written.
struct Stream {
    u32 word;
    int bits;
    __device__ Stream() : word(0), bits(0) {}
    __device__ inline int whole() const { return bits & ~31; }
    __device__ inline void push(int field, int width, u32* to) {
        const int end = bits + width;
        if ((end ^ bits) & ~31) to[whole()] = __funnelshift_rc(word, field, 32 - (bits & 31));
        word = __funnelshift_rc(word, field, width);
        bits = end;
    }
};

// What is known of a tile whose streams lie in shared memory.
struct Staged {
    u32 word;
    int bits;  // -1: the tile has to be encoded carefully
};

// Encode a tile on the assumption that every value fits and that the streams fit into shared memory.
template <bool WHOLE>
__device__ inline Staged encode_quickly(const real* __restrict__ array, const Brick& b, real step, real inverse,
                                        real test, u32* stage, u8* widths, real* tile) {
    Lorenzo neighbours;
    Stream stream;
    bool fits = true;
    real next[SIDE];
    load_side<WHOLE>(array, b, 0, tile, next);
#pragma unroll 1
    for (int i = 0; i < SIDE; ++i) {
        real x[SIDE];
#pragma unroll
        for (int j = 0; j < SIDE; ++j) x[j] = next[j];
        if (i + 1 < SIDE) load_side<WHOLE>(array, b, i + 1, tile, next);
        neighbours.side();
        int d[SIDE], width[SIDE];
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            const int q = quantise(x[j], inverse);
            fits = fits & within(x[j], restore(q, step), test);
            d[j] = neighbours.residual(q, j);
        }
#pragma unroll
        for (int j = 0; j < SIDE; ++j) width[j] = width_of(d[j]);
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            widths[i * SIDE + j] = width[j];
            stream.push(d[j], width[j], stage);
        }
        if (stream.bits >= (STAGED - SIDE) * 32) return Staged{0, -1};
    }
    return Staged{stream.word, __all_sync(ALL, fits) ? stream.bits : -1};
}

__device__ __noinline__ u64 encode_ragged(const real* __restrict__ array, u32 tile, Shape shape, real step,
                                          real inverse, real test, u32* stage, u8* widths) {
    const Brick b = brick(tile, threadIdx.x & 31, shape);
    const Staged s = encode_quickly<false>(array, b, step, inverse, test, stage, widths, nullptr);
    return (u64)s.word << 32 | (u32)s.bits;
}

// Less than 32 bits are left in each lane: they lie as halves, bytes, ... of all lanes side by side.
__device__ inline void store_tail(u32* __restrict__ to, u32 word, int bits, int lane) {
    u8* at = (u8*)to;
    u32 left = __funnelshift_rc(word, 0, 32 - bits);
    if (bits & 16) {
        ((u16*)at)[lane] = (u16)left;
        left >>= 16, at += 64;
    }
    if (bits & 8) {
        at[lane] = (u8)left;
        left >>= 8, at += 32;
    }
    if (bits & 4) {
        u32 v = left & 15;
        v |= __shfl_down_sync(ALL, v, 1) << 4;
        if (!(lane & 1)) at[lane >> 1] = (u8)v;
        left >>= 4, at += 16;
    }
    if (bits & 2) {
        u32 v = left & 3;
        v |= __shfl_down_sync(ALL, v, 1) << 2;
        v |= __shfl_down_sync(ALL, v, 2) << 4;
        if (!(lane & 3)) at[lane >> 2] = (u8)v;
        left >>= 2, at += 8;
    }
    if (bits & 1) {
        const u32 v = __ballot_sync(ALL, left & 1);
        if (lane == 0) *(u32*)at = v;
    }
}

// Encode a tile row by row, keeping rows as they are where a value does not fit: first to count, then to write.
template <bool WRITE>
__device__ __noinline__ int encode_carefully(const real* __restrict__ array, u32 tile, Shape shape, real step,
                                             real inverse, real test, u32* __restrict__ to, u8* __restrict__ widths) {
    const int lane = threadIdx.x & 31;
    const Brick b = brick(tile, lane, shape);
    Lorenzo neighbours;
    Stream stream;
    int bits = 0;
#pragma unroll 1
    for (int i = 0; i < SIDE; ++i) {
        neighbours.side();
        real x[SIDE];
        load_side<false>(array, b, i, nullptr, x);
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            const int q = quantise(x[j], inverse);
            const int before = neighbours.before, e = neighbours.e[j];
            int d = neighbours.residual(q, j);
            int width = width_of(d);
            if (width == EXACT || !__all_sync(ALL, within(x[j], restore(q, step), test))) {
                neighbours.before = before, neighbours.e[j] = e;
                neighbours.value(0, j);
                width = EXACT;
            }
            if (WRITE) {
                if (width < EXACT) {
                    stream.push(d, width, to + lane);
                } else {
#if DOUBLE
                    stream.push(__double2loint(x[j]), 32, to + lane);
                    stream.push(__double2hiint(x[j]), 32, to + lane);
#else
                    stream.push(__float_as_int(x[j]), 32, to + lane);
#endif
                }
            } else {
                bits += width < EXACT ? width : BITS;
                widths[i * SIDE + j] = width;
            }
        }
    }
    if (WRITE) store_tail(to + stream.whole(), stream.word, stream.bits & 31, lane);
    return bits;
}

__device__ inline u32 load_tail(const u32* __restrict__ from, int bits, int lane) {
    const u8* at = (const u8*)from;
    u32 left = 0;
    int below = 0;
    if (bits & 16) {
        left = ((const u16*)at)[lane];
        below = 16, at += 64;
    }
    if (bits & 8) {
        left |= (u32)at[lane] << below;
        below += 8, at += 32;
    }
    if (bits & 4) {
        left |= (u32)(at[lane >> 1] >> (lane & 1) * 4 & 15) << below;
        below += 4, at += 16;
    }
    if (bits & 2) {
        left |= (u32)(at[lane >> 2] >> (lane & 3) * 2 & 3) << below;
        below += 2, at += 8;
    }
    if (bits & 1) left |= (*(const u32*)at >> lane & 1) << below;
    return left;
}

__device__ inline u32 lanes_before(int lane) { return (1u << lane) - 1; }

// Copy the values of a tile that exist, row by row, to words or from them.
template <bool ENCODE>
__device__ __noinline__ void copy_raw(real* __restrict__ array, u32 tile, Shape shape, u32* __restrict__ words) {
    const int lane = threadIdx.x & 31;
    const Brick b = brick(tile, lane, shape);
    int done = 0;
#pragma unroll 1
    for (int row = 0; row < ROWS; ++row) {
        const int i = row / SIDE, j = row % SIDE;
        const bool here = exists(b, i, j);
        const u32 who = __ballot_sync(ALL, here);
        if (here) {
            real* value = array + clamped(b, i, j);
            u32* word = words + (done + __popc(who & lanes_before(lane))) * (BITS / 32);
#pragma unroll
            for (int part = 0; part < BITS / 32; ++part) {
                if (ENCODE)
                    word[part] = ((const u32*)value)[part];
                else
                    ((u32*)value)[part] = word[part];
            }
        }
        done += __popc(who);
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, ENCODE_BLOCKS)
    encode(const real* __restrict__ array, u8* __restrict__ out, i64 n2, i64 n1, i64 n0, u32 t1, u32 t0, u32 tiles,
           u32 shift, const signed char* __restrict__ weights, i64 plane, i64 pitch) {
    __shared__ u32 stages[WARPS][STAGED * 32];
    SHARED_TILES
    __shared__ __align__(8) u8 all_widths[WARPS][ROWS];
    __shared__ u32 sizes[WARPS];
    __shared__ u64 room;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 tile = blockIdx.x * WARPS + warp;
    const bool here = tile < tiles;
    u32* stage = stages[warp] + lane;
    u8* widths = all_widths[warp];
    Header* header = (Header*)out;
    const Shape shape{n2, n1, n0, t1, t0, plane, (int)pitch};
    const Brick b = brick(here ? tile : 0, lane, shape);
    real step = (real)header->step, bound = (real)header->bound;
    if (weights && here) {
        const Quanta own = scaled(header->bound, header->step, weights[tile]);
        bound = own.bound, step = own.step;
    }
    const int own = weights ? sizeof(real) : 0;  // bytes of the tile's own step
    const real inverse = 1 / step, test = bound > TINY ? bound : TINY;

    Staged staged{0, -1};
    bool raw = false;
    int bits = 0, size = 0, first = 0, second = 0;
    u32 firsts = 0, seconds = 0;
    if (here) {
        if (b.values == ROWS * 32) {
            load_tile(array, b, lane, SHARED_TILE);
            staged = encode_quickly<true>(array, b, step, inverse, test, stage, widths, SHARED_TILE);
        } else {
            const u64 packed = encode_ragged(array, tile, shape, step, inverse, test, stage, widths);
            staged = Staged{(u32)(packed >> 32), (int)packed};
        }
        __syncwarp();
        first = widths[2 * lane], second = widths[2 * lane + 1];
        if (staged.bits < 0 || __any_sync(ALL, first == EXACT || second == EXACT)) {
            staged.bits = -1;
            bits = encode_carefully<false>(array, tile, shape, step, inverse, test, nullptr, widths);
            __syncwarp();
            first = widths[2 * lane], second = widths[2 * lane + 1];
        } else {
            bits = staged.bits;
        }
        firsts = __ballot_sync(ALL, first >= ESCAPE), seconds = __ballot_sync(ALL, second >= ESCAPE);
        size = own + WIDTHS + ((__popc(firsts) + __popc(seconds) + 3) & ~3) + bits * 4;
        raw = size >= b.values * (int)sizeof(real);
        if (raw) size = b.values * (int)sizeof(real);
        if (bits == 0) size = 0, raw = false;
        size = (size + (1 << shift) - 1) >> shift;
    }
    // One request for the room of all tiles of the thread block.
    if (lane == 0) sizes[warp] = size;
    __syncthreads();
    u32 before = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) before += w < warp ? sizes[w] : 0;
    if (threadIdx.x == WARPS * 32 - 1) room = atomicAdd(&header->size, (u64)(before + size) << shift);
    __syncthreads();
    if (!here) return;
    u32* places = (u32*)(out + HEADER);
    if (size == 0) {
        if (lane == 0) places[tile] = 0;
        return;
    }
    const u64 place = (room >> shift) + before;
    if (lane == 0) places[tile] = (u32)place | (raw ? RAW : 0);
    u8* to = out + (place << shift);
    if (raw) {
        copy_raw<true>(const_cast<real*>(array), tile, shape, (u32*)to);
        return;
    }
    if (own && lane == 0) put_step(to, step);
    to += own;
    to[lane] = (u8)(min(first, ESCAPE) | min(second, ESCAPE) << 4);
    to += WIDTHS;
    if (firsts | seconds) {
        const int at = __popc(firsts & lanes_before(lane)) + __popc(seconds & lanes_before(lane));
        const int count = __popc(firsts) + __popc(seconds);
        if (first >= ESCAPE) to[at] = (u8)first;
        if (second >= ESCAPE) to[at + (first >= ESCAPE)] = (u8)second;
        if (lane < 3 && count + lane < ((count + 3) & ~3)) to[count + lane] = 0;
        to += (count + 3) & ~3;
    }
    if (staged.bits < 0) {
        encode_carefully<true>(array, tile, shape, step, inverse, test, (u32*)to, widths);
        return;
    }
    u32* words = (u32*)to + lane;
    const int whole = bits & ~31;
    for (int at = 0; at < whole; at += 32) words[at] = stage[at];
    store_tail((u32*)to + whole, staged.word, bits & 31, lane);
}

// The lane's stream, two words ahead.
struct Reader {
    const u32* __restrict__ from;
    u32 low, high, next, tail;
    int taken, at, words;
    __device__ inline u32 fetch(int word) const { return word < words ? __ldcs(from + word * 32) : tail; }
    __device__ Reader(const u32* data, int bits, int lane) : from(data + lane), taken(0), at(2) {
        bits = __reduce_max_sync(ALL, bits);  // the same in all lanes; see decode_side()
        words = bits >> 5;
        tail = load_tail(data + words * 32, bits & 31, lane);
        low = fetch(0), high = fetch(1), next = fetch(2);
    }
    __device__ inline u32 peek() const { return __funnelshift_r(low, high, taken); }
    __device__ inline void skip(int width) {
        taken += width;
        if (taken >= 32) {
            taken -= 32;
            low = high, high = next, next = fetch(++at);
        }
    }
    __device__ inline int take(int width) {
        const u32 window = peek();
        skip(width);
        int field;
        asm("szext.clamp.s32 %0, %1, %2;" : "=r"(field) : "r"(window), "r"(width));
        return field;
    }
};

// Give the values of side i to `store`, one at a time.
template <typename Store>
__device__ inline void decode_side(int i, real step, const u8* widths, Reader& reader, Lorenzo& neighbours,
                                   Store store) {
    neighbours.side();
    // All lanes read the same: the reduction only tells the compiler, which can then branch for the whole warp.
    const u32 half[2] = {__reduce_or_sync(ALL, ((const u32*)widths)[2 * i]),
                         __reduce_or_sync(ALL, ((const u32*)widths)[2 * i + 1])};
#pragma unroll
    for (int j = 0; j < SIDE; ++j) {
        const int d = reader.take(half[j / 4] >> j % 4 * 8 & 255);
        store(j, restore(neighbours.value(d, j), step));
    }
}

template <bool WHOLE>
__device__ inline void decode_quickly(real* __restrict__ array, const Brick& b, real step, const u8* widths,
                                      Reader& reader, real* tile) {
    Lorenzo neighbours;
#pragma unroll 1
    for (int i = 0; i < SIDE; ++i) {
        real* side = array + b.base + i * b.si;
        decode_side(i, step, widths, reader, neighbours, [&](int j, real x) {
#if RANK < 3
            if (WHOLE)
                tile[spot(i, j, threadIdx.x & 31)] = x;
            else if (exists(b, i, j))
                side[j * b.sj] = x;
#else
            if (WHOLE || exists(b, i, j)) side[j * b.sj] = x;
#endif
        });
    }
#if RANK < 3
    if (!WHOLE) return;
    __syncwarp();
    const int lane = threadIdx.x & 31;
#pragma unroll 16
    for (int line = 0; line < ROWS; ++line) array[line_of(b, line, lane)] = tile[spot_of_line(line, lane)];
#endif
}

// Decode a tile that has rows kept as they are.
__device__ __noinline__ void decode_carefully(real* __restrict__ array, u32 tile, Shape shape, real step,
                                              const u8* widths, const u32* data, int bits) {
    const int lane = threadIdx.x & 31;
    const Brick b = brick(tile, lane, shape);
    Reader reader(data, bits, lane);
    Lorenzo neighbours;
#pragma unroll 1
    for (int i = 0; i < SIDE; ++i) {
        neighbours.side();
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            const int width = widths[i * SIDE + j];
            const bool exact = width == EXACT;
            const u32 low = exact ? reader.take(32) : 0, high = exact && DOUBLE ? reader.take(32) : 0;
            const int d = exact ? 0 : reader.take(width);
            real x = restore(neighbours.value(d, j), step);
#if DOUBLE
            if (exact) x = __hiloint2double(high, low);
#else
            if (exact) x = __int_as_float(low | high);
#endif
            if (exists(b, i, j)) array[clamped(b, i, j)] = x;
        }
    }
}

__device__ inline void fill_zeros(real* __restrict__ array, const Brick& b) {
    if (b.values == ROWS * 32) {
#if RANK < 3
#pragma unroll 16
        for (int line = 0; line < ROWS; ++line) array[line_of(b, line, threadIdx.x & 31)] = 0;
#else
#pragma unroll 1
        for (int i = 0; i < SIDE; ++i)
#pragma unroll
            for (int j = 0; j < SIDE; ++j) array[b.base + i * b.si + j * b.sj] = 0;
#endif
    } else {
        for (int i = 0; i < SIDE; ++i)
            for (int j = 0; j < SIDE; ++j)
                if (exists(b, i, j)) array[clamped(b, i, j)] = 0;
    }
}

// An encoding as it was given, and what it should be.
struct Payload {
    const u8* bytes;
    u64 nbytes;
    u32 magic, kind, tiles, shift;
    u32* flag;
};

enum Told { NOTHING, CODED, CODED_WITH_EXACT, KEPT };

// What an encoding tells of a tile: where its streams or its values begin.
struct Opened {
    Told told;
    const u32* words;
    int bits;  // of a stream
    real step;
};

// Find a tile and its widths, reading nothing outside of the payload and raising the flag where that would have been
// necessary: then the encoding tells nothing, and the tile is left zero.
__device__ inline Opened open_tile(const Payload& p, const Shape& s, u32 tile, int values, int lane, u8* widths) {
    const u8* payload = p.bytes;
    const Header* header = (const Header*)payload;
    const u64 start = (HEADER + 4 * (u64)p.tiles + (1ull << p.shift) - 1) >> p.shift << p.shift;
    bool whole = p.nbytes >= start && header->magic == p.magic && header->kind == p.kind && header->n2 == s.n2 &&
                 header->n1 == s.n1 && header->n0 == s.n0 && header->tiles == p.tiles && header->size >= start &&
                 header->size <= p.nbytes && header->size % 4 == 0 && possible(header->bound) &&
                 possible(header->step);
    const u32 place = whole ? ((const u32*)(payload + HEADER))[tile] : RAW;
    real step = whole ? (real)header->step : 0;
    const u64 end = whole ? header->size : 0;
    if (place == 0) return Opened{NOTHING, nullptr, 0, 0};
    const u64 at = (u64)(place & ~RAW) << p.shift;
    whole = whole && at >= start;
    if (place & RAW) {
        if (whole && at + (u64)values * sizeof(real) <= end) return Opened{KEPT, (const u32*)(payload + at), 0, 0};
        whole = false;
    }
    const u64 own = p.kind >> 24 ? sizeof(real) : 0;
    whole = whole && at + own + WIDTHS <= end;
    if (whole && own) {
        step = step_of(payload + at);
        whole = possible(step);
    }
    u32 two = whole ? payload[at + own + lane] : 0;
    int first = two & 15, second = two >> 4;
    u64 data = at + own + WIDTHS;
    const u32 firsts = __ballot_sync(ALL, first == ESCAPE), seconds = __ballot_sync(ALL, second == ESCAPE);
    if (firsts | seconds) {
        const int before = __popc(firsts & lanes_before(lane)) + __popc(seconds & lanes_before(lane));
        const int count = __popc(firsts) + __popc(seconds);
        whole = whole && data + count <= end;
        if (whole) {
            if (first == ESCAPE) first = payload[data + before];
            if (second == ESCAPE) second = payload[data + before + (two % 16 == ESCAPE)];
        }
        data += (count + 3) & ~3;
        whole = __all_sync(ALL, whole && first <= EXACT && second <= EXACT);
    }
    const bool exact = __any_sync(ALL, first == EXACT || second == EXACT);
    const int bits = __reduce_add_sync(ALL, (first == EXACT ? BITS : first) + (second == EXACT ? BITS : second));
    whole = whole && data + (u64)bits * 4 <= end;
    if (!whole) {
        if (lane == 0) atomicOr(p.flag, DAMAGED);  // other kernels may be setting other bits of it
        return Opened{NOTHING, nullptr, 0, 0};
    }
    ((u16*)widths)[lane] = (u16)(first | second << 8);
    __syncwarp();
    return Opened{exact ? CODED_WITH_EXACT : CODED, (const u32*)(payload + data), bits, step};
}

// Decode a tile by its warp alone.
__device__ inline void decode_tile(real* __restrict__ array, const Opened& o, u32 tile, const Brick& b,
                                   const Shape& shape, const u8* widths, real* room) {
    const u32 told = __reduce_max_sync(ALL, (u32)o.told);  // the same in all lanes; see decode_side()
    if (told == NOTHING) {
        fill_zeros(array, b);
        return;
    }
    if (told == KEPT) {
        copy_raw<false>(array, tile, shape, const_cast<u32*>(o.words));
        return;
    }
    if (told == CODED_WITH_EXACT) {
        decode_carefully(array, tile, shape, o.step, widths, o.words, o.bits);
        return;
    }
    Reader reader(o.words, o.bits, threadIdx.x & 31);
    if (b.values == ROWS * 32)
        decode_quickly<true>(array, b, o.step, widths, reader, room);
    else
        decode_quickly<false>(array, b, o.step, widths, reader, nullptr);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, DECODE_BLOCKS)
    decode(const u8* __restrict__ payload, u64 nbytes, real* __restrict__ array, u32 magic, u32 kind, i64 n2, i64 n1,
           i64 n0, u32 t1, u32 t0, u32 tiles, u32 shift, u32* __restrict__ flag) {
    __shared__ __align__(8) u8 all_widths[WARPS][ROWS];
    SHARED_TILES
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 tile = blockIdx.x * WARPS + warp;
    if (tile >= tiles) return;
    const Shape shape = whole_shape(n2, n1, n0, t1, t0);
    const Brick b = brick(tile, lane, shape);
    u8* widths = all_widths[warp];
    const Payload given{payload, nbytes, magic, kind, tiles, shift, flag};
    const Opened opened = open_tile(given, shape, tile, b.values, lane, widths);
    decode_tile(array, opened, tile, b, shape, widths, SHARED_TILE);
}

#if RANK == 3
// A warp has 16 neighbouring values of a line. Where lines begin within memory sectors (32 bytes), it would write
// these in part, and its neighbours the rest of them, which takes longer than writing them whole. So the tiles of a
// thread block lie side by side, meet in shared memory, one plane at a time, and leave it in pieces as long as those
// tiles are wide.
constexpr int LINES = 16;         // of a plane of a tile
constexpr int WIDE = WARPS * 16;  // values of a line in all tiles of a thread block
constexpr int SECTOR = 2 * EACH;  // values
constexpr int PITCH = WIDE + (DOUBLE ? SECTOR : 16);  // 16 more keep the halves of a warp off each other's banks

// A warp writes lines j and j + 8 at once: they have neighbouring slots.
__device__ constexpr int slot_of(int line) { return (line & 7) * 2 + (line >> 3); }

// The part of the array that the thread block decodes.
struct Slab {
    real* first;
    i64 pitch, plane;
    int width, height, depth;
};

__device__ inline int past_sector(u32 values) { return values & (SECTOR - 1); }
__device__ inline u32 values_to(const real* at) { return (u32)((u64)at / sizeof(real)); }

// Writes planes from shared memory to the array. If lines begin at multiples of 16 bytes, they go as they are. If not,
// they are SHIFTED: in shared memory, a line begins as far from a sector's beginning as it does in the array. Whole
// memory sectors go by 16 bytes then too, and the values before and after one by one: no more in all than a sector has,
// as long as the thread block does not stick out of the array.
template <bool SHIFTED>
struct Writer {
    static constexpr int AT_ONCE = SECTOR;  // lines of the thread block; lines that far apart begin at the same shift
    const real* from;
    real* to;
    i64 plane, step;
    int at, lines, width;  // lines are counted from this thread's first one on
    const real* ends_from;
    real* ends_to;
    i64 ends_step;
    int ends_lines;

    __device__ Writer(const Slab& s, const real* planes) : plane(s.plane), width(s.width) {
        const int line = threadIdx.x / (WIDE / EACH);
        at = threadIdx.x % (WIDE / EACH) * EACH;
        from = planes + slot_of(line) * PITCH + at;
        to = s.first + line * s.pitch;
        step = AT_ONCE * s.pitch, lines = s.height - line;
        if (!SHIFTED) to += at, lines = at < width ? lines : 0;
        const int end = threadIdx.x / SECTOR;
        ends_from = planes + slot_of(end) * PITCH;
        ends_to = s.first + end * s.pitch;
        ends_step = ENDS * s.pitch, ends_lines = s.height - end;
    }
    __device__ inline void store(int offset) {
        if (SHIFTED) {
            const int past = past_sector(values_to(to)), last = (past + width) & ~(SECTOR - 1);
            copy(to + (at - past), offset, at >= SECTOR && at < last ? lines : 0);
            store_ends(offset);
        } else {
            copy(to, offset, lines);
        }
        to += plane;
    }
    __device__ inline void copy(real* there, int offset, int count) {
#pragma unroll
        for (int k = 0; k < LINES; k += AT_ONCE) {
            const real* values = from + offset + slot_of(k) * PITCH;
            if (k < count) *(Vector*)(there + k / AT_ONCE * step) = *(const Vector*)values;
        }
    }

    static constexpr int ENDS = WARPS * 32 / SECTOR;  // lines whose ends the thread block writes at once
    __device__ inline void store_ends(int offset) {
        const int mine = threadIdx.x % SECTOR, past = past_sector(values_to(ends_to)), end = past + width;
        const int last = end & ~(SECTOR - 1);
        real* line = ends_to;
#pragma unroll
        for (int k = 0; k < LINES; k += ENDS) {
            if (k < ends_lines && k + (int)threadIdx.x / SECTOR < LINES) {
                const real* values = ends_from + offset + slot_of(k) * PITCH;
                const int one = mine < past ? last + mine : mine;
                if (one >= past && one < end) line[one - past] = values[one];
                const int other = last + mine;
                if (width < WIDE && mine >= past && other < end) line[other - past] = values[other];
            }
            line += ends_step;
        }
        ends_to += plane;
    }
};

// For thread blocks that have a tile with exact values.
__device__ __noinline__ void decode_alone(real* __restrict__ array, Opened opened, u32 tile, Shape shape,
                                          const u8* widths) {
    decode_tile(array, opened, tile, brick(tile, threadIdx.x & 31, shape), shape, widths, nullptr);
}

template <bool SHIFTED>
__device__ inline void decode_together(const Payload& given, real* __restrict__ array, const Shape& shape) {
    __shared__ __align__(16) real planes[2][LINES * PITCH];
    __shared__ __align__(8) u8 all_widths[WARPS][ROWS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 across = (shape.t0 + WARPS - 1) / WARPS, row = blockIdx.x / across, plane = row / shape.t1;
    const u32 tx = (blockIdx.x - row * across) * WARPS;
    const i64 z = (i64)plane * 8, y = (i64)(row - plane * shape.t1) * 16, x = (i64)tx * 16;
    const Slab slab{array + (z * shape.n1 + y) * shape.n0 + x,
                    shape.n0,
                    shape.n1 * shape.n0,
                    part_of(shape.n0 - x, WIDE),
                    part_of(shape.n1 - y, LINES),
                    part_of(shape.n2 - z, SIDE)};
    const u32 tile = row * shape.t0 + tx + warp;
    const bool here = tx + warp < shape.t0;
    u8* widths = all_widths[warp];
    Opened opened{NOTHING, nullptr, 0, 0};
    if (here) {
        const int values = part_of(slab.width - warp * 16, 16) * slab.height * slab.depth;
        opened = open_tile(given, shape, tile, values, lane, widths);
    }
    if (!__syncthreads_and(opened.told == NOTHING || opened.told == CODED)) {
        if (here) decode_alone(array, opened, tile, shape, widths);
        return;
    }
    const bool coded = __any_sync(ALL, opened.told == CODED);  // of all lanes or of none
    real* mine = planes[0] + lane / 16 * PITCH + warp * 16 + lane % 16;
    Writer<SHIFTED> writer(slab, planes[0]);
    Reader reader(opened.words, opened.bits, lane);
    Lorenzo neighbours;
    u32 begin = values_to(slab.first);  // of the plane's first line, as of that 8 lines below it
    // A plane is written to memory while the next one is decoded into the other half of `planes`.
#pragma unroll 1
    for (int i = 0; i < slab.depth; ++i) {
        const int offset = (i & 1) * LINES * PITCH;
        const auto put = [&](int j, real value) {
            const int past = SHIFTED ? past_sector(begin + j * (u32)slab.pitch) : 0;
            mine[offset + slot_of(j) * PITCH + past] = value;
        };
        if (coded) {
            decode_side(i, opened.step, widths, reader, neighbours, put);
        } else {
#pragma unroll
            for (int j = 0; j < SIDE; ++j) put(j, 0);
        }
        __syncthreads();
        writer.store(offset);
        begin += (u32)slab.plane;
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, DECODE_BLOCKS)
    decode_straight(const u8* __restrict__ payload, u64 nbytes, real* __restrict__ array, u32 magic, u32 kind, i64 n2,
                    i64 n1, i64 n0, u32 t1, u32 t0, u32 tiles, u32 shift, u32* __restrict__ flag) {
    const Payload given{payload, nbytes, magic, kind, tiles, shift, flag};
    decode_together<false>(given, array, whole_shape(n2, n1, n0, t1, t0));
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, DECODE_BLOCKS)
    decode_shifted(const u8* __restrict__ payload, u64 nbytes, real* __restrict__ array, u32 magic, u32 kind, i64 n2,
                   i64 n1, i64 n0, u32 t1, u32 t0, u32 tiles, u32 shift, u32* __restrict__ flag) {
    const Payload given{payload, nbytes, magic, kind, tiles, shift, flag};
    decode_together<true>(given, array, whole_shape(n2, n1, n0, t1, t0));
}

// The values of a tile one side after the other, whatever its encoding tells of them.
struct Sides {
    const Opened o;
    const u8* widths;
    const Brick b;
    Reader reader;
    Lorenzo neighbours;
    int told, done;  // values that were kept as they are, and given

    __device__ Sides(const Opened& opened, const Brick& brick, const u8* of_rows, int lane)
        : o(opened), widths(of_rows), b(brick), reader(opened.words, opened.bits, lane), done(0) {
        told = __reduce_max_sync(ALL, (u32)opened.told);  // the same in all lanes; see decode_side()
    }
    template <typename Store>
    __device__ inline void give(int i, int lane, Store store) {
        if (told == CODED) {
            decode_side(i, o.step, widths, reader, neighbours, store);
        } else if (told == NOTHING) {
#pragma unroll
            for (int j = 0; j < SIDE; ++j) store(j, 0);
        } else {
            give_carefully(i, lane, store);
        }
    }
    template <typename Store>
    __device__ inline void give_carefully(int i, int lane, Store store) {
        neighbours.side();
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            real x = 0;
            if (told == KEPT) {
                const u32 who = __ballot_sync(ALL, exists(b, i, j));
                if (exists(b, i, j)) {
                    const u32* words = o.words + (done + __popc(who & lanes_before(lane))) * (BITS / 32);
#pragma unroll
                    for (int part = 0; part < BITS / 32; ++part) ((u32*)&x)[part] = words[part];
                }
                done += __popc(who);
            } else {
                const int width = widths[i * SIDE + j];
                const bool exact = width == EXACT;
                const u32 low = exact ? reader.take(32) : 0, high = exact && DOUBLE ? reader.take(32) : 0;
                const int d = exact ? 0 : reader.take(width);
                x = restore(neighbours.value(d, j), o.step);
#if DOUBLE
                if (exact) x = __hiloint2double(high, low);
#else
                if (exact) x = __int_as_float(low | high);
#endif
            }
            store(j, x);
        }
    }
};

#if DOUBLE
__device__ inline double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
#else
__device__ inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
#endif

// Decode values that nobody needs by themselves: factor times each, times that of another array, is added to one sum,
// and times itself to a second. The sums are like the array, the other one may be a window; all lie at multiples of 16
// bytes, and lines are whole vectors. Tiles that have a slot are kept there too, row by row.
extern "C" __global__ void __launch_bounds__(WARPS * 32, MULTIPLY_BLOCKS)
    multiply(const u8* __restrict__ payload, u64 nbytes, const real* __restrict__ other, i64 plane, i64 pitch,
             real* __restrict__ products, real* __restrict__ squares, real factor, const int* __restrict__ slots,
             real* __restrict__ kept, u32 magic, u32 kind, i64 n2, i64 n1, i64 n0, u32 t1, u32 t0, u32 tiles, u32 shift,
             u32* __restrict__ flag) {
    __shared__ __align__(16) real planes[2][LINES * PITCH];
    __shared__ __align__(8) u8 all_widths[WARPS][ROWS];
    constexpr int APART = SECTOR, EACH_THREAD = LINES / APART;  // lines of the thread block, and of one thread
    const Payload given{payload, nbytes, magic, kind, tiles, shift, flag};
    const Shape shape = whole_shape(n2, n1, n0, t1, t0);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 across = (t0 + WARPS - 1) / WARPS, row = blockIdx.x / across, layer = row / t1;
    const u32 tx = (blockIdx.x - row * across) * WARPS, tile = row * t0 + tx + warp;
    const i64 z = (i64)layer * 8, y = (i64)(row - layer * t1) * 16, x = (i64)tx * 16;
    const int width = part_of(n0 - x, WIDE), height = part_of(n1 - y, LINES), depth = part_of(n2 - z, SIDE);
    const bool here = tx + warp < t0;
    u8* widths = all_widths[warp];
    const Brick b = brick(here ? tile : 0, lane, shape);
    const Opened opened = here ? open_tile(given, shape, tile, b.values, lane, widths) : Opened{NOTHING, nullptr, 0, 0};
    Sides sides(opened, b, widths, lane);
    const int slot = here && slots ? slots[tile] : -1;
    real* keep = kept + (i64)slot * ROWS * 32 + lane;
    real* mine = planes[0] + lane / 16 * PITCH + warp * 16 + lane % 16;

    const int line = threadIdx.x / (WIDE / EACH), at = threadIdx.x % (WIDE / EACH) * EACH;
    const int lines = at < width ? height - line : 0;
    const real* from = planes[0] + slot_of(line) * PITCH + at;
    i64 there = (z * n1 + y + line) * n0 + x + at, beside = z * plane + (y + line) * pitch + x + at;
#pragma unroll 1
    for (int i = 0; i < depth; ++i) {
        // What the values meet is on its way while they are decoded.
        Vector q[EACH_THREAD], product[EACH_THREAD], square[EACH_THREAD];
#pragma unroll
        for (int k = 0; k < EACH_THREAD; ++k) {
            if (k * APART < lines) {
                q[k] = *(const Vector*)(other + beside + k * APART * pitch);
                product[k] = *(const Vector*)(products + there + k * APART * n0);
                square[k] = *(const Vector*)(squares + there + k * APART * n0);
            }
        }
        const int offset = (i & 1) * LINES * PITCH;
        sides.give(i, lane, [&](int j, real value) {
            mine[offset + slot_of(j) * PITCH] = value;
            if (slot >= 0) keep[(i * SIDE + j) * 32] = value;
        });
        __syncthreads();
#pragma unroll
        for (int k = 0; k < EACH_THREAD; ++k) {
            if (k * APART < lines) {
                const Vector v = *(const Vector*)(from + offset + slot_of(k * APART) * PITCH);
#pragma unroll
                for (int each = 0; each < EACH; ++each) {
                    const real scaled = factor * v.x[each];
                    product[k].x[each] = fused(scaled, q[k].x[each], product[k].x[each]);
                    square[k].x[each] = fused(scaled, v.x[each], square[k].x[each]);
                }
                *(Vector*)(products + there + k * APART * n0) = product[k];
                *(Vector*)(squares + there + k * APART * n0) = square[k];
            }
        }
        there += n1 * n0, beside += plane;
    }
}
#endif
