// TTI waves: the twins of cpu.py; propagator.py says what is computed.
//
// A thread owns a point across the first axis and marches along it, with what is differentiated along it in registers;
// what is beside it comes from the first-level cache. What layers remember comes on top where a stencil reaches them.
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

// Take what an axis remembers of a point further.
template <int AXIS>
__device__ inline float remember(const Grid& g, int number, const Point& at, float value) {
    float& memory = kept<AXIS>(g, number, at);
    return memory = fmaf(g.axes[AXIS].b[at.place<AXIS>()], memory, value);
}

// The symmetry axis: its parts along those of the grid lie one after the other.
struct Normal {
    const float* __restrict__ values;
    i64 cells;

    template <int AXIS> __device__ float part(i64 at) const {
        return __ldg(values + (AXIS == 0 ? 0 : AXIS == 1 ? LAST : 1) * cells + at);
    }
};

// Tell whether a stencil reaches a layer of an axis.
template <int AXIS>
__device__ inline bool near(const Grid& g, const Point& at) {
    const int place = at.place<AXIS>();
    return place - RADIUS < g.axes[AXIS].low || place + RADIUS >= g.axes[AXIS].high;
}

// Do something for each place of a stencil that is in a layer, with the weight of a first derivative. Few threads come
// here, and registers are wanted elsewhere.
template <int AXIS, typename Work>
__device__ inline void in_layers(const Grid& g, const Point& at, const Work& work) {
    if (!near<AXIS>(g, at)) return;
#pragma unroll 1
    for (int n = -RADIUS; n <= RADIUS; ++n) {
        const Point to = at.moved<AXIS>(n);
        if (layered<AXIS>(g, to)) work(to, n < 0 ? -n : n, n < 0 ? -D.c[-n] : D.c[n], g.axes[AXIS].a[to.place<AXIS>()]);
    }
}

// Give a first derivative of what `value` says of points beside the thread's own.
template <typename Value>
__device__ inline float derivative(const Value& value) {
    float total = 0;
#pragma unroll
    for (int n = 1; n <= RADIUS; ++n) total = fmaf(D.c[n], value(n) - value(-n), total);
    return total;
}

// Give a second derivative, but for the square of the spacing.
template <typename Value>
__device__ inline float curvature(const Value& value) {
    float total = S.c[0] * value(0);
#pragma unroll
    for (int n = 1; n <= RADIUS; ++n) total = fmaf(S.c[n], value(-n) + value(n), total);
    return total;
}

// Where a thread marches.
struct March {
    int i, j, begin, end;
    bool own;
};

__device__ inline March march_of(const Grid& g, int chunk) {
    March m = {};
    m.i = g.axes[1].first + blockIdx.x * BLOCK_X + threadIdx.x, m.j = BESIDE + blockIdx.y * BLOCK_Y + threadIdx.y;
    m.begin = RADIUS + blockIdx.z * chunk, m.end = min(m.begin + chunk, g.planes - RADIUS);
    m.own = m.j < g.rows - BESIDE && m.i < g.axes[1].last;
    return m;
}

__device__ inline void push(float (&queue)[QUEUE], float value) {
#pragma unroll
    for (int n = 0; n < QUEUE - 1; ++n) queue[n] = queue[n + 1];
    queue[QUEUE - 1] = value;
}

// Stretch what is in a layer on the way forward.
template <bool BACK, int AXIS>
__device__ inline float stretched(const Grid& g, int number, const Point& at, float value) {
    if (BACK || !layered<AXIS>(g, at)) return value;
    return value + remember<AXIS>(g, number, at, g.axes[AXIS].a[at.place<AXIS>()] * value);
}

#define ARGUMENTS                                                                                                    \
    const u32 *__restrict__ table, const float *__restrict__ ab, float *__restrict__ pml, float w_z, float w_x,      \
        float w_y, const float *__restrict__ p, const float *__restrict__ r, const float *__restrict__ hard,         \
        const float *__restrict__ share, const float *__restrict__ excess, const float *__restrict__ normal,         \
        float *__restrict__ q, float *__restrict__ u_p, float *__restrict__ u_q, float *__restrict__ p_old,          \
        float *__restrict__ r_old, float *__restrict__ third, const float *__restrict__ newest,                      \
        const float *__restrict__ other_p, const float *__restrict__ other_r, float factor, int mirrored, \
        int chunk, int remembers
