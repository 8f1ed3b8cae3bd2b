// A standard linear solid beside acoustic waves: the twins of cpu.py. A thread has a word of four points.
//
// All products and sums that are contracted are written as such.

#include "../sweeps/float4.cuh"

typedef long long i64;

// Relax a point: both coefficients follow from one number, which costs less than to read them.
__device__ inline void relax_point(float p, float& old, float& lag, float excess, float tangent) {
    const float x = 1 + excess, early = fmaf(x, tangent, 1.0f), over = 1 / ((x + tangent) * early);
    const float fade = (x - tangent) * early * over, loss = 2 * tangent * excess * (2 + excess) * over;
    const float later = fmaf(fade, lag, p - old);
    old = fmaf(loss, later - lag, old);
    lag = later;
}

// Take the lag one step further, and what pressure owes to it from the older field. A row of thread blocks has a shot of
// a batch, which has a medium of its own where there are several `models`.
extern "C" __global__ void relax(const float4* __restrict__ p, float4* __restrict__ old, float4* __restrict__ lag,
                                 const float4* __restrict__ excess, const float* __restrict__ tangents, int words,
                                 int models) {
    const int word = blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= words) return;
    const i64 at = static_cast<i64>(blockIdx.y) * words + word, own = models ? at : word;
    const float4 now = __ldg(p + at), beyond = __ldg(excess + own);
    const float tangent = __ldg(tangents + (models ? blockIdx.y : 0));
    float4 before = old[at], kept = lag[at];
    relax_point(now.x, before.x, kept.x, beyond.x, tangent);
    relax_point(now.y, before.y, kept.y, beyond.y, tangent);
    relax_point(now.z, before.z, kept.z, beyond.z, tangent);
    relax_point(now.w, before.w, kept.w, beyond.w, tangent);
    old[at] = before;
    lag[at] = kept;
}

// Add a factor times the other wave's lag to sums, times a wave's change in a step and times its lag.
extern "C" __global__ void sense(const float4* __restrict__ p, const float4* __restrict__ old,
                                 const float4* __restrict__ lag, const float4* __restrict__ other,
                                 float4* __restrict__ of_loss, float4* __restrict__ of_fade, float factor, int words) {
    const int word = blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= words) return;
    const float4 scaled = times(factor, __ldg(other + word));
    of_loss[word] = fused(scaled, minus(__ldg(p + word), __ldg(old + word)), of_loss[word]);
    of_fade[word] = fused(scaled, __ldg(lag + word), of_fade[word]);
}
