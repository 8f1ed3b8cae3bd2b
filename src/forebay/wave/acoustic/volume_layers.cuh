// What absorbing layers change in three dimensions: the twin of cpu_layers.py; layers.py says what is computed.
//
// Where a thread marches along a layer's axis, the memory of the layer goes along with it and is read and written once,
// in the pass of the stencil (`Layer`). In layers along rows a warp has whole rows of the layer, and its threads tell
// each other what they need (`RowLayer`). Where layers of planes and of rows meet, those of rows take their change from
// the older field before the step.

// A layer on one side of an axis: 0 for planes, 1 for rows, 2 for words. Places and counts are in those.
struct Side {
    int axis, start, count, lead, trail;
    u32 memory, size;  // where its memory of fluxes begins, and how long it is: that of curvatures follows
    u32 coefficients;  // where a, b, and both for the half points begin, in numbers
};

__device__ inline Side side_of(const int* __restrict__ table, int number) {
    const int* at = table + 8 * number;
    return {__ldg(at),
            __ldg(at + 1),
            __ldg(at + 2),
            __ldg(at + 3),
            __ldg(at + 4),
            static_cast<u32>(__ldg(at + 5)),
            static_cast<u32>(__ldg(at + 6)),
            static_cast<u32>(__ldg(at + 7))};
}

enum Kind {
    NONE,
    FORWARD,
    BACK,  // the transpose
};

// The fluxes of both memories around a point in a step back. With m and n the stretched memories of curvatures and
// fluxes, r_i = n_i + m_{i-1} - m_i, and the change is sum_j f_j (r_{i+1-j} - r_{i+j}).
struct Returned {
    float4 r[2 * RADIUS];  // the last one the newest
    float4 before;         // m of the point before that

    __device__ void push(float4 newest) {
#pragma unroll
        for (int j = 0; j < 2 * RADIUS - 1; ++j) r[j] = r[j + 1];
        r[2 * RADIUS - 1] = newest;
    }

    __device__ float4 change() const {
        float4 total = times(F.c[1], minus(r[RADIUS - 1], r[RADIUS]));
#pragma unroll
        for (int j = 2; j <= RADIUS; ++j) total = fused(F.c[j], minus(r[RADIUS - j], r[RADIUS - 1 + j]), total);
        return total;
    }
};

// A line through a layer, along its axis.
template <Kind KIND>
struct Layer {
    float4 *psi, *zeta;  // of the layer's first point
    i64 stride;
    const float* ab;
    int count;
    bool live;
    float4 flux;  // stretched, into the point: of a step forward
    Returned returned;

    // The points whose memory of fluxes and of curvatures a step needs at point k.
    __device__ int of_flux(int k) const { return KIND == FORWARD ? (k + 1 < count ? k + 1 : 0) : k + RADIUS; }
    __device__ int of_curve(int k) const { return KIND == FORWARD ? k : k + RADIUS; }
    __device__ bool remembers(int k) const { return of_curve(k) >= 0 && of_curve(k) < count; }

    // Tell what a point of a step forward changes, whose curvature is known, and remember.
    __device__ float4 forward(int k, const float4 (&planes)[QUEUE], float4 curve, float4 ahead, float4 bent) {
        if (k < 0 || k >= count) return {};
        const int next = of_flux(k);  // of the last point 0, whose coefficients are 0
        float4 flow = {};
#pragma unroll
        for (int j = 1; j <= RADIUS; ++j) flow = fused(F.c[j], minus(planes[RADIUS + j], planes[RADIUS + 1 - j]), flow);
        const float4 later = fused(__ldg(ab + 2 * count + next), flow, times(__ldg(ab + 3 * count + next), ahead));
        const float4 shift = minus(later, flux);
        const float4 curved = fused(__ldg(ab + k), plus(curve, shift), times(__ldg(ab + count + k), bent));
        flux = later;
        if (live && next) __stcs(psi + next * stride, later);
        if (live) __stcs(zeta + k * stride, curved);
        return plus(shift, curved);
    }

    // Take what a point i of a step back remembers further, with the field there and before, for the points around it.
    __device__ void push(int i, float4 here, float4 last, float4 flux_of, float4 bent) {
        float4 m = {}, r = returned.before;
        if (i >= 0 && i < count) {
            const float4 curved = fused(__ldg(ab + count + i), bent, here);
            m = times(__ldg(ab + i), curved);
            r = minus(r, m);
            const float4 jump = minus(plus(last, returned.before), plus(here, m));
            const float4 later = fused(__ldg(ab + 3 * count + i), flux_of, jump);
            if (live) __stcs(zeta + i * stride, curved);
            if (live && i) __stcs(psi + i * stride, later);
            if (i) r = fused(__ldg(ab + 2 * count + i), later, r);
        }
        returned.push(r);
        returned.before = m;
    }
};

