// The second half of an elastic step on a GPU: velocities change stresses; the twin of elastic_cpu_stress.py.
//
// In three dimensions 17 words are read or written for each of the stresses' points: the three velocities, lam, the
// softness, and the six stresses twice. Stiffnesses are averaged here: one array is read in the place of four. The sum
// of the normal strains is the divergence of the velocities, so an image of pressure waves is made on the way.

#include "elastic.cuh"

// The softness 1 / mu over 4 dt of a plane, summed over the points around the shear stresses in it; infinite in fluids.
struct Softness {
    Word here, zy, zx, yx;

    __device__ static Softness of(const Word& here, const Word& beside, float after, float beyond) {
        Softness found = {};
        found.here = here;
        found.zx = sum(here, moved(here, after));
        if constexpr (AXES == 3) {
            found.zy = sum(here, beside);
            found.yx = sum(found.zx, sum(beside, moved(beside, beyond)));
        }
        return found;
    }
};

struct Soft {
    Word here, beside;
    float after, beyond;

    __device__ static Soft of(const Word* __restrict__ softness, int words) {
        Soft found = {};
        found.here = shared(softness);
        found.after = __ldg(reinterpret_cast<const float*>(softness + 1));
        if constexpr (AXES == 3) {
            found.beside = shared(softness + words);
            found.beyond = __ldg(reinterpret_cast<const float*>(softness + words + 1));
        }
        return found;
    }

    __device__ Softness sums() const { return Softness::of(here, beside, after, beyond); }
};

__device__ inline Word inverse(const Word& word) {
    return each([&](int i) { return inverse(word.at[i]); });
}

// The part of a field that images cover: where it begins, and its extents, in words along rows.
struct Window {
    int z, y, word, planes, rows, words;

    __device__ bool covers(const Column& column) const {
        const bool across = AXES == 2 || (column.row >= y && column.row < y + rows);
        return across && column.word >= word && column.word < word + words;
    }

    __device__ bool reaches(int plane) const { return plane >= z && plane < z + planes; }

    // The word's place in plane 0, which may be before the window's first: counted modulo 2^32.
    __device__ u32 start(const Column& column) const {
        const u32 row = AXES == 3 ? column.row - y : 0;
        return (row - z * rows) * words + (column.word - word);
    }
};

// What an image is made of: the divergence of the other wave, and what is added to.
struct Picture {
    const Word* seen;
    Word *image, *light;
    float factor;
    Window window;
};

struct Stresses {
    Word *zz, *yy, *xx, *zy, *zx, *yx;
    const Word *v_z, *v_y, *v_x, *lam, *softness;
    int surface;  // the plane of a free surface, or 0
    Picture picture;
};

constexpr int STAGES = 8 + AXES;  // words that a thread loads ahead, with those of memory

struct Loaded {
    Word zz, yy, xx, zy, zx, yx, lam;
    Soft further;  // of the next plane

    __device__ static Loaded of(const Stresses& f, u32 here, u32 plane, int words) {
        Loaded found = {};
        found.zz = once(f.zz + here);
        found.xx = once(f.xx + here);
        found.zx = once(f.zx + here);
        if constexpr (AXES == 3) {
            found.yy = once(f.yy + here);
            found.zy = once(f.zy + here);
            found.yx = once(f.yx + here);
        }
        found.lam = once(f.lam + here);
        found.further = Soft::of(f.softness + here + plane, words);
        return found;
    }

    __device__ static void ask(const Stage<STAGES>& stage, const Stresses& f, u32 here, u32 plane) {
        stage.ask(0, f.zz + here);
        stage.ask(1, f.xx + here);
        stage.ask(2, f.zx + here);
        stage.ask(3, f.lam + here);
        stage.ask(4, f.softness + here + plane);
        if constexpr (AXES == 3) {
            stage.ask(5, f.yy + here);
            stage.ask(6, f.zy + here);
            stage.ask(7, f.yx + here);
        }
    }

    __device__ static Loaded take(const Stage<STAGES>& stage, const Stresses& f, u32 here, u32 plane, int words) {
        Loaded found = {};
        stage.wait();
        found.zz = stage.take(0, f.zz + here);
        found.xx = stage.take(1, f.xx + here);
        found.zx = stage.take(2, f.zx + here);
        found.lam = stage.take(3, f.lam + here);
        const Word* softness = f.softness + here + plane;
        found.further.here = stage.take(4, softness);
        found.further.after = __ldg(reinterpret_cast<const float*>(softness + 1));
        if constexpr (AXES == 3) {
            found.yy = stage.take(5, f.yy + here);
            found.zy = stage.take(6, f.zy + here);
            found.yx = stage.take(7, f.yx + here);
            found.further.beside = shared(softness + words);
            found.further.beyond = __ldg(reinterpret_cast<const float*>(softness + words + 1));
        }
        return found;
    }

