// The header before streams of other libraries, made and checked on the device; the twin of seal.py, bit for bit.
// Its words: bytes in all, bytes of the stream, checksum, format, bytes of the array, a number, layout, zero.

typedef unsigned char u8;
typedef unsigned long long u64;

#define WORDS 8
#define HEADER (8 * WORDS)
#define CHECKSUM 2

__device__ u64 mixed(u64 word, u64 place) {
    u64 x = word ^ (place * 0x9E3779B97F4A7C15ull);
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    return x ^ (x >> 32);
}

// The bytes of the stream from this word on, with zeros beyond its end.
__device__ u64 last_word(const u8 *bytes, u64 count) {
    u64 word = 0;
    for (u64 index = 0; index < count; ++index) word |= (u64)bytes[index] << (8 * index);
    return word;
}

// What this thread adds to the sum over a stream.
__device__ u64 share(const u64 *header, u64 nbytes) {
    const u64 *stream = header + WORDS;
    u64 whole = nbytes / 8, sum = 0;
    u64 stride = (u64)gridDim.x * blockDim.x, first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 index = first; index < whole; index += stride) sum += mixed(stream[index], WORDS + index);
    if (first == 0 && nbytes % 8) sum += mixed(last_word((const u8 *)(stream + whole), nbytes % 8), WORDS + whole);
    return sum;
}

__device__ u64 over_header(const u64 *header) {
    u64 sum = 0;
    for (int place = 0; place < WORDS; ++place) sum += mixed(place == CHECKSUM ? 0 : header[place], place);
    return sum;
}

// Sums of integers do not depend on the order of the threads.
__device__ void add_up(u64 sum, u64 *total) {
    __shared__ u64 of_block;
    if (threadIdx.x == 0) of_block = 0;
    __syncthreads();
    atomicAdd(&of_block, sum);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(total, of_block);
}

// The header holds the stream's bytes already, and a checksum of zero.
extern "C" __global__ void seal(u64 *header, u64 format, u64 nbytes, u64 number, u64 code) {
    u64 stream = header[1];
    u64 sum = share(header, stream);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        header[0] = HEADER + stream;
        header[3] = format;
        header[4] = nbytes;
        header[5] = number;
        header[6] = code;
        header[7] = 0;
        sum += over_header(header);
    }
    add_up(sum, header + CHECKSUM);
}

// Adds up what the checksum of an encoding of `given` bytes should be.
extern "C" __global__ void resum(const u64 *header, u64 given, u64 *total) {
    u64 sum = share(header, given - HEADER);
    if (blockIdx.x == 0 && threadIdx.x == 0) sum += over_header(header);
    add_up(sum, total);
}

// Puts a sound stream in the place of a damaged one, so that the decoder that follows stays inside its arrays.
// A sound encoding of another format raises 2, anything else that is not expected raises 1.
extern "C" __global__ void judge(u64 *header, u64 given, u64 format, u64 nbytes, u64 code, const u64 *total,
                                 const u8 *spare, u64 spare_nbytes, u64 *damage) {
    bool sound = header[0] == given && header[1] == given - HEADER && header[CHECKSUM] == *total;
    if (sound && header[3] == format && header[4] == nbytes && header[6] == code) return;
    u64 stride = (u64)gridDim.x * blockDim.x, first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (first == 0) atomicOr(damage, sound && header[3] != format ? 2ull : 1ull);
    u8 *stream = (u8 *)(header + WORDS);
    for (u64 index = first; index < spare_nbytes; index += stride) stream[index] = spare[index];
}