#define PASSED                                                                                                       \
    table, ab, pml, w_z, w_x, w_y, p, r, hard, share, excess, normal, q, u_p, u_q, p_old, r_old, third, newest, other_p, \
        other_r, factor, mirrored, chunk, remembers

// Take what an axis remembers further where a point is in a layer of its.
template <int AXIS>
__device__ inline void remember_layered(const Grid& g, int number, const Point& at, float value) {
    if (layered<AXIS>(g, at)) remember<AXIS>(g, number, at, value);
}

// Make axial stresses; on the way back, remember both stresses in layers.
extern "C" __global__ void stress(ARGUMENTS) {
    const Grid g = grid_of(table, ab, pml, w_z, w_x, w_y);
    const March m = march_of(g, chunk);
    if (!m.own) return;
    for (int k = m.begin; k < m.end; ++k) {
        const Point at = {k, m.j, m.i};
        const i64 here = g.cell(k, m.j, m.i);
        const float wide = __ldg(p + here), axial = fmaf(__ldg(share + here), wide, __ldg(excess + here) * __ldg(r + here));
        q[here] = axial;
        if (!remembers) continue;
        remember_layered<0>(g, 2, at, wide), remember_layered<0>(g, 3, at, axial);
        remember_layered<1>(g, 2, at, wide), remember_layered<1>(g, 3, at, axial);
        if (AXES == 3) remember_layered<LAST>(g, 2, at, wide), remember_layered<LAST>(g, 3, at, axial);
    }
}

// Give the derivative of a stress along an axis as layers leave it.
template <bool BACK, int AXIS>
__device__ inline float risen(const Grid& g, int number, const Point& at, float total) {
    const auto add = [&](const Point& to, int, float weight, float a) {
        total = fmaf(weight, a * kept<AXIS>(g, 2 + number, to), total);
    };
    if (BACK) in_layers<AXIS>(g, at, add);
    return stretched<BACK, AXIS>(g, number, at, g.axes[AXIS].w * total);
}

// Make slopes along the symmetry axis. Above a free surface stresses are those below with their sign changed.
template <bool BACK>
__device__ inline void rise(ARGUMENTS) {
    const Grid g = grid_of(table, ab, pml, w_z, w_x, w_y);
    const March m = march_of(g, chunk);
    if (!m.own) return;
    const Normal tilted = {normal, g.cell(g.planes, 0, 0)};
    float queue_p[QUEUE], queue_q[QUEUE];
    const auto load = [&](int k) {
        const bool above = mirrored && k < RADIUS;
        const i64 cell = g.cell(above ? 2 * RADIUS - k : k, m.j, m.i);
        const float wide = __ldg(p + cell), axial = __ldg(q + cell);
        push(queue_p, above ? -wide : wide), push(queue_q, above ? -axial : axial);
    };
#pragma unroll
    for (int n = 1; n < QUEUE; ++n) load(m.begin - RADIUS - 1 + n);
    for (int k = m.begin; k < m.end; ++k) {
        load(k + RADIUS);
        const Point at = {k, m.j, m.i};
        const i64 here = g.cell(k, m.j, m.i);
        const auto slope_of = [&](const float* __restrict__ field, const float(&queue)[QUEUE], int number) {
            const auto down = [&](int n) { return queue[RADIUS + n]; };
            const auto along = [&](int n) { return __ldg(field + here + n); };
            const auto across = [&](int n) { return __ldg(field + here + n * g.stride<LAST>()); };
            const float z = risen<BACK, 0>(g, number, at, derivative(down));
            const float x = risen<BACK, 1>(g, number, at, derivative(along));
            const float y = AXES == 3 ? risen<BACK, LAST>(g, number, at, derivative(across)) : 0;
            float slope = fmaf(tilted.part<1>(here), x, tilted.part<0>(here) * z);
            if (AXES == 3) slope = fmaf(tilted.part<LAST>(here), y, slope);
            if (BACK && remembers) {
                remember_layered<0>(g, number, at, fmaf(tilted.part<0>(here), slope, number ? 0 : -z));
                remember_layered<1>(g, number, at, fmaf(tilted.part<1>(here), slope, number ? 0 : -x));
                if (AXES == 3) remember_layered<LAST>(g, number, at, fmaf(tilted.part<LAST>(here), slope, number ? 0 : -y));
            }
            return slope;
        };
        u_p[here] = slope_of(p, queue_p, 0);
        u_q[here] = slope_of(q, queue_q, 1);
    }
}

