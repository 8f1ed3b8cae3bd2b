// What an elastic shot does between its steps on a GPU: sending, hearing, and what records and images are made of.
//
// Words have four points here, as in acoustic.cu.

#define WIDE 4
#include "elastic.cuh"

constexpr int LANES = 32;

__device__ inline const float* chosen(const float* first, const float* second, const float* third, u32 which) {
    return which == 0 ? first : which == 1 ? second : third;
}

// Send values into up to three fields, and the memory of layers, and hear up to three others, side by side: the first `sending` thread blocks
// have a thread for each cell that is touched, the others a warp for each point that hears, either one field (apart) or
// the sum of as many as are given.
extern "C" __global__ void points(float* __restrict__ first, float* __restrict__ second, float* __restrict__ third,
                                  float* __restrict__ fourth, const u32* __restrict__ which, const u32* __restrict__ touched,
                                  const u32* __restrict__ shares, const u32* __restrict__ sharers,
                                  const float* __restrict__ share_weights, const float* __restrict__ values,
                                  const float* __restrict__ factors, int cells, int sending,
                                  const float* __restrict__ heard_first, const float* __restrict__ heard_second,
                                  const float* __restrict__ heard_third, const u32* __restrict__ hearing,
                                  const u32* __restrict__ starts, const u32* __restrict__ near,
                                  const float* __restrict__ weights, const u32* __restrict__ columns,
                                  float* __restrict__ out, int count, int apart, float scale) {
    if (static_cast<int>(blockIdx.x) < sending) {
        const int number = blockIdx.x * blockDim.x + threadIdx.x;
        if (number >= cells) return;
        float total = 0;
        for (u32 k = shares[number]; k < shares[number + 1]; ++k) {
            total = fmaf(share_weights[k], values[sharers[k]], total);
        }
        const float* into = which[number] == 3 ? fourth : chosen(first, second, third, which[number]);
        float* at = const_cast<float*>(into) + touched[number];
        *at = fmaf(factors[number], total, *at);
        return;
    }
    const int lane = threadIdx.x % LANES;
    const int point = ((blockIdx.x - sending) * blockDim.x + threadIdx.x) / LANES;
    if (point >= count) return;
    const float* one = apart ? chosen(heard_first, heard_second, heard_third, hearing[point]) : heard_first;
    float total = 0;
    for (u32 k = starts[point] + lane; k < starts[point + 1]; k += LANES) {
        const u32 cell = near[k];
        float value = one[cell];
        if (!apart) {
            value += heard_second[cell];
            if (heard_third) value += heard_third[cell];
        }
        total = fmaf(weights[k], value, total);
    }
#pragma unroll
    for (int far = LANES / 2; far; far /= 2) total += __shfl_xor_sync(0xffffffffu, total, far);
    if (lane == 0) out[columns[point]] = scale * total;
}

// Copy a part of a field: a thread a word, a row of thread blocks a plane.
extern "C" __global__ void crop(const Word* __restrict__ field, Word* __restrict__ out, int rows, int words,
                                int first_plane, int first_row, int first_word, int seen_planes, int seen_rows,
                                int seen_words) {
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= seen_rows * seen_words) return;
    const int row = first_row + place / seen_words, word = first_word + place % seen_words;
    for (int plane = blockIdx.y; plane < seen_planes; plane += gridDim.y) {
        const i64 from = (static_cast<i64>(first_plane + plane) * rows + row) * words + word;
        put(out + static_cast<i64>(plane) * seen_rows * seen_words + place, once(field + from));
    }
}

// Fill `out` with the divergence of velocities in a part of the field.
extern "C" __global__ void divergence(Word* __restrict__ out, const Word* __restrict__ v_z,
                                      const Word* __restrict__ v_y, const Word* __restrict__ v_x,
                                      const float* __restrict__ back, int closed, float w_z, float w_y, float w_x,
                                      int rows, int words, int first_plane, int first_row, int first_word,
                                      int seen_planes, int seen_rows, int seen_words) {
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= seen_rows * seen_words) return;
    const int row = first_row + place / seen_words, word = first_word + place % seen_words;
    const Slopes w = {w_z, w_y, w_x, nullptr, back, closed};
    for (int plane = blockIdx.y; plane < seen_planes; plane += gridDim.y) {
        const int z = first_plane + plane, across = rows * words;
        const i64 here = static_cast<i64>(z) * across + row * words + word;
        Queue<0> deep;
        deep.fill(v_z + here, across);
        deep.push(Queue<0>::last(v_z + here, across));
        Word total = deep.slope(w.of(back, z), w.z);
        if constexpr (AXES == 3) {
            const Word aside = along_y<0>(v_y + here, words, shared(v_y + here));
            total = each([&](int i) { return total.at[i] + w.y * aside.at[i]; });
        }
        const Word along = along_x<0>(v_x + here, shared(v_x + here));
        put(out + static_cast<i64>(plane) * seen_rows * seen_words + place,
            each([&](int i) { return total.at[i] + w.x * along.at[i]; }));
    }
}

__device__ inline float last_before(const Word* at) { return reinterpret_cast<const float*>(at)[-1]; }

__device__ inline Word earlier(const Word& word, float before) {
    return each([&](int i) { return i ? word.at[i ? i - 1 : 0] : before; });
}

// Add the products of the velocities of two waves to an image, and the squares of the first to its light, each as the
// mean of the points before and after. Those of the first wave, p, were cropped from one plane, row or word earlier on.
extern "C" __global__ void meet(Word* __restrict__ image, Word* __restrict__ light, const Word* __restrict__ p_z,
                                const Word* __restrict__ p_y, const Word* __restrict__ p_x,
                                const Word* __restrict__ q_z, const Word* __restrict__ q_y,
                                const Word* __restrict__ q_x, float factor, int rows, int words, int first_plane,
                                int first_row, int first_word, int seen_planes, int seen_rows, int seen_words) {
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= seen_rows * seen_words) return;
    const int y = place / seen_words, x = place % seen_words, across = rows * words, seen = seen_rows * seen_words;
    for (int plane = blockIdx.y; plane < seen_planes; plane += gridDim.y) {
        const i64 here = static_cast<i64>(first_plane + plane) * across + (first_row + y) * words + first_word + x;
        const i64 at = static_cast<i64>(plane) * seen + place;
        Word bright = {}, lit = {};
        const auto add = [&](const Word& p, const Word& q) {
            bright = each([&](int i) { return fmaf(p.at[i], q.at[i], bright.at[i]); });
            lit = each([&](int i) { return fmaf(p.at[i], p.at[i], lit.at[i]); });
        };
        add(shared(p_z + at), shared(q_z + here - across));
        add(shared(p_z + at + seen), shared(q_z + here));
        if constexpr (AXES == 3) {
            const i64 beside = (static_cast<i64>(plane) * (seen_rows + 1) + y) * seen_words + x;
            add(shared(p_y + beside), shared(q_y + here - words));
            add(shared(p_y + beside + seen_words), shared(q_y + here));
        }
        const Word* along = p_x + (static_cast<i64>(plane) * seen_rows + y) * (seen_words + 1) + x + 1;
        const Word p = shared(along), q = shared(q_x + here);
        add(earlier(p, last_before(along)), earlier(q, last_before(q_x + here)));
        add(p, q);
        const Word image_before = once(image + at), light_before = once(light + at);
        put(image + at, each([&](int i) { return fmaf(factor, bright.at[i], image_before.at[i]); }));
        put(light + at, each([&](int i) { return fmaf(factor, lit.at[i], light_before.at[i]); }));
    }
}