    __device__ static void fetch(const Stresses& f, u32 here) {
        fetch_ahead(f.zz + here);
        fetch_ahead(f.xx + here);
        fetch_ahead(f.zx + here);
        if constexpr (AXES == 3) {
            fetch_ahead(f.yy + here);
            fetch_ahead(f.zy + here);
            fetch_ahead(f.yx + here);
        }
        fetch_ahead(f.lam + here);
    }
};

// The strains of a word, the shear ones twice; and two parts of the divergence of the velocities themselves.
struct Strains {
    Word zz, yy, xx, zy, zx, yx, down, aside;
};

// The derivative along depth of a field at the half points before a word.
__device__ inline Word deep_slope(const Word* __restrict__ field, u32 plane, const Slopes& w, int z) {
    Queue<0> queue;
    queue.fill(field, plane);
    queue.push(Queue<0>::last(field, plane));
    return queue.slope(w.of(w.back, z), w.z);
}

using AllSlabs = Slabs<BACK, ON_Z | ON_Y | ON_X, AXES, 0>;

// What strains in the layers owe to the medium: their products with the memory of the adjoint's stresses, which is kept
// in its state but for that of their trace.
struct Sensed {
    const AllSlabs &layers, &traced;
    const Slopes& w;
    const Word& trace;
    mutable Word traces, inner, zy, zx, yx;

    __device__ void add(int axis, int of, const Word& memory, const Word& slope, float scale) const {
        Word& total = axis == of ? inner : axis + of == X ? zx : AXES == 3 && axis + of == Y ? zy : yx;
        total = each([&](int i) { return fmaf(scale * memory.at[i], slope.at[i], total.at[i]); });
    }

    __device__ void add_traces(const Word& memory, const Word& slope, float scale) const {
        traces = each([&](int i) { return fmaf(scale * memory.at[i], slope.at[i], traces.at[i]); });
    }

    template <int half>
    __device__ Word z_of(int of, const Word& slope) const {
        const int place = layers.slot_z(layers.z);
        if (place >= 0) add(Z, of, shared(layers.at_z(AXES + of, place)), slope, 1.0f);
        if (place >= 0 && of == Z) add_traces(traced.remember_z<0>(0, trace), slope, 1.0f);
        return slope;
    }

    template <int half>
    __device__ Word y_of(int of, const Word& slope) const {
        if (layers.slot_y >= 0) add(Y, of, shared(layers.at_y(AXES + of, layers.slot_y, layers.z)), slope, w.y);
        if (layers.slot_y >= 0 && of == Y) add_traces(traced.remember_y<0>(0, trace), slope, w.y);
        return slope;
    }

    template <int half>
    __device__ Word x_of(int of, const Word& slope) const {
        if (layers.slot_x >= 0) add(X, of, shared(layers.at_x(AXES + of, layers.slot_x, layers.z)), slope, w.x);
        if (layers.slot_x >= 0 && of == X) add_traces(traced.remember_x<0>(0, trace), slope, w.x);
        return slope;
    }

    template <int half>
    __device__ Word centre(const Queue<half>& queue, const Word*) const {
        return queue.centre();
    }

    template <int half>
    __device__ void fill(Queue<half>& queue, int, const Word* __restrict__ field, int) const {
        queue.fill(field, layers.plane);
    }

    template <int half>
    __device__ void push(Queue<half>& queue, int, const Word& last) const {
        queue.push(last);
    }
};

// The velocities around a word, and their derivatives, of which layers make something else.
struct March {
    Queue<0> z;
    Queue<1> y, x;
    Word last_z, last_y, last_x;

    __device__ void load(const Word* v_z, const Word* v_y, const Word* v_x, u32 here, u32 plane) {
        last_z = Queue<0>::last(v_z + here, plane);
        if constexpr (AXES == 3) last_y = Queue<1>::last(v_y + here, plane);
        last_x = Queue<1>::last(v_x + here, plane);
    }

