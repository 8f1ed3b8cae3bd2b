// The first half of an elastic step on a GPU: stresses move velocities; the twin of elastic_cpu_velocity.py.
//
// In three dimensions 13 words are read or written for each of the velocities' points: the six stresses, the density,
// and the three velocities twice. Densities are averaged here: one array is read in the place of three.

#include "elastic.cuh"

// The density over 2 dt at a word, across the row and after the word, so that one over the sum of two neighbours is
// what stresses are multiplied by between them.
struct Density {
    Word here, beside;
    float after;

    __device__ static Density of(const Word* __restrict__ rho, int words) {
        Density found = {};
        found.here = shared(rho);
        if constexpr (AXES == 3) found.beside = shared(rho + words);
        found.after = __ldg(reinterpret_cast<const float*>(rho + 1));
        return found;
    }
};

__device__ inline Word between(const Word& a, const Word& b) {
    return each([&](int i) { return inverse(a.at[i] + b.at[i]); });
}

// What is advanced (fields), from what (t), and by what: the medium, or the velocities where totals are gathered.
struct Velocities {
    Word *z, *y, *x;
    const Word *by_z, *by_y, *by_x;
    const Word *t_zz, *t_yy, *t_xx, *t_zy, *t_zx, *t_yx;
    const Word* rho;
    float factor;
};

constexpr int STAGES = 7 + AXES;  // words that a thread loads ahead, with those of memory

template <bool sense>
struct Loaded {
    Word z, y, x, by_z, by_y, by_x, t_yy, t_xx, t_yx;
    Density further;  // of the next plane

    __device__ static Loaded of(const Velocities& f, u32 here, u32 plane, int words) {
        Loaded found = {};
        found.z = once(f.z + here);
        found.x = once(f.x + here);
        found.t_xx = shared(f.t_xx + here);
        if constexpr (AXES == 3) {
            found.y = once(f.y + here);
            found.t_yy = shared(f.t_yy + here);
            found.t_yx = shared(f.t_yx + here);
        }
        if constexpr (sense) {
            found.by_z = once(f.by_z + here);
            if constexpr (AXES == 3) found.by_y = once(f.by_y + here);
            found.by_x = once(f.by_x + here);
        } else {
            found.further = Density::of(f.rho + here + plane, words);
        }
        return found;
    }

    __device__ static void ask(const Stage<STAGES>& stage, const Velocities& f, u32 here, u32 plane) {
        stage.ask(0, f.z + here);
        stage.ask(1, f.x + here);
        stage.ask(2, f.t_xx + here);
        stage.ask(3, f.rho + here + plane);
        if constexpr (AXES == 3) {
            stage.ask(4, f.y + here);
            stage.ask(5, f.t_yy + here);
            stage.ask(6, f.t_yx + here);
        }
    }

    __device__ static Loaded take(const Stage<STAGES>& stage, const Velocities& f, u32 here, u32 plane, int words) {
        Loaded found = {};
        stage.wait();
        const Word* rho = f.rho + here + plane;
        found.z = stage.take(0, f.z + here);
        found.x = stage.take(1, f.x + here);
        found.t_xx = stage.take(2, f.t_xx + here);
        found.further.here = stage.take(3, rho);
        if constexpr (AXES == 3) {
            found.y = stage.take(4, f.y + here);
            found.t_yy = stage.take(5, f.t_yy + here);
            found.t_yx = stage.take(6, f.t_yx + here);
            found.further.beside = shared(rho + words);
        }
        found.further.after = __ldg(reinterpret_cast<const float*>(rho + 1));
        return found;
    }

    __device__ static void fetch(const Velocities& f, u32 here) {
        fetch_ahead(f.z + here);
        fetch_ahead(f.x + here);
        fetch_ahead(f.t_xx + here);
        if constexpr (AXES == 3) {
            fetch_ahead(f.y + here);
            fetch_ahead(f.t_yy + here);
            fetch_ahead(f.t_yx + here);
        }
    }
};

