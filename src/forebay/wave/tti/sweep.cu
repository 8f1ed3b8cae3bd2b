// TTI waves: the twins of cpu.py; propagator.py says what is computed.
//
// A thread owns a point across the first axis and marches along it, with what is differentiated along it in registers;
// what is beside it comes from the first-level cache. Only in thread blocks that layers reach, or on planes in them, does
// anybody ask what those remember.
//
// AXES and RADIUS, of the stencil, are defined from outside, and so are BLOCK_X and BLOCK_Y: threads of a thread block
// along rows, and across them in three dimensions, and BLOCKS, thread blocks that a multiprocessor shall have room for.

#include "../acoustic/words.cuh"
#include "../sweeps/axes.cuh"

constexpr int BESIDE = AXES == 3 ? RADIUS : 0;

// The weights of first derivatives at the points themselves: those of the second, times half the distance.
__device__ constexpr Stencil central_derivative() {
    Stencil s = {};
    for (int k = 1; k <= RADIUS; ++k) {
        const double over = factorial(RADIUS) * factorial(RADIUS) * (k % 2 ? 1 : -1);
        s.c[k] = static_cast<float>(over / (k * factorial(RADIUS - k) * factorial(RADIUS + k)));
    }
    return s;
}

__device__ constexpr Stencil D = central_derivative();

// An axis as an argument.
template <int AXIS>
struct Number {
    static constexpr int value = AXIS;
};

// A point, or one beside it.
struct Point {
    int k, j, i;

    template <int AXIS> __device__ int place() const { return AXIS == 0 ? k : AXIS == 1 ? i : j; }
    template <int AXIS> __device__ Point moved(int n) const {
        return {k + (AXIS == 0) * n, j + (AXIS == 2) * n, i + (AXIS == 1) * n};
    }
};

// Give what an axis remembers of a stress, or of its strain: slopes or fluxes first, then what is done to strains, or
// stresses.
template <int AXIS>
__device__ inline float& kept(const Grid& g, int number, const Point& at) {
    const Axis& axis = g.axes[AXIS];
    const i64 size = (axis.zeta - axis.psi) / 2;
    return axis.psi[number * size + g.memory<AXIS>(at.k, at.j, at.i)];
}

template <int AXIS>
__device__ inline bool layered(const Grid& g, const Point& at) {
    return g.axes[AXIS].layered(at.place<AXIS>());
}

// Take what an axis remembers of a point further; give its coefficient a times that.
template <int AXIS>
__device__ inline float remember(const Grid& g, int number, const Point& at, float value, bool scaled) {
    const Axis& axis = g.axes[AXIS];
    const float a = axis.a[at.place<AXIS>()];
    float& memory = kept<AXIS>(g, number, at);
    memory = fmaf(axis.b[at.place<AXIS>()], memory, scaled ? a * value : value);
    return memory;
}

// The fields of a step, and what it goes through.
struct Waves {
    const float *__restrict__ p, *__restrict__ q, *__restrict__ normal, *__restrict__ u_p, *__restrict__ u_q;
    i64 cells;

    // Give the part of the symmetry axis along one of the grid's.
    template <int AXIS> __device__ float part(i64 at) const {
        return __ldg(normal + (AXIS == 0 ? 0 : AXIS == 1 ? LAST : 1) * cells + at);
    }
};

// Give a stress as it is differentiated along an axis, of which `near` tells whether layers may be there.
template <bool BACK, int AXIS>
__device__ inline float stress_at(const Grid& g, const float* __restrict__ field, int number, const Point& at, bool near) {
    const float value = __ldg(field + g.cell(at.k, at.j, at.i));
    if (!BACK || !near || !layered<AXIS>(g, at)) return value;
    return fmaf(g.axes[AXIS].a[at.place<AXIS>()], kept<AXIS>(g, 2 + number, at), value);
}

// Give a flux along an axis.
template <bool BACK, int AXIS>
__device__ inline float flux_at(const Grid& g, const Waves& wave, int number, const Point& at, bool near) {
    const i64 here = g.cell(at.k, at.j, at.i);
    const float value = wave.part<AXIS>(here) * __ldg((number ? wave.u_q : wave.u_p) + here);
    if (!near || (!BACK && number) || !layered<AXIS>(g, at)) return value;
    const float memory = kept<AXIS>(g, number, at);
    return BACK ? fmaf(g.axes[AXIS].a[at.place<AXIS>()], memory, value) : value - memory;
}

