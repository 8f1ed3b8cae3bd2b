// What the acoustic kernels share: words of four points, the weights of stencils, and the part of a field that is seen.

#include "../sweeps/float4.cuh"

typedef unsigned int u32;
typedef long long i64;

constexpr int QUEUE = 2 * RADIUS + 1;

struct Stencil {
    float c[RADIUS + 1];
};

__device__ constexpr double factorial(int n) { return n < 2 ? 1.0 : n * factorial(n - 1); }

// The weights of stencil.py, rounded as they are there.
__device__ constexpr Stencil second_derivative() {
    Stencil s = {};
    double sum = 0;
    for (int k = 1; k <= RADIUS; ++k) {
        const double over = factorial(RADIUS) * factorial(RADIUS) * (k % 2 ? 2 : -2);
        const double weight = over / (k * k * factorial(RADIUS - k) * factorial(RADIUS + k));
        s.c[k] = static_cast<float>(weight);
        sum += weight;
    }
    s.c[0] = static_cast<float>(-2 * sum);
    return s;
}

__device__ constexpr Stencil S = second_derivative();

// The weights of fluxes, whose differences are the second derivative.
__device__ constexpr Stencil fluxes() {
    Stencil s = {};
    for (int j = RADIUS; j > 0; --j) {
        double sum = 0;
        for (int k = j; k <= RADIUS; ++k) {
            const double over = factorial(RADIUS) * factorial(RADIUS) * (k % 2 ? 2 : -2);
            sum += over / (k * k * factorial(RADIUS - k) * factorial(RADIUS + k));
        }
        s.c[j] = static_cast<float>(sum);
    }
    return s;
}

__device__ constexpr Stencil F = fluxes();

// Read a word of numbers of which there is one for each point of a row.
__device__ inline float4 word_of(const float* __restrict__ numbers, int word) {
    return __ldg(reinterpret_cast<const float4*>(numbers) + word);
}

// One over the squared spacing of each axis.
struct Weights {
    float z, y, x;
};

// The part of a field that records and images cover: where it begins, and its extents, in words along rows.
struct Window {
    int z, y, word, planes, rows, words;

    __device__ bool covers(int row, int column) const {
        return row >= y && row < y + rows && column >= word && column < word + words;
    }

    __device__ bool reaches(int plane) const { return plane >= z && plane < z + planes; }

    __device__ i64 place(int plane, int row, int column) const {
        return (static_cast<i64>(plane - z) * rows + (row - y)) * words + (column - word);
    }
};

// Sum the two neighbours at distance k in x of each of a word's four points.
template <int k>
__device__ inline float4 along_row(const float (&row)[12]) {
    return make_float4(row[4 - k] + row[4 + k], row[5 - k] + row[5 + k], row[6 - k] + row[6 + k],
                       row[7 - k] + row[7 + k]);
}