// The line of a layer across rows that leads through a place of its other axis and a word.
template <Kind KIND>
__device__ inline Layer<KIND> layer_of(const Side& side, float4* memory, const float* coefficients, int rows, int words,
                                       int other, int word, bool live) {
    const i64 stride = side.axis == 0 ? static_cast<i64>(rows) * words : words;
    const i64 across = side.axis == 0 ? words : static_cast<i64>(side.count) * words;
    float4* psi = memory + side.memory + other * across + word;
    return {psi, psi + side.size, stride, coefficients + side.coefficients, side.count, live, {}, {}};
}

// The fluxes half a point before each of a word's points.
__device__ inline float4 flow_of(const float (&row)[12]) {
    float flow[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        flow[i] = 0;
#pragma unroll
        for (int j = 1; j <= RADIUS; ++j) flow[i] = fmaf(F.c[j], row[3 + i + j] - row[4 + i - j], flow[i]);
    }
    return make_float4(flow[0], flow[1], flow[2], flow[3]);
}

// What the r of a word and of those beside it change in a step back.
__device__ inline float4 returned_of(const float (&row)[12]) {
    float total[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        total[i] = F.c[1] * (row[4 + i] - row[5 + i]);
#pragma unroll
        for (int j = 2; j <= RADIUS; ++j) total[i] = fmaf(F.c[j], row[5 + i - j] - row[4 + i + j], total[i]);
    }
    return make_float4(total[0], total[1], total[2], total[3]);
}

// A word of a layer along rows, whose neighbours are those of the threads beside this one.
template <Kind KIND>
struct RowLayer {
    float4 *psi, *zeta;  // where the march would begin at 0
    i64 stride;          // from place to place of the march
    float4 a, b, half_a, half_b;
    int k, count;            // its number among the words of the layer
    bool inside;             // whether the word is of the layer
    bool first, last, near;  // whether the layer changes nothing before it and after it, and begins at or before it

    // Tell what a step forward changes, and remember.
    __device__ float4 forward(int m, const float (&row)[12], float4 curve, float4 flux, float4 bent) {
        float4 later = {};
        if (inside) later = fused(half_a, flow_of(row), times(half_b, flux));
        const float next = __shfl_down_sync(0xffffffffu, later.x, 1, EDGE);
        if (!inside) return {};
        const float4 shift = minus(make_float4(later.y, later.z, later.w, k + 1 < count ? next : 0), later);
        const float4 curved = fused(a, plus(curve, shift), times(b, bent));
        __stcs(psi + m * stride, later);
        __stcs(zeta + m * stride, curved);
        return plus(shift, curved);
    }

    // Do so in a step back.
    __device__ float4 back(int m, float4 here, float4 flux, float4 bent) {
        float4 turned = {}, curved = {};
        if (inside) {
            curved = fused(b, bent, here);
            turned = times(a, curved);
        }
        const float4 stretched = inside ? plus(here, turned) : float4{};
        const float stretched_before = __shfl_up_sync(0xffffffffu, stretched.w, 1, EDGE);
        const float turned_before = __shfl_up_sync(0xffffffffu, turned.w, 1, EDGE);
        float4 r = minus(make_float4(near ? turned_before : 0, turned.x, turned.y, turned.z), turned);
        if (inside) {
            const float4 jump = make_float4((near ? stretched_before : 0) - stretched.x, stretched.x - stretched.y,
                                            stretched.y - stretched.z, stretched.z - stretched.w);
            const float4 later = fused(half_b, flux, jump);
            r = fused(half_a, later, r);
            __stcs(psi + m * stride, later);
            __stcs(zeta + m * stride, curved);
        }
        float row[12] = {0, 0, 0, 0, r.x, r.y, r.z, r.w, 0, 0, 0, 0};
        row[1] = __shfl_up_sync(0xffffffffu, r.y, 1, EDGE);
        row[2] = __shfl_up_sync(0xffffffffu, r.z, 1, EDGE);
        row[3] = __shfl_up_sync(0xffffffffu, r.w, 1, EDGE);
        row[8] = __shfl_down_sync(0xffffffffu, r.x, 1, EDGE);
        row[9] = __shfl_down_sync(0xffffffffu, r.y, 1, EDGE);
        row[10] = __shfl_down_sync(0xffffffffu, r.z, 1, EDGE);
        row[11] = __shfl_down_sync(0xffffffffu, r.w, 1, EDGE);
        if (first) row[1] = row[2] = row[3] = 0;
        if (last) {
            row[8] = k + 1 == count ? turned.w : 0;
            row[9] = row[10] = row[11] = 0;
        }
        return returned_of(row);
    }
};

template <Kind KIND>
__device__ inline RowLayer<KIND> row_layer_of(const Side& side, float4* memory, const float* coefficients, int apart,
                                              int row, int word, bool live) {
    const int k = word - side.start, count = side.count;
    const float* ab = coefficients + side.coefficients;
    const bool inside = live && k >= 0 && k < count;
    float4* psi = memory + side.memory + static_cast<i64>(row) * count + k;
    RowLayer<KIND> layer = {psi, psi + side.size, static_cast<i64>(apart) * count, {}, {}, {}, {}, k, count, inside};
    if (inside) {
        layer.a = word_of(ab, k);
        layer.b = word_of(ab + 4 * count, k);
        layer.half_a = word_of(ab + 8 * count, k);
        layer.half_b = word_of(ab + 12 * count, k);
    }
    layer.first = k <= -side.lead;
    layer.last = k + 1 >= count + side.trail;
    layer.near = k > 0 && k <= count;
    return layer;
}

