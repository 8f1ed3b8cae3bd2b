// Words of four points, and their copies into shared memory ahead of their use.
#pragma once

constexpr int LANES = 32;

__device__ inline float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

__device__ inline float4 minus(float4 a, float4 b) { return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w); }

__device__ inline float4 times(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }

__device__ inline float4 times(float a, float4 b) { return make_float4(a * b.x, a * b.y, a * b.z, a * b.w); }

__device__ inline float4 fused(float4 a, float4 b, float4 c) {
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}

__device__ inline float4 fused(float a, float4 b, float4 c) {
    return make_float4(fmaf(a, b.x, c.x), fmaf(a, b.y, c.y), fmaf(a, b.z, c.z), fmaf(a, b.w, c.w));
}

// Where a word is in shared memory: an address that is computed once, which the compiler else does for each copy.
struct Slot {
#ifdef __CUDA_ARCH__
    unsigned at;

    __device__ explicit Slot(const float4* word) : at(static_cast<unsigned>(__cvta_generic_to_shared(word))) {
        asm volatile("" : "+r"(at));
    }
    __device__ Slot operator+(int words) const {
        Slot other = *this;
        other.at += words * static_cast<unsigned>(sizeof(float4));
        return other;
    }
#else
    float4* at;

    explicit Slot(float4* word) : at(word) {}
    Slot operator+(int words) const { return Slot(at + words); }
#endif
};

// Copy a word into shared memory; other threads copy what is around it, so the cache is asked for whole lines.
__device__ inline void copy_ahead(float4* to, const float4* from) {
#ifdef __CUDA_ARCH__
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
#else
    *to = *from;
#endif
}

__device__ inline void copy_ahead(const Slot& to, const float4* from) {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to.at), "l"(from) : "memory");
#else
    *to.at = *from;
#endif
}

__device__ inline void end_of_stage() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Wait for all copies but those of so many stages.
template <int LEFT>
__device__ inline void wait_for_stage() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
    __syncthreads();
}
