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

// The strains of a word, the shear ones twice.
struct Strains {
    Word zz, yy, xx, zy, zx, yx;
};

// The velocities around a word, and their derivatives.
struct March {
    Queue<0> z;
    Queue<1> y, x;
    Word last_z, last_y, last_x;

    __device__ void load(const Word* v_z, const Word* v_y, const Word* v_x, u32 here, u32 plane) {
        last_z = Queue<0>::last(v_z + here, plane);
        if constexpr (AXES == 3) last_y = Queue<1>::last(v_y + here, plane);
        last_x = Queue<1>::last(v_x + here, plane);
    }

    __device__ void begin(const Word* v_z, const Word* v_y, const Word* v_x, u32 here, u32 plane) {
        z.fill(v_z + here, plane);
        if constexpr (AXES == 3) y.fill(v_y + here, plane);
        x.fill(v_x + here, plane);
        load(v_z, v_y, v_x, here, plane);
    }

    __device__ void push() {
        z.push(last_z);
        if constexpr (AXES == 3) y.push(last_y);
        x.push(last_x);
    }

    __device__ void normal(Strains& e, const Word* v_y, const Word* v_x, int words, const Slopes& w, int plane) const {
        e.zz = z.slope(w.of(w.back, plane), w.z);
        const Word along = along_x<0>(v_x, x.centre());
        e.xx = each([&](int i) { return w.x * along.at[i]; });
        if constexpr (AXES == 3) {
            const Word aside = along_y<0>(v_y, words, y.centre());
            e.yy = each([&](int i) { return w.y * aside.at[i]; });
        }
    }

    __device__ void shear(Strains& e, const Word* v_z, const Word* v_y, const Word* v_x, int words, const Slopes& w,
                          int plane) const {
        const float* ahead = w.of(w.ahead, plane);
        const Word down = x.slope(ahead, w.z), along = along_x<1>(v_z, z.centre());
        e.zx = each([&](int i) { return fmaf(w.x, along.at[i], down.at[i]); });
        if constexpr (AXES == 3) {
            const Word deeper = y.slope(ahead, w.z), aside = along_y<1>(v_z, words, z.centre());
            e.zy = each([&](int i) { return fmaf(w.y, aside.at[i], deeper.at[i]); });
            const Word one = along_y<1>(v_x, words, x.centre()), other = along_x<1>(v_y, y.centre());
            e.yx = each([&](int i) { return fmaf(w.x, other.at[i], w.y * one.at[i]); });
        }
    }
};