    template <typename Slabs>
    __device__ void begin(const Word* v_z, const Word* v_y, const Word* v_x, u32 here, u32 plane, const Slabs& layers,
                          int first) {
        layers.fill(z, Z, v_z + here, first);
        if constexpr (AXES == 3) layers.fill(y, Y, v_y + here, first);
        layers.fill(x, X, v_x + here, first);
        load(v_z, v_y, v_x, here, plane);
    }

    template <typename Slabs>
    __device__ void push(const Slabs& layers) {
        layers.push(z, Z, last_z);
        if constexpr (AXES == 3) layers.push(y, Y, last_y);
        layers.push(x, X, last_x);
    }

    // Return the part of the divergence of the velocities that is along planes, without what layers add.
    template <typename Slabs>
    __device__ Word normal(Strains& e, const Word* v_y, const Word* v_x, int words, const Slopes& w,
                           const Slabs& layers, int plane) const {
        const Word along = along_x<0>(v_x, layers.centre(x, v_x));
        Word aside = {};
        if constexpr (AXES == 3) aside = along_y<0>(v_y, words, layers.centre(y, v_y));
        const Word stretched = layers.template x_of<0>(X, along);
        e.down = z.slope(w.of(w.back, plane), w.z);
        e.zz = layers.template z_of<0>(Z, e.down);
        e.xx = each([&](int i) { return w.x * stretched.at[i]; });
        if constexpr (AXES == 3) {
            const Word beside = layers.template y_of<0>(Y, aside);
            e.yy = each([&](int i) { return w.y * beside.at[i]; });
        }
        e.aside = each([&](int i) { return w.y * aside.at[i]; });
        return each([&](int i) { return w.x * along.at[i]; });
    }

    template <typename Slabs>
    __device__ void shear(Strains& e, const Word* v_z, const Word* v_y, const Word* v_x, int words, const Slopes& w,
                          const Slabs& layers, int plane) const {
        const float* ahead = w.of(w.ahead, plane);
        const Word middle = layers.centre(z, v_z);
        const Word down = layers.template z_of<1>(X, x.slope(ahead, w.z));
        const Word along = layers.template x_of<1>(Z, along_x<1>(v_z, middle));
        e.zx = each([&](int i) { return fmaf(w.x, along.at[i], down.at[i]); });
        if constexpr (AXES == 3) {
            const Word deeper = layers.template z_of<1>(Y, y.slope(ahead, w.z));
            const Word aside = layers.template y_of<1>(Z, along_y<1>(v_z, words, middle));
            e.zy = each([&](int i) { return fmaf(w.y, aside.at[i], deeper.at[i]); });
            const Word one = layers.template y_of<1>(X, along_y<1>(v_x, words, layers.centre(x, v_x)));
            const Word other = layers.template x_of<1>(Y, along_x<1>(v_y, layers.centre(y, v_y)));
            e.yx = each([&](int i) { return fmaf(w.x, other.at[i], w.y * one.at[i]); });
        }
    }
};