// Give a first derivative along an axis beside a thread's own.
template <int AXIS, typename Value>
__device__ inline float derivative(const Point& at, const Value& value) {
    float total = 0;
#pragma unroll
    for (int n = 1; n <= RADIUS; ++n) total = fmaf(D.c[n], value(at.moved<AXIS>(n)) - value(at.moved<AXIS>(-n)), total);
    return total;
}

__device__ inline float derivative(const float (&queue)[QUEUE]) {
    float total = 0;
#pragma unroll
    for (int n = 1; n <= RADIUS; ++n) total = fmaf(D.c[n], queue[RADIUS + n] - queue[RADIUS - n], total);
    return total;
}

// Where a thread marches.
struct March {
    int i, j, begin, end;
    bool own, near_x, near_y;
};

__device__ inline March march_of(const Grid& g, int chunk) {
    const int i_0 = g.axes[1].first + blockIdx.x * BLOCK_X, j_0 = BESIDE + blockIdx.y * BLOCK_Y;
    March m = {i_0 + static_cast<int>(threadIdx.x), j_0 + static_cast<int>(threadIdx.y),
               RADIUS + static_cast<int>(blockIdx.z) * chunk};
    m.end = min(m.begin + chunk, g.planes - RADIUS);
    m.own = m.j < g.rows - BESIDE && m.i < g.axes[1].last;
    m.near_x = g.axes[1].reached(i_0 - RADIUS, i_0 + BLOCK_X + RADIUS);
    m.near_y = AXES == 3 && g.axes[LAST].reached(j_0 - RADIUS, j_0 + BLOCK_Y + RADIUS);
    return m;
}

__device__ inline void push(float (&queue)[QUEUE], float value) {
#pragma unroll
    for (int n = 0; n < QUEUE - 1; ++n) queue[n] = queue[n + 1];
    queue[QUEUE - 1] = value;
}

// Stretch a slope of a layer on the way forward.
template <bool BACK, int AXIS>
__device__ inline float stretched(const Grid& g, int number, const Point& at, float value) {
    return BACK || !layered<AXIS>(g, at) ? value : value + remember<AXIS>(g, number, at, value, true);
}

#define ARGUMENTS                                                                                                    \
    const u32 *__restrict__ table, const float *__restrict__ ab, float *__restrict__ pml, float w_z, float w_x,      \
        float w_y, const float *__restrict__ p, const float *__restrict__ r, const float *__restrict__ hard,         \
        const float *__restrict__ share, const float *__restrict__ excess, const float *__restrict__ normal,         \
        float *__restrict__ q, float *__restrict__ u_p, float *__restrict__ u_q, float *__restrict__ p_old,          \
        float *__restrict__ r_old, float *__restrict__ third, const float *__restrict__ newest,                      \
        const float *__restrict__ other_p, const float *__restrict__ other_r, float factor, int mirrored, int chunk, int remembers
#define PASSED                                                                                                       \
    table, ab, pml, w_z, w_x, w_y, p, r, hard, share, excess, normal, q, u_p, u_q, p_old, r_old, third, newest, other_p, \
        other_r, factor, mirrored, chunk, remembers

// Make axial stresses; on the way back, remember both stresses in layers.
extern "C" __global__ void stress(ARGUMENTS) {
    const Grid g = grid_of(table, ab, pml, w_z, w_x, w_y);
    const March m = march_of(g, chunk);
    if (!m.own) return;
    const auto both = [&](auto axis, const Point& at, float wide, float axial) {
        constexpr int AXIS = decltype(axis)::value;
        if (layered<AXIS>(g, at)) remember<AXIS>(g, 2, at, wide, false), remember<AXIS>(g, 3, at, axial, false);
    };
    for (int k = m.begin; k < m.end; ++k) {
        const i64 here = g.cell(k, m.j, m.i);
        const float wide = __ldg(p + here), axial = fmaf(__ldg(share + here), wide, __ldg(excess + here) * __ldg(r + here));
        q[here] = axial;
        if (!remembers) continue;
        const Point at = {k, m.j, m.i};
        both(Number<0>(), at, wide, axial), both(Number<1>(), at, wide, axial);
        if (AXES == 3) both(Number<LAST>(), at, wide, axial);
    }
}

