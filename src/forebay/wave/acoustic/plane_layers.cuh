// What absorbing layers change in two dimensions: the twin of cpu_layers.py; layers.py says what is computed.
//
// A thread owns a line through a layer, along its axis: of words where rows lie across the axis, of the words of a row
// where they lie along it. What a line remembers is read and written once. Words are loaded in batches, so that
// a thread waits for several of them at a time.

constexpr int NUMBERS = 9;  // that describe a side
constexpr int BATCH = 4;

// A layer on one side of an axis: 0 for rows, 1 for words. Places and counts are in those.
struct Side {
    int axis, start, count, lead, trail;
    u32 memory, size;   // where its memory of fluxes begins, and how long it is: that of curvatures follows
    u32 changes;        // where its changes begin
    u32 coefficients;   // where a, b, and both for the half points begin, in numbers

    __device__ int extent() const { return lead + count + trail; }
};

__device__ inline Side side_of(const u32* __restrict__ table, int number) {
    const u32* at = table + number * NUMBERS;
    return {static_cast<int>(__ldg(at)),     static_cast<int>(__ldg(at + 1)), static_cast<int>(__ldg(at + 2)),
            static_cast<int>(__ldg(at + 3)), static_cast<int>(__ldg(at + 4)), __ldg(at + 5),
            __ldg(at + 6),                   __ldg(at + 7),                   __ldg(at + 8)};
}

// Where a line is: its first word in the field and in the memory, and the distance to the next.
struct Line {
    i64 field, memory, changes;
    i64 stride, memory_stride;
};

// What layers change in a column of words: one layer of each axis at most, since those of an axis do not meet.
struct Changes {
    const float4* of_word;               // in the first row, or nothing
    const float4 *of_first, *of_second;  // as if the layers of the first axis had all rows
    i64 word_stride, row;
    int low, high;  // rows between which there is no layer of the first axis
    bool near;      // whether a layer along rows reaches a word of the thread block

    __device__ Changes(const float4* changes, const u32* __restrict__ table, int sides, bool beyond, int words, int word)
        : of_word(nullptr), of_first(nullptr), of_second(nullptr), word_stride(0), row(words), low(0), high(1 << 30),
          near(false) {
        const int block = word - static_cast<int>(threadIdx.x);  // its first word
        for (int number = 0; number < sides; ++number) {
            const Side side = side_of(table, number);
            const int first = side.start - (beyond ? side.lead : 0), base = side.start - side.lead;
            const int last = side.start + side.count + (beyond ? side.trail : 0);
            const float4* at = changes + side.changes;
            if (side.axis == 0) {
                at += word - base * row;
                if (side.start <= RADIUS) {
                    low = last;
                    of_first = at;
                } else {
                    high = first;
                    of_second = at;
                }
            } else {
                near = near || (block < last && block + BLOCK_X > first);
                if (word >= first && word < last) {
                    of_word = at + word - base;
                    word_stride = side.extent();
                }
            }
        }
    }

    // Tell whether layers change something in these rows of the thread block.
    __device__ bool reach(int begin, int end) const { return near || begin < low || end > high; }

    __device__ float4 at(int z) const {
        float4 total = {};
        if (of_word) total = __ldcs(of_word + z * word_stride);
        if (z < low) total = plus(total, __ldcs(of_first + z * row));
        if (z >= high) total = plus(total, __ldcs(of_second + z * row));
        return total;
    }
};

// Find the line of a number, or nothing beyond the last one.
__device__ inline bool line_of(const Side& side, int number, int planes, int words, int end, Line& line) {
    if (side.axis == 0) {
        const i64 word = 1 + number;
        line = {static_cast<i64>(side.start) * words + word, word, word, words, words};
        return number < (end + 3) / 4 - 1;
    }
    const i64 row = RADIUS + number;
    line = {row * words + side.start, row * side.count, row * side.extent(), 1, 1};
    return number < planes - 2 * RADIUS;
}