template <Way way, int on, bool pictured>
__device__ inline void sweep(const Stresses& f, const Layers& layers, const Shape& shape, const Column& column,
                             const Slopes& w) {
    const u32 plane = column.plane;
    const int words = column.words;
    u32 here = column.here;
    const Stage<STAGES> stage(STAGED);
    Slabs<way, on, AXES, STAGES> slabs(layers, column, shape, &stage);
    const Window& window = f.picture.window;
    const bool covered = pictured && window.covers(column);
    const u32 start = pictured ? window.start(column) : 0;

    March v;
    v.begin(f.v_z, f.v_y, f.v_x, here, plane, slabs, column.begin);
    Softness next = Soft::of(f.softness + here, words).sums();
    Loaded coming = {};
    if (STAGED) {
        Loaded::ask(stage, f, here, plane);
        if constexpr (on != NONE) slabs.ask(column.begin);
        stage.asked();
    } else if (EARLY) {
        coming = Loaded::of(f, here, plane, words);
    }

    for (int z = column.begin; z < column.end; ++z, here += plane) {
        unforeseen(here);
        slabs.z = z;
        v.push(slabs);
        const bool seen = covered && window.reaches(z);
        const u32 across_window = window.rows * window.words, at = start + z * across_window;
        if (covered && window.reaches(z + 1)) {  // into the cache: for registers there are too few
            fetch_ahead(f.picture.seen + at + across_window);
            fetch_ahead(f.picture.image + at + across_window);
            fetch_ahead(f.picture.light + at + across_window);
        }
        const Loaded loaded = STAGED  ? Loaded::take(stage, f, here, plane, words)
                              : EARLY ? coming
                                      : Loaded::of(f, here, plane, words);
        // The last plane is loaded twice: a branch here would be moved behind the computation.
        const bool ends = z + 1 == column.end;
        const u32 there = here + (ends ? 0 : plane);
        v.load(f.v_z, f.v_y, f.v_x, there, plane);
        if (STAGED) {
            Loaded::ask(stage, f, there, plane);
        } else if (EARLY) {
            coming = Loaded::of(f, there, plane, words);
        }
        if (AHEAD > 1 && z + AHEAD < column.end) Loaded::fetch(f, here + AHEAD * plane);
        const Softness soft = next;
        next = loaded.further.sums();
        constexpr bool fades = on != NONE;

        Strains e;
        const Word along = v.normal(e, f.v_y + here, f.v_x + here, words, w, slabs, z);
        const Word trace = each([&](int i) {
            return AXES == 3 ? e.zz.at[i] + e.yy.at[i] + e.xx.at[i] : e.zz.at[i] + e.xx.at[i];
        });
        const Word twice = each([&](int i) { return inverse(soft.here.at[i] + soft.here.at[i]); });
        Word fade = {};
        if constexpr (fades) fade = slabs.template fade<0, 0, 0>();
        const auto normal = [&](Word* field, const Word& before, const Word& strain, bool nothing) {
            const Word push = each([&](int i) { return loaded.lam.at[i] * trace.at[i]; });
            const Word both = each([&](int i) { return fmaf(twice.at[i], strain.at[i], push.at[i]); });
            const Word one = each([](int) { return 1.0f; });
            const Word found = fades ? advanced(before, one, both, fade) : sum(before, both);
            const Word after = nothing ? Word{} : column.trimmed(found);
            put(field + here, after);
            return after;
        };
        Word found = normal(f.zz, loaded.zz, e.zz, z == f.surface);
        if constexpr (way == BACK) slabs.template remember_z<0>(AXES + Z, found);
        if constexpr (AXES == 3) {
            found = normal(f.yy, loaded.yy, e.yy, false);
            if constexpr (way == BACK) slabs.template remember_y<0>(AXES + Y, found);
        }
        found = normal(f.xx, loaded.xx, e.xx, false);
        if constexpr (way == BACK) slabs.template remember_x<0>(AXES + X, found);
        if (seen) {
            const Word other = once(f.picture.seen + at);
            const Word image = once(f.picture.image + at), light = once(f.picture.light + at);
            const Word scaled = each([&](int i) { return f.picture.factor * other.at[i]; });
            if constexpr (slabs.doubled) e.down = deep_slope(f.v_z + here, plane, w, z);
            const Word plain = each([&](int i) {
                return (AXES == 3 ? e.down.at[i] + e.aside.at[i] : e.down.at[i]) + along.at[i];
            });
            put(f.picture.image + at, each([&](int i) { return fmaf(scaled.at[i], plain.at[i], image.at[i]); }));
            put(f.picture.light + at, each([&](int i) { return fmaf(scaled.at[i], other.at[i], light.at[i]); }));
        }

        v.shear(e, f.v_z + here, f.v_y + here, f.v_x + here, words, w, slabs, z);
        const auto shear = [&](Word* field, const Word& before, const Word& by, const Word& strain) {
            const Word found = fades ? advanced(before, by, strain, fade) : advanced(before, by, strain);
            const Word after = column.trimmed(found);
            put(field + here, after);
            return after;
        };
        if constexpr (fades) fade = slabs.template fade<1, 0, 1>();
        found = shear(f.zx, loaded.zx, inverse(sum(soft.zx, next.zx)), e.zx);
        if constexpr (way == BACK) {
            slabs.template remember_z<1>(AXES + X, found);
            slabs.template remember_x<1>(AXES + Z, found);
        }
        if constexpr (AXES == 3) {
            if constexpr (fades) fade = slabs.template fade<1, 1, 0>();
            found = shear(f.zy, loaded.zy, inverse(sum(soft.zy, next.zy)), e.zy);
            if constexpr (way == BACK) {
                slabs.template remember_z<1>(AXES + Y, found);
                slabs.template remember_y<1>(AXES + Z, found);
            }
            if constexpr (fades) fade = slabs.template fade<0, 1, 1>();
            found = shear(f.yx, loaded.yx, inverse(soft.yx), e.yx);
            if constexpr (way == BACK) {
                slabs.template remember_y<1>(AXES + X, found);
                slabs.template remember_x<1>(AXES + Y, found);
            }
        }
        if constexpr (fades) {
            if (!ends) slabs.ask(z + 1);
        }
        if (STAGED) stage.asked();
    }
}

