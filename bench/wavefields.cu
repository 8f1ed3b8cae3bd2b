// Wavefields to compress: an acoustic and an elastic wave in three dimensions, eighth order in space, with a sponge on
// five faces. Axes are z, y, x with x the fastest. Outside of the grid all fields are zero; the elastic kernels leave
// the outer four points of every axis zero too.

constexpr int RADIUS = 4;
constexpr int SPONGE = 24;
__device__ constexpr float C[5] = {-205.0f / 72, 8.0f / 5, -1.0f / 5, 8.0f / 315, -1.0f / 560};
__device__ constexpr float S[4] = {1225.0f / 1024, -245.0f / 3072, 49.0f / 5120, -5.0f / 7168};

__device__ inline float absorbed(int at, int n, bool open) {
    const int far = n - 1 - at, near = open ? n : at, d = far < near ? far : near;
    if (d >= SPONGE) return 1.0f;
    const float depth = 0.015f * (SPONGE - d);
    return expf(-depth * depth);
}

__device__ inline float damping(int z, int y, int x, int n) {
    return absorbed(z, n, true) * absorbed(y, n, false) * absorbed(x, n, false);
}

// Metres a second: undulating layers, faster with depth, that vary a little sideways, and an ellipsoid.
__device__ inline float speed(int z, int y, int x, int n) {
    const float fx = (float)x / n, fy = (float)y / n, fz = (float)z / n;
    const float down = fz + 0.018f * (sinf(9 * fx + 1) + cosf(11 * fy) + 0.3f * sinf(23 * (fx + fy)));
    const int layer = (int)fminf(7, fmaxf(0, floorf(8 * down)));
    const float a = (fz - 0.6f) / 0.1f, b = (fy - 0.5f) / 0.2f, c = (fx - 0.45f) / 0.18f;
    if (a * a + b * b + c * c < 1) return 4480;
    return 1500 + layer * (3000.0f / 7) + 60 * sinf(12 * fx) * cosf(15 * fy);
}

extern "C" __global__ void model(float* velocity, int n) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
    if (x < n) velocity[((long long)z * n + y) * n + x] = speed(z, y, x, n);
}

// old <- 2 p - old + (velocity dt / h)^2 lap(p), damped; a thread marches along z.
extern "C" __global__ void __launch_bounds__(256)
    acoustic(const float* __restrict__ p, float* __restrict__ old, const float* __restrict__ velocity, int n, int chunk,
             float courant, long long source, float amplitude) {
    const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x >= n || y >= n) return;
    const long long plane = (long long)n * n;
    const int begin = blockIdx.z * chunk, end = min(begin + chunk, n);
    long long here = begin * plane + (long long)y * n + x;
    float column[9];
#pragma unroll
    for (int k = 1; k < 9; ++k) {
        const int z = begin + k - 5;
        column[k] = z >= 0 && z < n ? p[here + (k - 5) * plane] : 0.0f;
    }
    for (int z = begin; z < end; ++z, here += plane) {
#pragma unroll
        for (int k = 0; k < 8; ++k) column[k] = column[k + 1];
        column[8] = z + 4 < n ? p[here + 4 * plane] : 0.0f;
        float laplacian = 3 * C[0] * column[4];
#pragma unroll
        for (int k = 1; k <= RADIUS; ++k) {
            float sum = column[4 - k] + column[4 + k];
            if (x >= k) sum += p[here - k];
            if (x + k < n) sum += p[here + k];
            if (y >= k) sum += p[here - k * n];
            if (y + k < n) sum += p[here + k * n];
            laplacian += C[k] * sum;
        }
        const float g = damping(z, y, x, n), v = velocity[here] * courant;
        float next = g * (2 * column[4] - g * old[here] + v * v * laplacian);
        if (here == source) next += amplitude;
        old[here] = next;
    }
}

