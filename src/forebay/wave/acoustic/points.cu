// What both numbers of axes share: the points that send and hear, and the part of a field that records keep.

#ifndef AXES
#define AXES 3
#endif
#ifndef RADIUS
#define RADIUS 4
#endif

#include "words.cuh"

// The shot that a thread block of this number works for; where it is always 0, nothing is computed of it.
__device__ inline i64 shot_of(u32 number) { return AXES == 2 ? number : 0; }

// Copy the part of a field that a window covers: a thread a word, a row of thread blocks a plane.
extern "C" __global__ void crop(const float4* __restrict__ p, float4* __restrict__ out, int planes, int rows,
                                int words, int first_plane, int first_row, int first_word, int seen_planes,
                                int seen_rows, int seen_words) {
    const i64 shot = shot_of(blockIdx.z);
    p += shot * planes * words, out += shot * seen_planes * seen_words;
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= seen_rows * seen_words) return;
    const int row = first_row + place / seen_words, word = first_word + place % seen_words;
    for (int plane = blockIdx.y; plane < seen_planes; plane += gridDim.y) {
        const i64 from = (static_cast<i64>(first_plane + plane) * rows + row) * words + word;
        __stcs(out + static_cast<i64>(plane) * seen_rows * seen_words + place, __ldcs(p + from));
    }
}

// Add the products of a record with a field to an image and those with itself to the light, times a factor: a thread a
// word, a row of thread blocks a plane.
extern "C" __global__ void correlate(const float4* __restrict__ record, const float4* __restrict__ p,
                                     float4* __restrict__ image, float4* __restrict__ light, float factor, int planes,
                                     int rows, int words, int first_plane, int first_row, int first_word,
                                     int seen_planes, int seen_rows, int seen_words) {
    const i64 shot = shot_of(blockIdx.z), covered = static_cast<i64>(seen_rows) * seen_words;
    p += shot * planes * words, record += shot * seen_planes * seen_words;
    image += shot * seen_planes * seen_words, light += shot * seen_planes * seen_words;
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= covered) return;
    const int row = first_row + place / seen_words, word = first_word + place % seen_words;
    for (int plane = blockIdx.y; plane < seen_planes; plane += gridDim.y) {
        const i64 at = plane * covered + place;
        const float4 seen = __ldcs(record + at), scaled = times(factor, seen);
        const float4 other = __ldcs(p + (static_cast<i64>(first_plane + plane) * rows + row) * words + word);
        __stcs(image + at, fused(scaled, other, __ldcs(image + at)));
        __stcs(light + at, fused(scaled, seen, __ldcs(light + at)));
    }
}

// Send values into a field and hear another one, side by side: the first `sending` thread blocks have a thread for each
// cell that is touched, the others a warp for each point that hears. What is sent also goes into the mirror of a free
// surface and, where there is one, into the image that the step has made of the field before. Where there are `places`,
// what is seen at a cell is at one of them, not where the cell is in the image.
extern "C" __global__ void points(float* __restrict__ field, const u32* __restrict__ touched,
                                  const u32* __restrict__ shares, const u32* __restrict__ sharers,
                                  const float* __restrict__ share_weights, const float* __restrict__ values,
                                  const float* __restrict__ factors, int cells, int sending, int mirrored,
                                  const float* __restrict__ heard, const u32* __restrict__ starts,
                                  const u32* __restrict__ near, const float* __restrict__ weights,
                                  float* __restrict__ out, int count, const float* __restrict__ seen,
                                  const u32* __restrict__ places, float* __restrict__ image, float factor, int planes, int rows, int words,
                                  int first_plane, int first_row, int first_word, int seen_planes, int seen_rows,
                                  int seen_words) {
    if (static_cast<int>(blockIdx.x) < sending) {
        const int number = blockIdx.x * blockDim.x + threadIdx.x;
        if (number >= cells) return;
        float total = 0;
        for (u32 k = shares[number]; k < shares[number + 1]; ++k) {
            total = fmaf(share_weights[k], values[sharers[k]], total);
        }
        const u32 cell = touched[number];
        const float before = field[cell], after = fmaf(factors[number], total, before);
        field[cell] = after;
        const u32 plane = static_cast<u32>(rows) * words * 4;
        const u32 planes_before = cell / plane, shot = AXES == 2 ? planes_before / planes : 0;
        const int z = planes_before - shot * planes;
        if (z <= mirrored && z > RADIUS) field[cell - 2 * (z - RADIUS) * plane] = -after;
        if (image) {
            const Window window = {first_plane, first_row, first_word, seen_planes, seen_rows, seen_words};
            const int row = cell % plane / (4 * words), word = cell / 4 % words;
            if (window.covers(row, word) && window.reaches(z)) {
                const i64 at = 4 * (shot_of(shot) * seen_planes * seen_words + window.place(z, row, word)) + cell % 4;
                image[at] = fmaf(factor * seen[places ? places[number] : at], after - before, image[at]);
            }
        }
        return;
    }
    const int lane = threadIdx.x % LANES;
    const int point = ((blockIdx.x - sending) * blockDim.x + threadIdx.x) / LANES;
    if (point >= count) return;
    float total = 0;
    for (u32 k = starts[point] + lane; k < starts[point + 1]; k += LANES) total = fmaf(weights[k], heard[near[k]], total);
#pragma unroll
    for (int apart = LANES / 2; apart; apart /= 2) total += __shfl_xor_sync(0xffffffffu, total, apart);
    if (lane == 0) out[point] = total;
}
