// The fixed-rate mode of zfp for 3-D arrays of float32, bit for bit: a thread takes a block of 4 x 4 x 4 values.
//
// Lanes of a warp take neighbours along x, so that each of the sixteen rows of their blocks is one contiguous read or
// write of the warp. A block takes WORDS words of 32 bits, wherever it ends, so that no two threads share a word. They
// are staged in shared memory, a column a thread, and cross to the stream as contiguous runs of the thread block.
//
// zfp codes the 64 coefficients of a block as bit planes, highest first. Of a plane, the coefficients that have had a
// one before (the first `known` of them) are written as they are. The rest is written as: is there a one among them?
// If so, the zeros before it, the one, and the same question again for those behind it. What does not fit is cut off.

#ifndef WORDS
#define WORDS 16  // 32 bits each: half a rate of 1
#endif

#define THREADS 64
#define PITCH (THREADS + 1)  // of the staged columns: neither columns nor rows meet in one bank
#define LONGS ((WORDS + 1) / 2)
#define LIMIT (32 * WORDS)
#define HEADER 9  // bits: one that says there is something, and the exponent
#define NEGABINARY 0xaaaaaaaau
#define INFINITE 0x7f800000u
#define NON_FINITE 2u  // what the flag says of an array with infinities or NaN

typedef unsigned int u32;
typedef unsigned long long u64;

// Coefficients from low to high frequency: x + 4 y + 16 z of each.
static __device__ const unsigned char ORDER[64] = {
    0,  1,  4,  16, 20, 17, 5,  2,  8,  32, 21, 6,  18, 24, 9,  33,
    36, 3,  12, 48, 22, 25, 37, 40, 34, 10, 7,  19, 28, 13, 49, 52,
    41, 38, 26, 23, 29, 53, 11, 35, 44, 14, 50, 56, 42, 27, 39, 45,
    30, 54, 57, 60, 51, 15, 43, 46, 58, 61, 55, 31, 62, 59, 47, 63};

struct Place {
    u64 start;          // of the block's first value
    u64 row, layer;     // strides of y and z
    u32 nx, ny, nz;     // values of the array from there to its end, along each axis
};

static __device__ __forceinline__ Place place_of(u32 block, u32 nx, u32 ny, u32 nz)
{
    const u32 across = (nx + 3) / 4, down = (ny + 3) / 4;
    const u32 x = 4 * (block % across), rest = block / across;
    const u32 y = 4 * (rest % down), z = 4 * (rest / down);
    const u64 layer = (u64)nx * ny;
    return {z * layer + (u64)y * nx + x, nx, layer, nx - x, ny - y, nz - z};
}

// Where a value beyond the edge is copied from, along one axis of which `there` values exist.
static __device__ __forceinline__ u32 inside(u32 index, u32 there)
{
    return index < there ? index : index == 2 ? there - 1 : 0;
}

static __device__ __forceinline__ void gather(float (&values)[64], const float *field, const Place &at, bool rows)
{
    field += at.start;
#pragma unroll
    for (u32 i = 0; i < 16; ++i) {
        const float *row = field + inside(i / 4, at.nz) * at.layer + inside(i % 4, at.ny) * at.row;
        if (rows) {
            const float4 four = *reinterpret_cast<const float4 *>(row);
            values[4 * i] = four.x, values[4 * i + 1] = four.y, values[4 * i + 2] = four.z, values[4 * i + 3] = four.w;
        } else {
#pragma unroll
            for (u32 x = 0; x < 4; ++x)
                values[4 * i + x] = row[inside(x, at.nx)];
        }
    }
}

static __device__ __forceinline__ void scatter(const float (&values)[64], float *field, const Place &at, bool rows)
{
    field += at.start;
#pragma unroll
    for (u32 i = 0; i < 16; ++i) {
        if (i / 4 >= at.nz || i % 4 >= at.ny)
            continue;
        float *row = field + (i / 4) * at.layer + (i % 4) * at.row;
        if (rows) {
            *reinterpret_cast<float4 *>(row) =
                float4{values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]};
        } else {
#pragma unroll
            for (u32 x = 0; x < 4; ++x)
                if (x < at.nx)
                    row[x] = values[4 * i + x];
        }
    }
}