// The elastic wave: velocities at half steps, stresses at full ones, on staggered grids; vs = vp / sqrt(3), and
// density 1. `f` holds vz, vy, vx, szz, syy, sxx, szy, szx, syx.
#define DIFFERENCE(field, stride, forward)                                                        \
    (S[0] * (field[here + (forward) * stride] - field[here + ((forward)-1) * stride]) +           \
     S[1] * (field[here + (1 + (forward)) * stride] - field[here + ((forward)-2) * stride]) +     \
     S[2] * (field[here + (2 + (forward)) * stride] - field[here + ((forward)-3) * stride]) +     \
     S[3] * (field[here + (3 + (forward)) * stride] - field[here + ((forward)-4) * stride]))

extern "C" __global__ void velocities(float* __restrict__ f, int n, float ratio) {
    const int x = RADIUS + blockIdx.x * 32 + threadIdx.x, y = RADIUS + blockIdx.y * 8 + threadIdx.y;
    const int z = RADIUS + blockIdx.z;
    if (x >= n - RADIUS || y >= n - RADIUS) return;
    const long long plane = (long long)n * n, size = plane * n, here = z * plane + (long long)y * n + x;
    const float *szz = f + 3 * size, *syy = f + 4 * size, *sxx = f + 5 * size, *szy = f + 6 * size,
                *szx = f + 7 * size, *syx = f + 8 * size;
    const float g = damping(z, y, x, n);
    f[here] = g * (f[here] + ratio * (DIFFERENCE(szz, plane, 1) + DIFFERENCE(szy, n, 0) + DIFFERENCE(szx, 1, 0)));
    f[size + here] =
        g * (f[size + here] + ratio * (DIFFERENCE(szy, plane, 0) + DIFFERENCE(syy, n, 1) + DIFFERENCE(syx, 1, 0)));
    f[2 * size + here] =
        g * (f[2 * size + here] + ratio * (DIFFERENCE(szx, plane, 0) + DIFFERENCE(syx, n, 0) + DIFFERENCE(sxx, 1, 1)));
}

extern "C" __global__ void stresses(float* __restrict__ f, const float* __restrict__ velocity, int n, float ratio,
                                    long long source, float amplitude) {
    const int x = RADIUS + blockIdx.x * 32 + threadIdx.x, y = RADIUS + blockIdx.y * 8 + threadIdx.y;
    const int z = RADIUS + blockIdx.z;
    if (x >= n - RADIUS || y >= n - RADIUS) return;
    const long long plane = (long long)n * n, size = plane * n, here = z * plane + (long long)y * n + x;
    const float *vz = f, *vy = f + size, *vx = f + 2 * size;
    const float vp = velocity[here], p = vp * vp, mu = p / 3, lambda = p - 2 * mu, g = damping(z, y, x, n);
    const float zz = DIFFERENCE(vz, plane, 0), yy = DIFFERENCE(vy, n, 0), xx = DIFFERENCE(vx, 1, 0);
    const float all = lambda * (zz + yy + xx), push = here == source ? amplitude : 0;
    f[3 * size + here] = g * (f[3 * size + here] + ratio * (all + 2 * mu * zz)) + push;
    f[4 * size + here] = g * (f[4 * size + here] + ratio * (all + 2 * mu * yy)) + push;
    f[5 * size + here] = g * (f[5 * size + here] + ratio * (all + 2 * mu * xx)) + push;
    f[6 * size + here] =
        g * (f[6 * size + here] + ratio * mu * (DIFFERENCE(vz, n, 1) + DIFFERENCE(vy, plane, 1)));
    f[7 * size + here] =
        g * (f[7 * size + here] + ratio * mu * (DIFFERENCE(vz, 1, 1) + DIFFERENCE(vx, plane, 1)));
    f[8 * size + here] = g * (f[8 * size + here] + ratio * mu * (DIFFERENCE(vy, 1, 1) + DIFFERENCE(vx, n, 1)));
}
