// How well an array was kept: errors, range and structural similarity; the twin of quality.py.
// REAL is float or double; WZ, WY and WX are the window's extents.

#define THREADS 256
#define LARGEST 1.7976931348623157e308
#define TX 32
#define TY 8
#define ROWS (TY + WY - 1)
#define COLUMNS (TX + WX - 1)
#define MOMENTS 5

struct Part {
    double worst, squares, least, most;
};

__device__ bool is_finite(double x) { return fabs(x) <= LARGEST; }

// Equal infinities, and NaN in both, are equal.
__device__ bool alike(double a, double b) { return a == b || (a != a && b != b); }

__device__ double larger(double a, double b) { return a > b ? a : b; }
__device__ double smaller(double a, double b) { return a < b ? a : b; }

__device__ Part none() { return {0.0, 0.0, LARGEST, -LARGEST}; }

__device__ Part joined(Part one, Part two) {
    return {larger(one.worst, two.worst), one.squares + two.squares, smaller(one.least, two.least),
            larger(one.most, two.most)};
}

// Leaves the whole thread block's part with its first thread; always in the same order.
__device__ Part over_block(Part part) {
    __shared__ Part parts[THREADS];
    parts[threadIdx.x] = part;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] = joined(parts[threadIdx.x], parts[threadIdx.x + half]);
    }
    return parts[0];
}

extern "C" __global__ void compare(const REAL *a, const REAL *b, long long count, Part *parts) {
    Part part = none();
    long long stride = (long long)gridDim.x * THREADS;
    for (long long index = (long long)blockIdx.x * THREADS + threadIdx.x; index < count; index += stride) {
        double x = a[index], y = b[index];
        if (is_finite(x)) part = joined(part, {0.0, 0.0, x, x});
        if (alike(x, y)) continue;
        double error = fabs(x - y);
        if (error != error) error = 1.0 / 0.0;
        part = joined(part, {error, error * error, LARGEST, -LARGEST});
    }
    part = over_block(part);
    if (threadIdx.x == 0) parts[blockIdx.x] = part;
}

extern "C" __global__ void compared(const Part *parts, int blocks, Part *out) {
    Part part = none();
    for (int index = threadIdx.x; index < blocks; index += THREADS) part = joined(part, parts[index]);
    part = over_block(part);
    if (threadIdx.x == 0) *out = part;
}

// A thread follows one column of windows through `planes` of them. It adds up each plane's share of the moments once,
// and keeps those of the last WZ planes.
extern "C" __global__ void similarity(const REAL *a, const REAL *b, int nz, int ny, int nx, int planes, double centre,
                                      double c1, double c2, double *sums) {
    __shared__ double tile_a[ROWS][COLUMNS], tile_b[ROWS][COLUMNS];
    __shared__ double of_block[THREADS];
    int column = threadIdx.x % TX, row = threadIdx.x / TX;
    int x0 = blockIdx.x * TX, y0 = blockIdx.y * TY, z0 = blockIdx.z * planes;
    bool inside = x0 + column <= nx - WX && y0 + row <= ny - WY;
    int last = min(z0 + planes, nz - WZ + 1) + WZ - 1;
    double ring[WZ][MOMENTS] = {}, sum = 0.0;
    for (int z = z0; z < last; ++z) {
        __syncthreads();
        for (int index = threadIdx.x; index < ROWS * COLUMNS; index += THREADS) {
            int y = y0 + index / COLUMNS, x = x0 + index % COLUMNS;
            double one = 0.0, two = 0.0;
            if (y < ny && x < nx) {
                long long where = ((long long)z * ny + y) * nx + x;
                one = a[where], two = b[where];
                bool both = is_finite(one) && is_finite(two), same = alike(one, two);
                one = both ? one - centre : same ? 0.0 : 0.0 / 0.0;
                two = both ? two - centre : same ? 0.0 : 0.0 / 0.0;
            }
            tile_a[index / COLUMNS][index % COLUMNS] = one;
            tile_b[index / COLUMNS][index % COLUMNS] = two;
        }
        __syncthreads();
        double plane[MOMENTS] = {};
#pragma unroll
        for (int j = 0; j < WY; ++j) {
#pragma unroll
            for (int i = 0; i < WX; ++i) {
                double one = tile_a[row + j][column + i], two = tile_b[row + j][column + i];
                plane[0] += one;
                plane[1] += two;
                plane[2] += one * one;
                plane[3] += two * two;
                plane[4] += one * two;
            }
        }
        double total[MOMENTS];
#pragma unroll
        for (int m = 0; m < MOMENTS; ++m) {
#pragma unroll
            for (int k = 0; k < WZ - 1; ++k) ring[k][m] = ring[k + 1][m];
            ring[WZ - 1][m] = plane[m];
            total[m] = 0.0;
#pragma unroll
            for (int k = 0; k < WZ; ++k) total[m] += ring[k][m];
        }
        if (z - z0 < WZ - 1 || !inside) continue;
        const double n = (double)WZ * WY * WX;
        double ma = total[0] / n, mb = total[1] / n;
        double va = (total[2] / n - ma * ma) * (n / (n - 1)), vb = (total[3] / n - mb * mb) * (n / (n - 1));
        double vab = (total[4] / n - ma * mb) * (n / (n - 1));
        double ua = ma + centre, ub = mb + centre;
        sum += (2 * ua * ub + c1) * (2 * vab + c2) / ((ua * ua + ub * ub + c1) * (va + vb + c2));
    }
    of_block[threadIdx.x] = sum;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) of_block[threadIdx.x] += of_block[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[((long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = of_block[0];
}

extern "C" __global__ void added(const double *sums, long long count, double *out) {
    __shared__ double of_block[THREADS];
    double sum = 0.0;
    for (long long index = threadIdx.x; index < count; index += THREADS) sum += sums[index];
    of_block[threadIdx.x] = sum;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) of_block[threadIdx.x] += of_block[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *out = of_block[0];
}