// Add what is done to both strains along an axis, as layers leave it.
template <bool BACK, int AXIS>
__device__ inline void add(const Grid& g, const Point& at, float curved, float wide, float axial, float& beside,
                           float& depth) {
    const auto returned = [&](const Point& to, int apart, float weight, float a) {
        if (BACK) curved = fmaf(S.c[apart], a * kept<AXIS>(g, 2, to), curved);
        if (BACK) axial = fmaf(weight, a * kept<AXIS>(g, 1, to), axial);
        wide = fmaf(weight, BACK ? a * kept<AXIS>(g, 0, to) : -kept<AXIS>(g, 0, to), wide);
    };
    in_layers<AXIS>(g, at, returned);
    const float w = g.axes[AXIS].w;
    beside += stretched<BACK, AXIS>(g, 2, at, w * fmaf(w, curved, -wide));
    depth += stretched<BACK, AXIS>(g, 3, at, w * axial);
}

template <bool BACK, int AXIS>
__device__ inline void add_beside(const Grid& g, const Point& at, const Normal& tilted, const float* __restrict__ p,
                                  const float* __restrict__ u_p, const float* __restrict__ u_q, float& beside,
                                  float& depth) {
    const i64 here = g.cell(at.k, at.j, at.i), stride = g.stride<AXIS>();
    const auto stress = [&](int n) { return __ldg(p + here + n * stride); };
    const auto wide = [&](int n) { return tilted.part<AXIS>(here + n * stride) * __ldg(u_p + here + n * stride); };
    const auto axial = [&](int n) { return tilted.part<AXIS>(here + n * stride) * __ldg(u_q + here + n * stride); };
    add<BACK, AXIS>(g, at, curvature(stress), derivative(wide), derivative(axial), beside, depth);
}

// Step once: the older fields become the newer ones. To sense, the sums of a gradient are in their place, to which
// `factor` times what the step back is owed for the other wave is added. On a free surface stresses are 0, above it they
// are those below with their sign changed, and fluxes along depth are those below.
template <bool BACK, bool SENSE>
__device__ inline void sweep(ARGUMENTS) {
    const Grid g = grid_of(table, ab, pml, w_z, w_x, w_y);
    const March m = march_of(g, chunk);
    if (!m.own) return;
    const Normal tilted = {normal, g.cell(g.planes, 0, 0)};
    float queue[QUEUE], queue_p[QUEUE], queue_q[QUEUE];
    const auto load = [&](int k) {
        const bool above = mirrored && k < RADIUS;
        const i64 cell = g.cell(above ? 2 * RADIUS - k : k, m.j, m.i);
        const float wide = __ldg(p + cell), part = tilted.part<0>(cell);
        push(queue, above ? -wide : wide);
        push(queue_p, part * __ldg(u_p + cell)), push(queue_q, part * __ldg(u_q + cell));
    };
#pragma unroll
    for (int n = 1; n < QUEUE; ++n) load(m.begin - RADIUS - 1 + n);
    for (int k = m.begin; k < m.end; ++k) {
        load(k + RADIUS);
        if (mirrored && k == RADIUS) continue;
        const Point at = {k, m.j, m.i};
        const i64 here = g.cell(k, m.j, m.i);
        float beside = 0, depth = 0;
        const auto down = [&](int n) { return queue[RADIUS + n]; };
        const auto wide_down = [&](int n) { return queue_p[RADIUS + n]; };
        const auto axial_down = [&](int n) { return queue_q[RADIUS + n]; };
        add<BACK, 0>(g, at, curvature(down), derivative(wide_down), derivative(axial_down), beside, depth);
        if (AXES == 3) add_beside<BACK, LAST>(g, at, tilted, p, u_p, u_q, beside, depth);
        add_beside<BACK, 1>(g, at, tilted, p, u_p, u_q, beside, depth);
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
