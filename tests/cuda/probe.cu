// Small kernels with which the tests see order, overlap and arguments.

#ifndef FACTOR
#define FACTOR 1.0f
#endif

// Holds its stream up for a known time.
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

extern "C" __global__ void fill(unsigned char *out, unsigned char value, unsigned long long n) {
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = value;
}

// A product and a sum: what `fmad` is about.
extern "C" __global__ void scale(float *y, const float *x, float a, double b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * (a * x[i] + y[i]) + (float)b;
}