// Choose by the thread block: only those with layers pay for them.
template <Way way, bool pictured>
__device__ inline void step(const Stresses& f, const Layers& layers, const Shape& shape, const Slopes& w,
                            const int* __restrict__ tiles) {
    const Tile& tile = Tile::of(tiles);
    const Column column(shape, tile);
    if (column.begin >= column.end) return;
    constexpr int aside = AXES == 3 ? ON_Y : NONE;
    if (tile.axes == NONE) {
        sweep<way, NONE, pictured>(f, layers, shape, column, w);
    } else if (tile.axes == ON_X) {
        sweep<way, ON_X, pictured>(f, layers, shape, column, w);
    } else if (!(tile.axes & ON_Y)) {
        sweep<way, ON_Z | ON_X, pictured>(f, layers, shape, column, w);
    } else if (!(tile.axes & ON_Z)) {
        sweep<way, aside | ON_X, pictured>(f, layers, shape, column, w);
    } else {
        sweep<way, ON_Z | aside | ON_X, pictured>(f, layers, shape, column, w);
    }
}

// Advance the stresses.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    strain(Word* __restrict__ t_zz, Word* __restrict__ t_yy, Word* __restrict__ t_xx, Word* __restrict__ t_zy,
           Word* __restrict__ t_zx, Word* __restrict__ t_yx, const Word* __restrict__ v_z, const Word* __restrict__ v_y,
           const Word* __restrict__ v_x, const Word* __restrict__ lam, const Word* __restrict__ softness, int surface,
           LAYERS, const float* __restrict__ ahead, const float* __restrict__ back, int closed, float w_z, float w_y,
           float w_x, int planes, int rows, int words, int end, const int* __restrict__ tiles) {
    const Stresses f = {t_zz, t_yy, t_xx, t_zy, t_zx, t_yx, v_z, v_y, v_x, lam, softness, surface, {}};
    if constexpr (AHEAD_IN_TIME) {
        step<FORWARD, false>(f, {GIVEN_LAYERS}, {planes, rows, words, end}, {w_z, w_y, w_x, ahead, back, closed},
                             tiles);
    }
}

// Advance those of the adjoint.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    strain_back(Word* __restrict__ t_zz, Word* __restrict__ t_yy, Word* __restrict__ t_xx, Word* __restrict__ t_zy,
                Word* __restrict__ t_zx, Word* __restrict__ t_yx, const Word* __restrict__ v_z,
                const Word* __restrict__ v_y, const Word* __restrict__ v_x, const Word* __restrict__ lam,
                const Word* __restrict__ softness, int surface, LAYERS, const float* __restrict__ ahead,
                const float* __restrict__ back, int closed, float w_z, float w_y, float w_x, int planes, int rows,
                int words, int end, const int* __restrict__ tiles) {
    const Stresses f = {t_zz, t_yy, t_xx, t_zy, t_zx, t_yx, v_z, v_y, v_x, lam, softness, surface, {}};
    if constexpr (BACK_IN_TIME) {
        step<BACK, false>(f, {GIVEN_LAYERS}, {planes, rows, words, end}, {w_z, w_y, w_x, ahead, back, closed},
                          tiles);
    }
}

// Advance those of the adjoint, and add the product of its velocities' divergence with `seen` to the image and the
// square of `seen` to the light.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    strain_and_image(Word* __restrict__ t_zz, Word* __restrict__ t_yy, Word* __restrict__ t_xx,
                     Word* __restrict__ t_zy, Word* __restrict__ t_zx, Word* __restrict__ t_yx,
                     const Word* __restrict__ v_z, const Word* __restrict__ v_y, const Word* __restrict__ v_x,
                     const Word* __restrict__ lam, const Word* __restrict__ softness, int surface, LAYERS,
                     const float* __restrict__ ahead, const float* __restrict__ back, int closed, float w_z, float w_y,
                     float w_x, int planes, int rows, int words, int end, const int* __restrict__ tiles, const Word* __restrict__ seen,
                     Word* __restrict__ image, Word* __restrict__ light, float factor, int first_plane, int first_row,
                     int first_word, int seen_planes, int seen_rows, int seen_words) {
    const Picture picture = {
        seen, image, light, factor, {first_plane, first_row, first_word, seen_planes, seen_rows, seen_words}};
    const Stresses f = {t_zz, t_yy, t_xx, t_zy, t_zx, t_yx, v_z, v_y, v_x, lam, softness, surface, picture};
    if constexpr (IMAGING) {
        step<BACK, true>(f, {GIVEN_LAYERS}, {planes, rows, words, end}, {w_z, w_y, w_x, ahead, back, closed},
                         tiles);
    }
}