// Where changes go: from the older field, times the squared velocity; and to a total, if any, times a record.
struct Target {
    float4* old;
    const float4 *squared, *record;
    float4* total;
    float factor;

    struct Loaded {
        float4 before, speed, known, sum;
    };

    __device__ Loaded load(i64 at) const {
        return {old[at], __ldg(squared + at), total ? __ldg(record + at) : float4{}, total ? total[at] : float4{}};
    }

    __device__ void add(i64 at, const Loaded& loaded, float4 change) const {
        old[at] = fused(times(-1.0f, loaded.speed), change, loaded.before);
        if (total) total[at] = fused(times(factor, loaded.known), change, loaded.sum);
    }
};

// A line across rows by itself. Words are loaded in batches, so that a thread waits for several of them at a time.
template <Kind KIND>
__device__ inline void change_across(const float4* __restrict__ p, const Target& target, Layer<KIND> line,
                                     const Side& side, i64 first, i64 stride, float w) {
    constexpr int BATCH = KIND == FORWARD ? 10 : 7, LATE = KIND == FORWARD ? 0 : RADIUS;  // a change is later than its cause
    const int changed = KIND == FORWARD ? 0 : -side.lead, end = side.count + (KIND == FORWARD ? 0 : side.trail);
    float4 planes[QUEUE], last = {};
    if constexpr (KIND == FORWARD) {
#pragma unroll
        for (int j = 1; j < QUEUE; ++j) planes[j] = __ldg(p + first + (j - 1 - RADIUS) * stride);
    }
    for (int begin = 0; begin < side.count + 2 * LATE; begin += BATCH) {
        float4 field[BATCH], flux[BATCH], bent[BATCH];
        Target::Loaded loaded[BATCH];
#pragma unroll
        for (int n = 0; n < BATCH; ++n) {
            const int i = min(begin + n, side.count - 1), k = min(max(begin + n - LATE, changed), end - 1);
            field[n] = __ldg(p + first + (KIND == FORWARD ? i + RADIUS : i) * stride);
            flux[n] = line.psi[(KIND == FORWARD ? line.of_flux(i) : i) * line.stride];
            bent[n] = line.zeta[i * line.stride];
            loaded[n] = target.load(first + k * stride);
        }
#pragma unroll
        for (int n = 0; n < BATCH; ++n) {
            const int i = begin + n, k = i - LATE;
            float4 change;
            if constexpr (KIND == FORWARD) {
#pragma unroll
                for (int j = 0; j < QUEUE - 1; ++j) planes[j] = planes[j + 1];
                planes[QUEUE - 1] = field[n];
                float4 curve = times(S.c[0], planes[RADIUS]);
#pragma unroll
                for (int j = 1; j <= RADIUS; ++j) {
                    curve = fused(S.c[j], plus(planes[RADIUS - j], planes[RADIUS + j]), curve);
                }
                change = line.forward(i, planes, curve, flux[n], bent[n]);
            } else {
                const float4 here = i < side.count ? field[n] : float4{};
                line.push(i, here, last, flux[n], bent[n]);
                last = here;
                change = line.returned.change();
            }
            if (k >= changed && k < end) target.add(first + k * stride, loaded[n], times(w, change));
        }
    }
}

// A part of a layer of rows that is computed by itself: from which thread block on, and its planes.
struct Part {
    int first, side, plane, planes;
};

__device__ inline Part part_of(const int* __restrict__ table, int parts, int block) {
    int number = parts - 1;
    while (number && block < __ldg(table + 4 * number)) --number;
    const int* at = table + 4 * number;
    return {__ldg(at), __ldg(at + 1), __ldg(at + 2), __ldg(at + 3)};
}

// Extents of a field, and the words of its rows that are computed.
struct Computed {
    int rows, words, first_word, end;
};

// Do what a thread block has of the parts, which are of layers of rows: a thread has a line of words.
template <Kind KIND>
__device__ inline void change_parts(const float4* __restrict__ p, const Target& target, float4* __restrict__ memory,
                                    const float* __restrict__ coefficients, const int* __restrict__ sides,
                                    const int* __restrict__ table, int parts, const Computed& field, const Weights& w) {
    const Part part = part_of(table, parts, blockIdx.x);
    const Side side = side_of(sides, part.side);
    const int columns = (field.end + 3) / 4 - field.first_word;
    const int number = (blockIdx.x - part.first) * static_cast<int>(blockDim.x) + threadIdx.x;
    const int line = number / columns, word = field.first_word + number % columns;
    if (line >= part.planes) return;
    const i64 stride = field.words, across = static_cast<i64>(field.rows) * field.words;
    const int plane = part.plane + line;
    const Layer<KIND> layer = layer_of<KIND>(side, memory, coefficients, field.rows, field.words, plane, word, true);
    change_across<KIND>(p, target, layer, side, side.start * stride + plane * across + word, stride, w.y);
}