// Sums wrap around in the streams of damaged or extreme blocks, as they do in zfp: hence unsigned, and signed to halve.
static __device__ __forceinline__ u32 half(u32 value)
{
    return (u32)((int)value >> 1);
}

static __device__ __forceinline__ void lift(u32 &a, u32 &b, u32 &c, u32 &d)
{
    a = half(a + d), d -= a;
    c = half(c + b), b -= c;
    a = half(a + c), c -= a;
    d = half(d + b), b -= d;
    d += half(b), b -= half(d);
}

static __device__ __forceinline__ void lower(u32 &a, u32 &b, u32 &c, u32 &d)
{
    b += half(d), d -= half(b);
    b += d, d = 2 * d - b;
    c += a, a = 2 * a - c;
    b += c, c = 2 * c - b;
    d += a, a = 2 * a - d;
}

// Take the bits of `one` where the mask has ones, else of `other`.
static __device__ __forceinline__ u32 choose(u32 mask, u32 one, u32 other)
{
#ifdef __CUDA_ARCH__
    u32 both;  // the compiler splits the mask into two constants, and the choice into two instructions
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(both) : "r"(mask), "r"(one), "r"(other));
    return both;
#else
    return (one & mask) | (other & ~mask);
#endif
}

// Exchange rows and columns of a square of bits: bit c of row r becomes bit r of row c.
static __device__ __forceinline__ void transpose(u32 (&rows)[32])
{
#pragma unroll
    for (u32 step = 16; step; step /= 2) {
        const u32 low = 0xffffffffu / ((1u << step) + 1u);  // the lower of each two neighbouring groups of `step` bits
#pragma unroll
        for (u32 i = 0; i < 32; ++i) {
            if (i & step)
                continue;
            const u32 above = rows[i], below = rows[i + step];
            rows[i] = choose(low, above, below << step);
            rows[i + step] = choose(low, above >> step, below);
        }
    }
}

// The words of a block are a column of the staged ones.
struct Writer {
    u32 *column;
    u64 bits;   // not yet written
    u32 count;  // of those bits, below 64
    u32 longs;  // written

    __device__ __forceinline__ void put(u64 more, u32 length)
    {
        bits |= more << count;
        count += length;
        if (count < 64)
            return;
        flush();
        count -= 64;
        bits = count ? more >> (length - count) : 0;
    }

    __device__ __forceinline__ void flush()
    {
        if (longs < LONGS) {
            column[2 * longs * PITCH] = (u32)bits;
            column[(2 * longs + 1) * PITCH] = (u32)(bits >> 32);
        }
        ++longs;
    }
};

static __device__ __forceinline__ u64 lowest(u64 bits, u32 count)
{
    return count < 64 ? bits & ((1ull << count) - 1) : bits;
}

static __device__ __forceinline__ void write_planes(Writer &to, const u32 *planes)
{
    u32 known = 0, answer = 0;  // the "no" that ended the plane before is written together with what follows
    for (int k = 31; k >= 0 && to.longs < LONGS; --k) {
        const u64 plane = planes[2 * k * THREADS] | (u64)planes[(2 * k + 1) * THREADS] << 32;
        to.put(lowest(plane, known) << answer, known + answer);
        u64 rest = known < 64 ? plane >> known : 0;
        if (rest) {
            // The one of the last coefficient goes without saying: it only keeps the questions coming.
            const u32 last = (u32)(plane >> 63);
            rest ^= (u64)last << (63 - known);
            u32 asked = 0;
            do {
                u32 ones = (u32)rest & 0x7fffffffu;  // 31 coefficients and 32 questions fit into 64 bits
                rest >>= 31;
                const u32 more = rest || last;
                const u32 width = last ? min(63 - known, 31u) : rest ? 31 : 32 - __clz(ones);
                u32 questions = !asked;
                u64 bits = questions;
                while (ones) {
                    const u32 one = ones & -ones;
                    ones ^= one;
                    const u64 placed = (u64)one << questions;
                    bits |= placed;
                    if (ones | more) {
                        bits |= placed << 1;
                        ++questions;
                    }
                }
                to.put(bits, width + questions);
                known += width;
                asked = more;
            } while (last ? known < 63 : rest != 0);
            known += last;
        }
        answer = known < 64;
    }
}

