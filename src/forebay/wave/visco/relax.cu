// A standard linear solid beside acoustic waves: the twins of cpu.py. A thread has a word of four points.
//
// All products and sums that are contracted are written as such.

#include "../sweeps/float4.cuh"

typedef long long i64;

// Take the lag one step further, and what pressure owes to it from the older field. A row of thread blocks has a shot of
// a batch, which has a medium of its own where there are several `models`.
extern "C" __global__ void relax(const float4* __restrict__ p, float4* __restrict__ old, float4* __restrict__ lag,
                                 const float4* __restrict__ loss, const float4* __restrict__ fade, int words,
                                 int models) {
    const int word = blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= words) return;
    const i64 at = static_cast<i64>(blockIdx.y) * words + word, own = models ? at : word;
    const float4 before = old[at], kept = lag[at];
    const float4 later = fused(__ldg(fade + own), kept, minus(__ldg(p + at), before));
    old[at] = fused(__ldg(loss + own), minus(later, kept), before);
    lag[at] = later;
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