// A line whose words are beside each other: four lines of numbers.
__device__ inline void change_across(const float4* __restrict__ p, float4* __restrict__ memory,
                                     float4* __restrict__ changes, const float* __restrict__ ab, const Side& side,
                                     const Line& line, float w) {
    const int count = side.count;
    const float *a = ab, *b = ab + count, *half_a = ab + 2 * count, *half_b = ab + 3 * count;
    const float4* field = p + line.field;
    float4 *psi = memory + side.memory + line.memory, *zeta = psi + side.size;
    float4* out = changes + side.changes + line.changes + side.lead * line.memory_stride;
    float4 planes[QUEUE], flux = {};
#pragma unroll
    for (int k = 1; k < QUEUE; ++k) planes[k] = __ldg(field + (k - 1 - RADIUS) * line.stride);
    for (int first = 0; first < count; first += BATCH) {
        float4 far[BATCH], ahead[BATCH], bent[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int k = min(first + i, count - 1), next = k + 1 < count ? k + 1 : 0;
            far[i] = __ldg(field + (k + RADIUS) * line.stride);
            ahead[i] = psi[next * line.memory_stride];
            bent[i] = zeta[k * line.memory_stride];
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int k = first + i;
            if (k >= count) break;
            const int next = k + 1 < count ? k + 1 : 0;  // whose coefficients are 0
#pragma unroll
            for (int j = 0; j < QUEUE - 1; ++j) planes[j] = planes[j + 1];
            planes[QUEUE - 1] = far[i];
            float4 lap = times(S.c[0], planes[RADIUS]), flow = {};
#pragma unroll
            for (int j = 1; j <= RADIUS; ++j) {
                lap = fused(S.c[j], plus(planes[RADIUS - j], planes[RADIUS + j]), lap);
                flow = fused(F.c[j], minus(planes[RADIUS + j], planes[RADIUS + 1 - j]), flow);
            }
            const float4 later = fused(half_a[next], flow, times(half_b[next], ahead[i]));
            const float4 shift = minus(later, flux);
            const float4 curved = fused(a[k], plus(lap, shift), times(b[k], bent[i]));
            flux = later;
            if (next) psi[next * line.memory_stride] = later;
            zeta[k * line.memory_stride] = curved;
            out[k * line.memory_stride] = times(w, plus(shift, curved));
        }
    }
}

// A line that is a part of a row. Fluxes into the points of the next word are needed before a word is done.
__device__ inline void change_along(const float4* __restrict__ p, float4* __restrict__ memory,
                                    float4* __restrict__ changes, const float* __restrict__ ab, const Side& side,
                                    const Line& line, float w) {
    const int count = side.count;
    const float *a = ab, *b = ab + 4 * count, *half_a = ab + 8 * count, *half_b = ab + 12 * count;
    const float4* field = p + line.field;
    float4 *psi = memory + side.memory + line.memory, *zeta = psi + side.size;
    float4* out = changes + side.changes + line.changes + side.lead;
    float4 left = __ldg(field - 1), centre = __ldg(field), lap = {}, flux = {};
    for (int word = 0; word <= count; ++word) {
        float4 later = {}, lap_later = {};
        if (word < count) {
            const float4 right = __ldg(field + word + 1);
            const float row[12] = {left.x,   left.y,   left.z,  left.w,  centre.x, centre.y,
                                   centre.z, centre.w, right.x, right.y, right.z,  right.w};
            float flow[4], bend[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                flow[i] = 0;
                bend[i] = S.c[0] * row[4 + i];
#pragma unroll
                for (int j = 1; j <= RADIUS; ++j) {
                    flow[i] = fmaf(F.c[j], row[3 + i + j] - row[4 + i - j], flow[i]);
                    bend[i] = fmaf(S.c[j], row[4 + i - j] + row[4 + i + j], bend[i]);
                }
            }
            lap_later = make_float4(bend[0], bend[1], bend[2], bend[3]);
            later = fused(word_of(half_a, word), make_float4(flow[0], flow[1], flow[2], flow[3]),
                          times(word_of(half_b, word), psi[word]));
            psi[word] = later;
            left = centre;
            centre = right;
        }
        if (word > 0) {
            const float4 next = make_float4(flux.y, flux.z, flux.w, later.x), shift = minus(next, flux);
            const float4 curved =
                fused(word_of(a, word - 1), plus(lap, shift), times(word_of(b, word - 1), zeta[word - 1]));
            zeta[word - 1] = curved;
            out[word - 1] = times(w, plus(shift, curved));
        }
        flux = later;
        lap = lap_later;
    }
}