// Advance velocities by the stresses, forward or back, or gather totals of the way back.
template <Way way, int on, bool sense>
__device__ inline void sweep(const Velocities& f, const Layers& layers, const Shape& shape, const Column& column,
                             const Slopes& w) {
    const u32 plane = column.plane;
    const int words = column.words;
    u32 here = column.here;
    constexpr bool staged = STAGED && !sense, fades = on && !sense;
    const Stage<STAGES> stage(staged);
    Slabs<way, on, 0, STAGES> slabs(layers, column, shape, &stage);

    Queue<1> zz;
    Queue<0> zy, zx;
    slabs.fill(zz, Z, f.t_zz + here, column.begin);
    if constexpr (AXES == 3) slabs.fill(zy, Y, f.t_zy + here, column.begin);
    slabs.fill(zx, X, f.t_zx + here, column.begin);
    Density next = {};
    if constexpr (!sense) next = Density::of(f.rho + here, words);
    Word last_zz = Queue<1>::last(f.t_zz + here, plane), last_zy = {};
    if constexpr (AXES == 3) last_zy = Queue<0>::last(f.t_zy + here, plane);
    Word last_zx = Queue<0>::last(f.t_zx + here, plane);
    Loaded<sense> coming = {};
    if constexpr (staged) {
        Loaded<sense>::ask(stage, f, here, plane);
        if constexpr (fades) slabs.ask(column.begin);
        stage.asked();
    } else if (EARLY) {
        coming = Loaded<sense>::of(f, here, plane, words);
    }

    for (int z = column.begin; z < column.end; ++z, here += plane) {
        unforeseen(here);
        slabs.z = z;
        slabs.push(zz, Z, last_zz);
        if constexpr (AXES == 3) slabs.push(zy, Y, last_zy);
        slabs.push(zx, X, last_zx);
        const Loaded<sense> loaded = staged  ? Loaded<sense>::take(stage, f, here, plane, words)
                                     : EARLY ? coming
                                             : Loaded<sense>::of(f, here, plane, words);
        // The last plane is loaded twice: a branch here would be moved behind the computation.
        const bool ends = z + 1 == column.end;
        const u32 there = here + (ends ? 0 : plane);
        last_zz = Queue<1>::last(f.t_zz + there, plane);
        if constexpr (AXES == 3) last_zy = Queue<0>::last(f.t_zy + there, plane);
        last_zx = Queue<0>::last(f.t_zx + there, plane);
        if constexpr (staged) {
            Loaded<sense>::ask(stage, f, there, plane);
        } else if (EARLY) {
            coming = Loaded<sense>::of(f, there, plane, words);
        }
        if (AHEAD > 1 && z + AHEAD < column.end) Loaded<sense>::fetch(f, here + AHEAD * plane);
        const Density density = next;
        next = loaded.further;
        Word fade = {};
        const float *ahead = w.of(w.ahead, z), *back = w.of(w.back, z);

        Word push = slabs.template z_of<1>(Z, zz.slope(ahead, w.z));
        Word along = slabs.template x_of<0>(Z, along_x<0>(f.t_zx + here, slabs.centre(zx, f.t_zx + here)));
        if constexpr (AXES == 3) {
            const Word slope = along_y<0>(f.t_zy + here, words, slabs.centre(zy, f.t_zy + here));
            const Word aside = slabs.template y_of<0>(Z, slope);
            push = each([&](int i) { return fmaf(w.y, aside.at[i], push.at[i]); });
        }
        push = each([&](int i) { return fmaf(w.x, along.at[i], push.at[i]); });
        Word by = sense ? loaded.by_z : between(density.here, next.here);
        if constexpr (sense) by = each([&](int i) { return f.factor * by.at[i]; });
        if constexpr (fades) fade = slabs.template fade<1, 0, 0>();
        Word found = column.trimmed(fades ? advanced(loaded.z, by, push, fade) : advanced(loaded.z, by, push));
        put(f.z + here, found);
        if constexpr (way == BACK && fades) {
            slabs.template remember_z<1>(Z, found);
            slabs.template remember_y<0>(Z, found);
            slabs.template remember_x<0>(Z, found);
        }

        if constexpr (AXES == 3) {
            push = slabs.template z_of<0>(Y, zy.slope(back, w.z));
            const Word aside = slabs.template y_of<1>(Y, along_y<1>(f.t_yy + here, words, loaded.t_yy));
            along = slabs.template x_of<0>(Y, along_x<0>(f.t_yx + here, loaded.t_yx));
            push = each([&](int i) { return fmaf(w.x, along.at[i], fmaf(w.y, aside.at[i], push.at[i])); });
            by = sense ? loaded.by_y : between(density.here, density.beside);
            if constexpr (sense) by = each([&](int i) { return f.factor * by.at[i]; });
            if constexpr (fades) fade = slabs.template fade<0, 1, 0>();
            found = column.trimmed(fades ? advanced(loaded.y, by, push, fade) : advanced(loaded.y, by, push));
            put(f.y + here, found);
            if constexpr (way == BACK && fades) {
                slabs.template remember_z<0>(Y, found);
                slabs.template remember_y<1>(Y, found);
                slabs.template remember_x<0>(Y, found);
            }
        }

        push = slabs.template z_of<0>(X, zx.slope(back, w.z));
        if constexpr (AXES == 3) {
            const Word aside = slabs.template y_of<0>(X, along_y<0>(f.t_yx + here, words, loaded.t_yx));
            push = each([&](int i) { return fmaf(w.y, aside.at[i], push.at[i]); });
        }
        along = slabs.template x_of<1>(X, along_x<1>(f.t_xx + here, loaded.t_xx));
        push = each([&](int i) { return fmaf(w.x, along.at[i], push.at[i]); });
        by = sense ? loaded.by_x : between(density.here, moved(density.here, density.after));
        if constexpr (sense) by = each([&](int i) { return f.factor * by.at[i]; });
        if constexpr (fades) fade = slabs.template fade<0, 0, 1>();
        found = column.trimmed(fades ? advanced(loaded.x, by, push, fade) : advanced(loaded.x, by, push));
        put(f.x + here, found);
        if constexpr (way == BACK && fades) {
            slabs.template remember_z<0>(X, found);
            slabs.template remember_y<0>(X, found);
            slabs.template remember_x<1>(X, found);
        }
        if constexpr (fades) {
            if (!ends) slabs.ask(z + 1);
        }
        if constexpr (staged) stage.asked();
    }
}