template <bool pictured>
__device__ inline void sweep(const Stresses& f, Layers g, const Shape& shape, const Slopes& w) {
    const Column column(shape);
    if (column.begin >= column.end) return;
    const u32 plane = column.plane;
    const int words = column.words;
    u32 here = column.here;
    g.begin(column);
    const Window& window = f.picture.window;
    const bool covered = pictured && window.covers(column);
    const u32 start = pictured ? window.start(column) : 0;

    March v;
    v.begin(f.v_z, f.v_y, f.v_x, here, plane);
    Softness next = Soft::of(f.softness + here, words).sums();
    Loaded coming = {};
    if (EARLY) coming = Loaded::of(f, here, plane, words);

    for (int z = column.begin; z < column.end; ++z, here += plane) {
        unforeseen(here);
        v.push();
        const bool seen = covered && window.reaches(z);
        const u32 across_window = window.rows * window.words, at = start + z * across_window;
        if (covered && window.reaches(z + 1)) {  // into the cache: for registers there are too few
            fetch_ahead(f.picture.seen + at + across_window);
            fetch_ahead(f.picture.image + at + across_window);
            fetch_ahead(f.picture.light + at + across_window);
        }
        const Loaded loaded = EARLY ? coming : Loaded::of(f, here, plane, words);
        // The last plane is loaded twice: a branch here would be moved behind the computation.
        const u32 there = here + (z + 1 < column.end ? plane : 0);
        v.load(f.v_z, f.v_y, f.v_x, there, plane);
        if (EARLY) coming = Loaded::of(f, there, plane, words);
        if (AHEAD > 1 && z + AHEAD < column.end) Loaded::fetch(f, here + AHEAD * plane);
        const Softness soft = next;
        next = loaded.further.sums();
        const bool fades = g.fades(z);

        Strains e;
        v.normal(e, f.v_y + here, f.v_x + here, words, w, z);
        const Word trace = each([&](int i) {
            return AXES == 3 ? e.zz.at[i] + e.yy.at[i] + e.xx.at[i] : e.zz.at[i] + e.xx.at[i];
        });
        const Word twice = each([&](int i) { return inverse(soft.here.at[i] + soft.here.at[i]); });
        const float across = fades ? g.g_z[z] * g.g_row : 1;
        const auto normal = [&](Word* field, const Word& before, const Word& strain, bool nothing) {
            const Word push = each([&](int i) { return loaded.lam.at[i] * trace.at[i]; });
            const Word both = each([&](int i) { return fmaf(twice.at[i], strain.at[i], push.at[i]); });
            const Word one = each([](int) { return 1.0f; });
            const Word after = advanced(before, one, both, fades, across, g.g_x + column.word);
            put(field + here, nothing ? Word{} : column.trimmed(after));
        };
        normal(f.zz, loaded.zz, e.zz, z == f.surface);
        if constexpr (AXES == 3) normal(f.yy, loaded.yy, e.yy, false);
        normal(f.xx, loaded.xx, e.xx, false);
        if (seen) {
            const Word other = once(f.picture.seen + at);
            const Word image = once(f.picture.image + at), light = once(f.picture.light + at);
            const Word scaled = each([&](int i) { return f.picture.factor * other.at[i]; });
            put(f.picture.image + at, each([&](int i) { return fmaf(scaled.at[i], trace.at[i], image.at[i]); }));
            put(f.picture.light + at, each([&](int i) { return fmaf(scaled.at[i], other.at[i], light.at[i]); }));
        }

        v.shear(e, f.v_z + here, f.v_y + here, f.v_x + here, words, w, z);
        const auto shear = [&](Word* field, const Word& before, const Word& by, const Word& strain, float beside,
                               const Word* along) {
            put(field + here, column.trimmed(advanced(before, by, strain, fades, fades ? beside : 1, along)));
        };
        shear(f.zx, loaded.zx, inverse(sum(soft.zx, next.zx)), e.zx, g.h_z[z] * g.g_row, g.h_x + column.word);
        if constexpr (AXES == 3) {
            shear(f.zy, loaded.zy, inverse(sum(soft.zy, next.zy)), e.zy, g.h_z[z] * g.h_row, g.g_x + column.word);
            shear(f.yx, loaded.yx, inverse(soft.yx), e.yx, g.g_z[z] * g.h_row, g.h_x + column.word);
        }
    }
}

// Advance the stresses.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    strain(Word* __restrict__ t_zz, Word* __restrict__ t_yy, Word* __restrict__ t_xx, Word* __restrict__ t_zy,
           Word* __restrict__ t_zx, Word* __restrict__ t_yx, const Word* __restrict__ v_z, const Word* __restrict__ v_y,
           const Word* __restrict__ v_x, const Word* __restrict__ lam, const Word* __restrict__ softness, int surface,
           const float* __restrict__ g_z, const float* __restrict__ h_z, const float* __restrict__ g_y,
           const float* __restrict__ h_y, const Word* __restrict__ g_x, const Word* __restrict__ h_x,
           const float* __restrict__ ahead, const float* __restrict__ back, int closed, float w_z, float w_y, float w_x,
           int planes, int rows, int words, int end, int chunk) {
    const Stresses f = {t_zz, t_yy, t_xx, t_zy, t_zx, t_yx, v_z, v_y, v_x, lam, softness, surface, {}};
    sweep<false>(f, {g_z, h_z, g_y, h_y, g_x, h_x, 1, 1, false}, {planes, rows, words, end, chunk},
                 {w_z, w_y, w_x, ahead, back, closed});
}

