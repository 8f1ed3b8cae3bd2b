// One step of the 3-D acoustic wave equation, second order in time and eighth in space, in place, for benchmarks:
//
//     old <- 2 p - old + v lap(p)        v = (velocity dt / h)^2
//
// after which `old` is the newer field. Axes are z, y, x with x the fastest; the outer four points of every axis are
// never written. A thread owns four neighbours in x (one 16-byte word) and marches along z with the nine planes it
// needs in registers; neighbours in x and y come from the caches. nx is a multiple of 4.

#ifndef BLOCK_X
#define BLOCK_X 16  // threads, so 64 points
#endif
#ifndef BLOCK_Y
#define BLOCK_Y 16
#endif
#ifndef BLOCKS  // on a multiprocessor, at least
#define BLOCKS 2
#endif

constexpr int RADIUS = 4;

__device__ constexpr float C0 = 3 * -205.0f / 72;  // of all three axes
__device__ constexpr float C[RADIUS + 1] = {0.0f, 8.0f / 5, -1.0f / 5, 8.0f / 315, -1.0f / 560};

__device__ inline float4 operator+(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ inline float4 operator*(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

__device__ inline float4 operator*(float a, float4 b) { return make_float4(a * b.x, a * b.y, a * b.z, a * b.w); }

__device__ inline float4 fma4(float4 a, float4 b, float4 c) {
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}

__device__ inline float4 fma4(float a, float4 b, float4 c) { return fma4(make_float4(a, a, a, a), b, c); }

// Sum the two neighbours at distance k in x of each of a word's four points.
template <int k>
__device__ inline float4 beside(const float (&row)[12]) {
    return make_float4(row[4 - k] + row[4 + k], row[5 - k] + row[5 + k], row[6 - k] + row[6 + k],
                       row[7 - k] + row[7 + k]);
}

template <int k>
__device__ inline float4 around(const float4* __restrict__ p, int here, int pitch, const float (&row)[12],
                                const float4 (&planes)[2 * RADIUS + 1]) {
    const float4 in_y = __ldg(p + here - k * pitch) + __ldg(p + here + k * pitch);
    return beside<k>(row) + in_y + (planes[RADIUS - k] + planes[RADIUS + k]);
}

template <bool IMAGING, bool DAMPED = false>
__device__ inline void march(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ v,
                             const float4* __restrict__ other, float4* __restrict__ image, int nz, int ny, int words,
                             int chunk, int source, float amplitude, const float* __restrict__ factors = nullptr) {
    const int x = 1 + blockIdx.x * BLOCK_X + threadIdx.x;
    const int y = RADIUS + blockIdx.y * BLOCK_Y + threadIdx.y;
    if (x >= words - 1 || y >= ny - RADIUS) return;
    const int begin = RADIUS + blockIdx.z * chunk;
    const int end = min(begin + chunk, nz - RADIUS);
    if (begin >= end) return;
    const int plane = ny * words;
    int here = begin * plane + y * words + x;

    float4 planes[2 * RADIUS + 1];  // z - 4 ... z + 4
#pragma unroll
    for (int k = 1; k <= 2 * RADIUS; ++k) planes[k] = __ldg(p + here + (k - RADIUS - 1) * plane);

    for (int z = begin; z < end; ++z, here += plane) {
#pragma unroll
        for (int k = 0; k < 2 * RADIUS; ++k) planes[k] = planes[k + 1];
        planes[2 * RADIUS] = __ldg(p + here + RADIUS * plane);
        // Used once: they need not stay in a cache.
        const float4 before = __ldcs(old + here);
        const float4 speed = __ldcs(v + here);

        const float4 left = __ldg(p + here - 1), right = __ldg(p + here + 1), centre = planes[RADIUS];
        const float row[12] = {left.x,   left.y,   left.z,  left.w,  centre.x, centre.y,
                               centre.z, centre.w, right.x, right.y, right.z,  right.w};
        float4 laplacian = C0 * centre;
        laplacian = fma4(C[1], around<1>(p, here, words, row, planes), laplacian);
        laplacian = fma4(C[2], around<2>(p, here, words, row, planes), laplacian);
        laplacian = fma4(C[3], around<3>(p, here, words, row, planes), laplacian);
        laplacian = fma4(C[4], around<4>(p, here, words, row, planes), laplacian);

        float4 after = fma4(speed, laplacian, fma4(2.0f, centre, -1.0f * before));
        if (DAMPED) {
            const float across = factors[z] * factors[nz + y];
            const float4 fade = across * __ldg(reinterpret_cast<const float4*>(factors + nz + ny) + x);
            if (fade.x != 1 || fade.y != 1 || fade.z != 1 || fade.w != 1) {
                after = fade * fma4(speed, laplacian, fma4(2.0f, centre, -1.0f * (fade * before)));
            }
        }
        if (here == source) after.x += amplitude;
        __stcs(old + here, after);
        if (IMAGING) __stcs(image + here, fma4(__ldcs(other + here), centre, __ldcs(image + here)));
    }
}

// Advance a pair of fields by one step; `source` is the word whose first point gets `amplitude`.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    advance(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ v, int nz, int ny,
            int words, int chunk, int source, float amplitude) {
    march<false>(p, old, v, nullptr, nullptr, nz, ny, words, chunk, source, amplitude);
}

// Advance the adjoint pair likewise, and add the product of the forward field `other` and the adjoint one to the image.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    advance_and_image(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ v,
                      const float4* __restrict__ other, float4* __restrict__ image, int nz, int ny, int words,
                      int chunk, int source, float amplitude) {
    march<true>(p, old, v, other, image, nz, ny, words, chunk, source, amplitude);
}

// Advance a pair of fields between damping layers: they fade by the factors of their plane, row and point, one after the
// other in an array.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    advance_damped(const float4* __restrict__ p, float4* __restrict__ old, const float4* __restrict__ v, int nz, int ny,
                   int words, int chunk, const float* __restrict__ factors) {
    march<false, true>(p, old, v, nullptr, nullptr, nz, ny, words, chunk, -1, 0, factors);
}