static __device__ __forceinline__ void encode_block(float (&values)[64], u32 *planes, u32 *column, u32 *flag)
{
    u32 largest = 0;
#pragma unroll
    for (u32 i = 0; i < 64; ++i)
        largest = max(largest, __float_as_uint(values[i]) & 0x7fffffffu);
    if (largest >= INFINITE) {
        atomicOr(flag, NON_FINITE);
        largest = 0;
    }
    Writer to = {column, 0, 0, 0};
    if (largest) {
        // With m 2^e the largest magnitude and 1/2 <= m < 1, all are scaled by 2^(30 - e); zfp writes e + 127.
        const u32 exponent = (largest >> 23) + 1;
        float scale = __uint_as_float((284 - exponent) << 23);
        if (exponent < 30) {  // the factor exceeds float32: zfp's own encoder overflows here
            scale = __uint_as_float(254u << 23);
            const float first = __uint_as_float((157 - exponent) << 23);
#pragma unroll
            for (u32 i = 0; i < 64; ++i)
                values[i] *= first;
        }
        u32 whole[64];
#pragma unroll
        for (u32 i = 0; i < 64; ++i)
            whole[i] = (u32)(int)(values[i] * scale);
#pragma unroll
        for (u32 i = 0; i < 64; i += 4)
            lift(whole[i], whole[i + 1], whole[i + 2], whole[i + 3]);
#pragma unroll
        for (u32 i = 0; i < 64; i += i % 4 == 3 ? 13 : 1)
            lift(whole[i], whole[i + 4], whole[i + 8], whole[i + 12]);
#pragma unroll
        for (u32 i = 0; i < 16; ++i)
            lift(whole[i], whole[i + 16], whole[i + 32], whole[i + 48]);
#pragma unroll
        for (u32 side = 0; side < 2; ++side) {
            u32 rows[32];
#pragma unroll
            for (u32 i = 0; i < 32; ++i)
                rows[i] = (whole[ORDER[32 * side + i]] + NEGABINARY) ^ NEGABINARY;
            transpose(rows);
#pragma unroll
            for (u32 k = 0; k < 32; ++k)
                planes[(2 * k + side) * THREADS] = rows[k];
        }
        to.bits = 2 * exponent + 1;
        to.count = HEADER;
        write_planes(to, planes);
    }
    while (to.longs < LONGS) {
        to.flush();
        to.bits = 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
zfp_encode(const float *field, u32 *stream, u32 *flag, u32 nx, u32 ny, u32 nz, u32 blocks, int rows)
{
    __shared__ u32 planes[64 * THREADS];
    __shared__ u32 staged[2 * LONGS * PITCH];
    const u32 first = blockIdx.x * THREADS, mine = threadIdx.x, count = min(blocks - first, (u32)THREADS);
    if (mine < count) {
        float values[64];
        gather(values, field, place_of(first + mine, nx, ny, nz), rows);
        encode_block(values, planes + mine, staged + mine, flag);
    }
    __syncthreads();
    stream += (u64)first * WORDS;
    for (u32 i = mine; i < count * WORDS; i += THREADS)
        stream[i] = staged[i % WORDS * PITCH + i / WORDS];
    if (mine == 0 && first + count == blocks && (count * WORDS) % 2)
        stream[count * WORDS] = 0;  // zfp's own words have 64 bits
}

// The 64 bits from a place on; behind the last there is a one, which ends a run of zeros that was cut off, and zeros.
static __device__ __forceinline__ u64 bits_at(const u32 *column, u32 place)
{
    column += place / 32 * PITCH;
    const u32 a = column[0], b = column[PITCH], c = column[2 * PITCH];
    return __funnelshift_r(a, b, place) | (u64)__funnelshift_r(b, c, place) << 32;
}

static __device__ __forceinline__ void read_planes(u32 *planes, const u32 *column)
{
    u32 known = 0, place = HEADER;
    int k = 31;
    for (; k >= 0 && place < LIMIT; --k) {
        u64 plane = lowest(bits_at(column, place), min(known, LIMIT - place));
        place += known;
        u32 no = 0;
        while (!no && known < 64 && place < LIMIT) {  // once, but where 64 bits do not hold what follows
            const u64 last = 1ull << (63 - known);
            u64 ahead = bits_at(column, place), question = 1, found = 0;
            u32 questions = 0;
            no = 1;
            while (ahead & question) {
                ahead ^= question;
                const u64 one = ahead & -ahead;
                const u64 coefficient = one >> (questions + 1);  // the stream without its questions
                if (coefficient - 1 >= last - 1) {
                    // The run of zeros meets the last coefficient, or the end of what is in sight: then look again.
                    found |= coefficient || !questions ? last : 0;
                    no = 0;
                    break;
                }
                found |= coefficient;
                ahead ^= one;
                question = one << 1;
                ++questions;
            }
            if (!question)
                no = 0;  // it was not read
            const u32 passed = 64 - __clzll(found);
            plane |= found << known;
            known += passed;
            place += passed + questions + no;
        }
        planes[2 * k * THREADS] = (u32)plane;
        planes[(2 * k + 1) * THREADS] = (u32)(plane >> 32);
    }
    for (; k >= 0; --k)
        planes[2 * k * THREADS] = planes[(2 * k + 1) * THREADS] = 0;
}

static __device__ __forceinline__ void decode_block(float (&values)[64], u32 *planes, const u32 *column)
{
    const u32 head = column[0];
    if (!(head & 1)) {
#pragma unroll
        for (u32 i = 0; i < 64; ++i)
            values[i] = 0;
        return;
    }
    read_planes(planes, column);
    u32 whole[64];
#pragma unroll
    for (u32 side = 0; side < 2; ++side) {
        u32 rows[32];
#pragma unroll
        for (u32 k = 0; k < 32; ++k)
            rows[k] = planes[(2 * k + side) * THREADS];
        transpose(rows);
#pragma unroll
        for (u32 i = 0; i < 32; ++i)
            whole[ORDER[32 * side + i]] = (rows[i] ^ NEGABINARY) - NEGABINARY;
    }
#pragma unroll
    for (u32 i = 0; i < 16; ++i)
        lower(whole[i], whole[i + 16], whole[i + 32], whole[i + 48]);
#pragma unroll
    for (u32 i = 0; i < 64; i += i % 4 == 3 ? 13 : 1)
        lower(whole[i], whole[i + 4], whole[i + 8], whole[i + 12]);
#pragma unroll
    for (u32 i = 0; i < 64; i += 4)
        lower(whole[i], whole[i + 1], whole[i + 2], whole[i + 3]);
    // 2^(exponent - 157): a normal number, a subnormal one, or too small for either.
    const u32 exponent = (head >> 1) & 255u;
    const u32 bits = exponent > 30 ? (exponent - 30) << 23 : exponent > 7 ? 1u << (exponent - 8) : 0;
    const float scale = __uint_as_float(bits);
#pragma unroll
    for (u32 i = 0; i < 64; ++i)
        values[i] = (float)(int)whole[i] * scale;
}

extern "C" __global__ void __launch_bounds__(THREADS)
zfp_decode(const u32 *stream, float *field, u32 nx, u32 ny, u32 nz, u32 blocks, int rows)
{
    __shared__ u32 planes[64 * THREADS];
    __shared__ u32 staged[(WORDS + 2) * PITCH];
    const u32 first = blockIdx.x * THREADS, mine = threadIdx.x, count = min(blocks - first, (u32)THREADS);
    stream += (u64)first * WORDS;
    for (u32 i = mine; i < count * WORDS; i += THREADS)
        staged[i % WORDS * PITCH + i / WORDS] = stream[i];
    staged[WORDS * PITCH + mine] = 1;
    staged[(WORDS + 1) * PITCH + mine] = 0;
    __syncthreads();
    if (mine < count) {
        float values[64];
        decode_block(values, planes + mine, staged + mine);
        scatter(values, field, place_of(first + mine, nx, ny, nz), rows);
    }
}