// Remember a flux of a layer on the way back; `rise` is the derivative of the stress across the symmetry axis, or 0.
template <int AXIS>
__device__ inline void remember_flux(const Grid& g, const Waves& wave, int number, const Point& at, float slope, float rise) {
    if (!layered<AXIS>(g, at)) return;
    remember<AXIS>(g, number, at, fmaf(wave.part<AXIS>(g.cell(at.k, at.j, at.i)), slope, -rise), false);
}

// Make slopes along the symmetry axis. Above a free surface stresses are those below with their sign changed.
template <bool BACK>
__device__ inline void rise(ARGUMENTS) {
    const Grid g = grid_of(table, ab, pml, w_z, w_x, w_y);
    const March m = march_of(g, chunk);
    if (!m.own) return;
    const Waves wave = {p, q, normal, u_p, u_q, g.cell(g.planes, 0, 0)};
    float queue_p[QUEUE], queue_q[QUEUE];
    const auto load = [&](int k) {
        const bool above = mirrored && k < RADIUS;
        const Point at = {above ? 2 * RADIUS - k : k, m.j, m.i};
        const float wide = stress_at<BACK, 0>(g, p, 0, at, true), axial = stress_at<BACK, 0>(g, q, 1, at, true);
        push(queue_p, above ? -wide : wide), push(queue_q, above ? -axial : axial);
    };
#pragma unroll
    for (int n = 1; n < QUEUE; ++n) load(m.begin - RADIUS - 1 + n);
    for (int k = m.begin; k < m.end; ++k) {
        load(k + RADIUS);
        const Point at = {k, m.j, m.i};
        const i64 here = g.cell(k, m.j, m.i);
        const auto slope_of = [&](const float* __restrict__ field, const float(&queue)[QUEUE], int number) {
            const auto along = [&](const Point& to) { return stress_at<BACK, 1>(g, field, number, to, m.near_x); };
            const auto across = [&](const Point& to) { return stress_at<BACK, LAST>(g, field, number, to, m.near_y); };
            const float z = stretched<BACK, 0>(g, number, at, g.axes[0].w * derivative(queue));
            const float x = stretched<BACK, 1>(g, number, at, g.axes[1].w * derivative<1>(at, along));
            float slope = wave.part<0>(here) * z, y = 0;
            if (AXES == 3) {
                y = stretched<BACK, LAST>(g, number, at, g.axes[LAST].w * derivative<LAST>(at, across));
                slope = fmaf(wave.part<LAST>(here), y, slope);
            }
            slope = fmaf(wave.part<1>(here), x, slope);
            if (BACK && remembers) {
                remember_flux<0>(g, wave, number, at, slope, number ? 0 : z);
                remember_flux<1>(g, wave, number, at, slope, number ? 0 : x);
                if (AXES == 3) remember_flux<LAST>(g, wave, number, at, slope, number ? 0 : y);
            }
            return slope;
        };
        u_p[here] = slope_of(p, queue_p, 0);
        u_q[here] = slope_of(q, queue_q, 1);
    }
}

// Stretch what is done to both strains on the way forward, and add it to that of other axes.
template <bool BACK, int AXIS>
__device__ inline void add(const Grid& g, const Point& at, float bend, float axial, float& beside, float& depth) {
    beside += stretched<BACK, AXIS>(g, 2, at, bend), depth += stretched<BACK, AXIS>(g, 3, at, axial);
}