// Advance the stresses, and add the product of the velocities' divergence with `seen` to the image and the square of
// `seen` to the light.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, BLOCKS)
    strain_and_image(Word* __restrict__ t_zz, Word* __restrict__ t_yy, Word* __restrict__ t_xx,
                     Word* __restrict__ t_zy, Word* __restrict__ t_zx, Word* __restrict__ t_yx,
                     const Word* __restrict__ v_z, const Word* __restrict__ v_y, const Word* __restrict__ v_x,
                     const Word* __restrict__ lam, const Word* __restrict__ softness, int surface,
                     const float* __restrict__ g_z, const float* __restrict__ h_z, const float* __restrict__ g_y,
                     const float* __restrict__ h_y, const Word* __restrict__ g_x, const Word* __restrict__ h_x,
                     const float* __restrict__ ahead, const float* __restrict__ back, int closed, float w_z, float w_y,
                     float w_x, int planes, int rows, int words, int end, int chunk, const Word* __restrict__ seen,
                     Word* __restrict__ image, Word* __restrict__ light, float factor, int first_plane, int first_row,
                     int first_word, int seen_planes, int seen_rows, int seen_words) {
    const Picture picture = {
        seen, image, light, factor, {first_plane, first_row, first_word, seen_planes, seen_rows, seen_words}};
    const Stresses f = {t_zz, t_yy, t_xx, t_zy, t_zx, t_yx, v_z, v_y, v_x, lam, softness, surface, picture};
    sweep<true>(f, {g_z, h_z, g_y, h_y, g_x, h_x, 1, 1, false}, {planes, rows, words, end, chunk},
                {w_z, w_y, w_x, ahead, back, closed});
}

// Add the products of stresses with the strains of velocities, times a factor, to totals: of the traces of both, of the
// normal ones, and of each shear stress.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y, 1)
    sense_strain(Word* __restrict__ traces, Word* __restrict__ inner, Word* __restrict__ total_zy,
                 Word* __restrict__ total_zx, Word* __restrict__ total_yx, const Word* __restrict__ t_zz,
                 const Word* __restrict__ t_yy, const Word* __restrict__ t_xx, const Word* __restrict__ t_zy,
                 const Word* __restrict__ t_zx, const Word* __restrict__ t_yx, const Word* __restrict__ v_z,
                 const Word* __restrict__ v_y, const Word* __restrict__ v_x, float factor,
                 const float* __restrict__ ahead, const float* __restrict__ back, int closed, float w_z, float w_y,
                 float w_x, int planes, int rows, int words, int end, int chunk) {
    const Column column({planes, rows, words, end, chunk});
    if (column.begin >= column.end) return;
    const Slopes w = {w_z, w_y, w_x, ahead, back, closed};
    u32 here = column.here;
    March v;
    v.begin(v_z, v_y, v_x, here, column.plane);
    for (int z = column.begin; z < column.end; ++z, here += column.plane) {
        unforeseen(here);
        v.push();
        v.load(v_z, v_y, v_x, here + (z + 1 < column.end ? column.plane : 0), column.plane);
        Strains e;
        v.normal(e, v_y + here, v_x + here, column.words, w, z);
        v.shear(e, v_z + here, v_y + here, v_x + here, column.words, w, z);
        const auto add = [&](Word* total, const Word& one, const Word& other) {
            const Word before = once(total + here);
            put(total + here, column.trimmed(each([&](int i) {
                    return fmaf(factor * one.at[i], other.at[i], before.at[i]);
                })));
        };
        const Word zz = once(t_zz + here), yy = AXES == 3 ? once(t_yy + here) : Word{}, xx = once(t_xx + here);
        if constexpr (AXES == 2) e.yy = Word{};
        add(traces, each([&](int i) { return zz.at[i] + yy.at[i] + xx.at[i]; }),
            each([&](int i) { return e.zz.at[i] + e.yy.at[i] + e.xx.at[i]; }));
        const Word product = each([&](int i) {
            return fmaf(zz.at[i], e.zz.at[i], fmaf(yy.at[i], e.yy.at[i], xx.at[i] * e.xx.at[i]));
        });
        add(inner, product, each([](int) { return 1.0f; }));
        add(total_zx, once(t_zx + here), e.zx);
        if constexpr (AXES == 3) {
            add(total_zy, once(t_zy + here), e.zy);
            add(total_yx, once(t_yx + here), e.yx);
        }
    }
}