// The transpose of `change_across`. What a point changes reaches as far as the stencil, so changes come that much later.
__device__ inline void change_back_across(const float4* __restrict__ q, float4* __restrict__ memory,
                                          float4* __restrict__ changes, const float* __restrict__ ab,
                                          const Side& side, const Line& line, float w) {
    const int count = side.count;
    const float *a = ab, *b = ab + count, *half_a = ab + 2 * count, *half_b = ab + 3 * count;
    const float4* field = q + line.field;
    float4 *psi = memory + side.memory + line.memory, *zeta = psi + side.size;
    float4* out = changes + side.changes + line.changes + side.lead * line.memory_stride;
    float4 m[QUEUE], n[QUEUE];  // of the points around, the last one the newest
    float4 before = {};
#pragma unroll
    for (int j = 0; j < QUEUE; ++j) m[j] = n[j] = {};
    for (int first = 0; first < count + 2 * RADIUS; first += BATCH) {
        float4 here[BATCH], flux[BATCH], bent[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int k = min(first + i, count - 1);
            here[i] = __ldg(field + k * line.stride);
            flux[i] = psi[k * line.memory_stride];
            bent[i] = zeta[k * line.memory_stride];
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int k = first + i, done = k - RADIUS;
            if (k >= count + 2 * RADIUS) break;
#pragma unroll
            for (int j = 0; j < QUEUE - 1; ++j) {
                m[j] = m[j + 1];
                n[j] = n[j + 1];
            }
            m[QUEUE - 1] = n[QUEUE - 1] = {};
            if (k < count) {
                const float4 curved = fused(b[k], bent[i], here[i]);
                zeta[k * line.memory_stride] = curved;
                m[QUEUE - 1] = times(a[k], curved);
                const float4 stretched = plus(here[i], m[QUEUE - 1]);
                if (k > 0) {
                    const float4 later = fused(half_b[k], flux[i], minus(before, stretched));
                    psi[k * line.memory_stride] = later;
                    n[QUEUE - 1] = times(half_a[k], later);
                }
                before = stretched;
            }
            if (done < -side.lead || done >= count + side.trail) continue;
            float4 total = times(S.c[0], m[RADIUS]);
#pragma unroll
            for (int j = 1; j <= RADIUS; ++j) {
                total = fused(S.c[j], plus(m[RADIUS - j], m[RADIUS + j]), total);
                total = fused(F.c[j], minus(n[RADIUS + 1 - j], n[RADIUS + j]), total);
            }
            out[done * line.memory_stride] = times(w, total);
        }
    }
}

// The transpose of `change_along`, whose changes come a word later.
__device__ inline void change_back_along(const float4* __restrict__ q, float4* __restrict__ memory,
                                         float4* __restrict__ changes, const float* __restrict__ ab,
                                         const Side& side, const Line& line, float w) {
    const int count = side.count;
    const float *a = ab, *b = ab + 4 * count, *half_a = ab + 8 * count, *half_b = ab + 12 * count;
    const float4* field = q + line.field;
    float4 *psi = memory + side.memory + line.memory, *zeta = psi + side.size;
    float4* out = changes + side.changes + line.changes + side.lead;
    float m[12] = {}, n[12] = {};  // of three words, the last one the newest
    float before = 0;
    for (int word = 0; word <= count + 1; ++word) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            m[i] = m[i + 4];
            n[i] = n[i + 4];
        }
        float4 fresh = {}, fresh_n = {};
        if (word < count) {
            const float4 here = __ldg(field + word);
            const float4 curved = fused(word_of(b, word), zeta[word], here);
            zeta[word] = curved;
            fresh = times(word_of(a, word), curved);
            const float4 stretched = plus(here, fresh);
            const float4 jump = make_float4(before - stretched.x, stretched.x - stretched.y, stretched.y - stretched.z,
                                            stretched.z - stretched.w);
            const float4 later = fused(word_of(half_b, word), psi[word], jump);
            psi[word] = later;
            fresh_n = times(word_of(half_a, word), later);
            before = stretched.w;
        }
        m[8] = fresh.x, m[9] = fresh.y, m[10] = fresh.z, m[11] = fresh.w;
        n[8] = fresh_n.x, n[9] = fresh_n.y, n[10] = fresh_n.z, n[11] = fresh_n.w;
        const int done = word - 1;
        if (done < -side.lead || done >= count + side.trail) continue;
        float total[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            total[i] = S.c[0] * m[4 + i];
#pragma unroll
            for (int j = 1; j <= RADIUS; ++j) {
                total[i] = fmaf(S.c[j], m[4 + i - j] + m[4 + i + j], total[i]);
                total[i] = fmaf(F.c[j], n[5 + i - j] - n[4 + i + j], total[i]);
            }
        }
        out[done] = times(w, make_float4(total[0], total[1], total[2], total[3]));
    }
}