// Add the products of the adjoint's stresses with the strains of velocities, times a factor, to totals: of the traces of
// both, of the normal ones, and of each shear stress. `traced` is the memory of the stresses' trace.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, 1)
    sense_strain(Word* __restrict__ traces, Word* __restrict__ inner, Word* __restrict__ total_zy,
                 Word* __restrict__ total_zx, Word* __restrict__ total_yx, const Word* __restrict__ t_zz,
                 const Word* __restrict__ t_yy, const Word* __restrict__ t_xx, const Word* __restrict__ t_zy,
                 const Word* __restrict__ t_zx, const Word* __restrict__ t_yx, const Word* __restrict__ v_z,
                 const Word* __restrict__ v_y, const Word* __restrict__ v_x, float factor, LAYERS, Word* traced,
                 const float* __restrict__ held_a_z, const float* __restrict__ held_b_z,
                 const float* __restrict__ held_a_y, const float* __restrict__ held_b_y,
                 const Word* __restrict__ held_a_x, const Word* __restrict__ held_b_x,
                 const float* __restrict__ ahead, const float* __restrict__ back, int closed, float w_z, float w_y,
                 float w_x, int planes, int rows, int words, int end, const int* __restrict__ tiles) {
    if constexpr (!SENSING) return;
    const Shape shape = {planes, rows, words, end};
    const Column column(shape, Tile::of(tiles));
    if (column.begin >= column.end) return;
    const Slopes w = {w_z, w_y, w_x, ahead, back, closed};
    const Layers of_traces = {traced,   held_a_z, held_b_z, g_z,   held_a_y, held_b_y, g_y,   held_a_x,
                              held_b_x, g_x,      z_low,    z_high, y_low,    y_high,   x_low, x_high};
    AllSlabs layers({GIVEN_LAYERS}, column, shape, nullptr);
    AllSlabs over_traces(of_traces, column, shape, nullptr, 1);
    u32 here = column.here;
    Word trace;
    const Sensed sensed = {layers, over_traces, w, trace, {}, {}, {}, {}, {}};
    March v;
    v.begin(v_z, v_y, v_x, here, column.plane, sensed, column.begin);
    for (int z = column.begin; z < column.end; ++z, here += column.plane) {
        unforeseen(here);
        v.push(sensed);
        v.load(v_z, v_y, v_x, here + (z + 1 < column.end ? column.plane : 0), column.plane);
        layers.z = over_traces.z = z;
        const Word zz = once(t_zz + here), yy = AXES == 3 ? once(t_yy + here) : Word{}, xx = once(t_xx + here);
        trace = each([&](int i) { return zz.at[i] + yy.at[i] + xx.at[i]; });
        sensed.traces = sensed.inner = sensed.zy = sensed.zx = sensed.yx = {};
        Strains e = {};
        v.normal(e, v_y + here, v_x + here, column.words, w, sensed, z);
        v.shear(e, v_z + here, v_y + here, v_x + here, column.words, w, sensed, z);
        const auto add = [&](Word* total, const Word& one, const Word& other, const Word& more) {
            const Word before = once(total + here);
            put(total + here, column.trimmed(each([&](int i) {
                    return fmaf(factor, fmaf(one.at[i], other.at[i], more.at[i]), before.at[i]);
                })));
        };
        add(traces, trace, each([&](int i) { return e.zz.at[i] + e.yy.at[i] + e.xx.at[i]; }), sensed.traces);
        const Word product = each([&](int i) {
            return fmaf(zz.at[i], e.zz.at[i], fmaf(yy.at[i], e.yy.at[i], xx.at[i] * e.xx.at[i]));
        });
        add(inner, product, each([](int) { return 1.0f; }), sensed.inner);
        add(total_zx, once(t_zx + here), e.zx, sensed.zx);
        if constexpr (AXES == 3) {
            add(total_zy, once(t_zy + here), e.zy, sensed.zy);
            add(total_yx, once(t_yx + here), e.yx, sensed.yx);
        }
    }
}