// Choose by the thread block: only those with layers pay for them.
template <Way way, bool sense>
__device__ inline void step(const Velocities& f, const Layers& layers, const Shape& shape, const Slopes& w,
                            const int* __restrict__ tiles) {
    const Tile& tile = Tile::of(tiles);
    const Column column(shape, tile);
    if (column.begin >= column.end) return;
    constexpr int aside = AXES == 3 ? ON_Y : NONE;
    if (tile.axes == NONE) {
        sweep<way, NONE, sense>(f, layers, shape, column, w);
    } else if (!sense && tile.axes == ON_X) {
        sweep<way, sense ? NONE : ON_X, sense>(f, layers, shape, column, w);
    } else if (!sense && !(tile.axes & ON_Y)) {
        sweep<way, sense ? NONE : ON_Z | ON_X, sense>(f, layers, shape, column, w);
    } else if (!sense && !(tile.axes & ON_Z)) {
        sweep<way, sense ? NONE : aside | ON_X, sense>(f, layers, shape, column, w);
    } else {
        sweep<way, ON_Z | aside | ON_X, sense>(f, layers, shape, column, w);
    }
}

// Advance the velocities.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    move(Word* __restrict__ v_z, Word* __restrict__ v_y, Word* __restrict__ v_x, const Word* __restrict__ t_zz,
         const Word* __restrict__ t_yy, const Word* __restrict__ t_xx, const Word* __restrict__ t_zy,
         const Word* __restrict__ t_zx, const Word* __restrict__ t_yx, const Word* __restrict__ rho, LAYERS,
         const float* __restrict__ ahead, const float* __restrict__ back, int closed, float w_z, float w_y, float w_x,
         int planes, int rows, int words, int end, const int* __restrict__ tiles) {
    const Velocities f = {v_z,  v_y,  v_x,  nullptr, nullptr, nullptr, t_zz,
                          t_yy, t_xx, t_zy, t_zx,    t_yx,    rho,     1.0f};
    if constexpr (AHEAD_IN_TIME) {
        step<FORWARD, false>(f, {GIVEN_LAYERS}, {planes, rows, words, end}, {w_z, w_y, w_x, ahead, back, closed},
                             tiles);
    }
}

// Advance those of the adjoint.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    move_back(Word* __restrict__ v_z, Word* __restrict__ v_y, Word* __restrict__ v_x, const Word* __restrict__ t_zz,
         const Word* __restrict__ t_yy, const Word* __restrict__ t_xx, const Word* __restrict__ t_zy,
         const Word* __restrict__ t_zx, const Word* __restrict__ t_yx, const Word* __restrict__ rho, LAYERS,
         const float* __restrict__ ahead, const float* __restrict__ back, int closed, float w_z, float w_y, float w_x,
         int planes, int rows, int words, int end, const int* __restrict__ tiles) {
    const Velocities f = {v_z,  v_y,  v_x,  nullptr, nullptr, nullptr, t_zz,
                          t_yy, t_xx, t_zy, t_zx,    t_yx,    rho,     1.0f};
    if constexpr (BACK_IN_TIME) {
        step<BACK, false>(f, {GIVEN_LAYERS}, {planes, rows, words, end}, {w_z, w_y, w_x, ahead, back, closed},
                          tiles);
    }
}

// Add the products of velocities with what the adjoint's stresses do to them, times a factor, to totals.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, 1)
    sense_move(Word* __restrict__ total_z, Word* __restrict__ total_y, Word* __restrict__ total_x,
               const Word* __restrict__ v_z, const Word* __restrict__ v_y, const Word* __restrict__ v_x,
               const Word* __restrict__ t_zz, const Word* __restrict__ t_yy, const Word* __restrict__ t_xx,
               const Word* __restrict__ t_zy, const Word* __restrict__ t_zx, const Word* __restrict__ t_yx,
               float factor, LAYERS, const float* __restrict__ ahead, const float* __restrict__ back, int closed,
               float w_z, float w_y, float w_x, int planes, int rows, int words, int end,
               const int* __restrict__ tiles) {
    const Velocities f = {total_z, total_y, total_x, v_z,  v_y,  v_x,     t_zz,
                          t_yy,    t_xx,    t_zy,    t_zx, t_yx, nullptr, factor};
    if constexpr (SENSING) {
        step<BACK, true>(f, {GIVEN_LAYERS}, {planes, rows, words, end}, {w_z, w_y, w_x, ahead, back, closed},
                         tiles);
    }
}
