// The weights of the staggered first derivative, and the lightness of what lies between two points.
//
// RADIUS, of the stencil, is defined from outside.

constexpr int BOTH = 2 * RADIUS;
struct Stencil { float c[RADIUS]; };

// The weights of the staggered first derivative, rounded as they are in the loops of a CPU.
__device__ constexpr Stencil first_derivative() {
    Stencil s = {};
    for (int k = 0; k < RADIUS; ++k) {
        const double own = 2 * k + 1;
        double weight = (k % 2 ? -1.0 : 1.0) / own;
        for (int other = 1; other < BOTH; other += 2) {
            const double apart = own * own - static_cast<double>(other) * other;
            if (other != 2 * k + 1) weight *= static_cast<double>(other) * other / (apart < 0 ? -apart : apart);
        }
        s.c[k] = static_cast<float>(weight);
    }
    return s;
}

__device__ constexpr Stencil S = first_derivative();

// One over a number, to the last bit or the one before.
__device__ inline float inverse(float value) {
#ifdef __CUDA_ARCH__
    float found;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(value));
    return found;
#else
    return 1.0f / value;
#endif
}