// Step once: the older fields become the newer ones. To sense, the sums of a gradient are in their place, to which
// `factor` times what the step back is owed for the other wave is added. On a free surface stresses are 0, above it they
// are those below with their sign changed, and fluxes along depth are those below.
template <bool BACK, bool SENSE>
__device__ inline void sweep(ARGUMENTS) {
    const Grid g = grid_of(table, ab, pml, w_z, w_x, w_y);
    const March m = march_of(g, chunk);
    if (!m.own) return;
    const Waves wave = {p, q, normal, u_p, u_q, g.cell(g.planes, 0, 0)};
    float queue[QUEUE], queue_p[QUEUE], queue_q[QUEUE];
    const auto load = [&](int k) {
        const bool above = mirrored && k < RADIUS;
        const Point at = {above ? 2 * RADIUS - k : k, m.j, m.i};
        const float wide = stress_at<BACK, 0>(g, p, 0, at, true);
        push(queue, above ? -wide : wide);
        push(queue_p, flux_at<BACK, 0>(g, wave, 0, at, true)), push(queue_q, flux_at<BACK, 0>(g, wave, 1, at, true));
    };
    const auto beside_of = [&](const Point& at, auto axis, bool near, float& beside, float& depth) {
        constexpr int AXIS = decltype(axis)::value;
        const auto curved = [&](const Point& to) { return stress_at<BACK, AXIS>(g, p, 0, to, near); };
        const auto wide = [&](const Point& to) { return flux_at<BACK, AXIS>(g, wave, 0, to, near); };
        const auto axial = [&](const Point& to) { return flux_at<BACK, AXIS>(g, wave, 1, to, near); };
        float total = S.c[0] * curved(at);
#pragma unroll
        for (int n = 1; n <= RADIUS; ++n) {
            total = fmaf(S.c[n], curved(at.moved<AXIS>(-n)) + curved(at.moved<AXIS>(n)), total);
        }
        const float w = g.axes[AXIS].w, bend = w * fmaf(w, total, -derivative<AXIS>(at, wide));
        add<BACK, AXIS>(g, at, bend, w * derivative<AXIS>(at, axial), beside, depth);
    };
#pragma unroll
    for (int n = 1; n < QUEUE; ++n) load(m.begin - RADIUS - 1 + n);
    for (int k = m.begin; k < m.end; ++k) {
        load(k + RADIUS);
        if (mirrored && k == RADIUS) continue;
        const Point at = {k, m.j, m.i};
        const i64 here = g.cell(k, m.j, m.i);
        float total = S.c[0] * queue[RADIUS], beside = 0, depth = 0;
#pragma unroll
        for (int n = 1; n <= RADIUS; ++n) total = fmaf(S.c[n], queue[RADIUS - n] + queue[RADIUS + n], total);
        const float w = g.axes[0].w, bend = w * fmaf(w, total, -derivative(queue_p));
        add<BACK, 0>(g, at, bend, w * derivative(queue_q), beside, depth);
        if (AXES == 3) beside_of(at, Number<LAST>(), m.near_y, beside, depth);
        beside_of(at, Number<1>(), m.near_x, beside, depth);
        const float stiff = __ldg(hard + here), shared = __ldg(share + here);
        const float pressure = __ldg(p + here), both = fmaf(shared, depth, beside);
        float ease = g.axes[0].half_a[k] * g.axes[1].half_a[m.i];
        if (AXES == 3) ease *= g.axes[LAST].half_a[m.j];
        if (SENSE) {
            const float other = other_r[here], stress = other_p[here], across = stress / stiff - shared * other;
            const float lag = ((newest[here] - pressure) / stiff - both) * ((1 - ease) * other);
            const float vertical = fmaf(shared, stress, __ldg(excess + here) * other);
            p_old[here] = fmaf(factor, beside * across - shared * lag, p_old[here]);
            r_old[here] = fmaf(factor, fmaf(beside, other, depth * across) + lag, r_old[here]);
            third[here] = fmaf(factor, fmaf(beside, stress, depth * vertical), third[here]);
        } else {
            const float strain = __ldg(r + here);
            p_old[here] = fmaf(stiff, both, pressure + pressure - p_old[here]);
            r_old[here] = fmaf(ease, strain - r_old[here], strain) + depth;
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS) slope(ARGUMENTS) { rise<false>(PASSED); }

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS) slope_back(ARGUMENTS) { rise<true>(PASSED); }

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS) advance(ARGUMENTS) { sweep<false, false>(PASSED); }

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS) retreat(ARGUMENTS) { sweep<true, false>(PASSED); }

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS) sense(ARGUMENTS) { sweep<true, true>(PASSED); }
