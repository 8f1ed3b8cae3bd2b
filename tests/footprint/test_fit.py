"""Peaks made up from known formulas: few noisy samples give the terms back, and bounds that hold far away."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.footprint.fit.fast_lengths import next_fast_len
from forebay.footprint.fit.output import learn_output
from forebay.footprint.fit.peaks import fit
from forebay.footprint.fit.regression import Data, student_quantile
from forebay.footprint.fit.stages import follow
from forebay.footprint.fit.terms import candidates
from forebay.footprint.fit.timing import learn_timing
from forebay.footprint.measure.inputs import InputLayout

BATCH = 128 * 1024
SHAPES = [
    (14, 16, 18),
    (28, 32, 36),
    (123, 45, 51),
    (56, 192, 72),
    (41, 45, 153),
    (113, 128, 143),
    (159, 61, 203),
    (53, 181, 203),
]
FAR = [(300, 511, 402), (700, 211, 309), (251, 307, 587)]
FORMULAS = {
    "volume": lambda a, b, c: 16 * a * b * c,
    "volume and a panel": lambda a, b, c: 4 * a * b * c + 50 * b * c,
    "trimmed volume": lambda a, b, c: 220 * (a - 2) * (b - 2) * (c - 2),
    "padded transform": lambda a, b, c: a * b * (4 * c + 8 * next_fast_len(c + 32, 5)),
    "workspace and volume": lambda a, b, c: 3_000_000 + 12 * a * b * c,
    "square of an axis": lambda a, b, c: 4 * a * b * c + 40 * c * c,
}


def measured(formula, shapes, seed=0):
    """Read peaks as the kernel tells them: short by up to a batch of pages."""
    rng = np.random.default_rng(seed)
    return [formula(*shape) - rng.uniform(0, BATCH) for shape in shapes]


def volumes(shapes):
    return np.prod(np.array(shapes, dtype=float), axis=1)


def fitted(formula, shapes=SHAPES, seed=0):
    terms = candidates(InputLayout.of(len(shapes[0])))
    return fit(shapes, volumes(shapes), measured(formula, shapes, seed), terms, BATCH)


@pytest.mark.parametrize("name", FORMULAS)
def test_few_samples_foresee_shapes_many_times_larger_and_the_bound_holds(name):
    formula = FORMULAS[name]
    true = np.array([formula(*shape) for shape in FAR])
    estimate, upper = fitted(formula).predict(np.array(FAR, dtype=float), volumes(FAR), 0.01)
    assert np.abs(estimate / true - 1).mean() < 0.02
    assert (upper >= true).all()
    assert np.median(upper / true) < 1.25


def test_coefficients_are_bytes_per_element():
    assert fitted(FORMULAS["volume"]).coefficients["n0*n1*n2"] == pytest.approx(16, rel=0.005)


def test_the_bound_widens_beyond_what_was_sampled():
    found = fitted(FORMULAS["volume"])
    near, far = np.array([[400.0, 400, 400]]), np.array([[3200.0, 3200, 3200]])
    ratios = [upper / estimate for estimate, upper in (found.predict(p, volumes(p), 0.01) for p in (near, far))]
    assert ratios[1] > ratios[0] + 0.01


def test_a_smaller_risk_costs_a_wider_bound():
    found, point = fitted(FORMULAS["volume and a panel"]), np.array([[300.0, 300, 300]])
    bounds = [found.predict(point, volumes(point), risk)[1][0] for risk in (0.1, 0.01, 0.0001)]
    assert bounds[0] < bounds[1] < bounds[2]


def test_samples_below_a_fixed_workspace_are_left_out_where_another_rule_begins():
    def formula(a, b, c):
        return max(4_000_000, 8 * a * b * c)

    found = fitted(formula)
    estimate, upper = found.predict(np.array(FAR, dtype=float), volumes(FAR), 0.01)
    true = np.array([formula(*shape) for shape in FAR])
    assert np.abs(estimate / true - 1).max() < 0.03 and (upper >= true).all()
    assert not found.posterior.kept[0].all()


SMALLER = [
    (14, 16, 18),
    (28, 32, 36),
    (84, 32, 36),
    (41, 45, 153),
    (41, 135, 51),
    (56, 64, 72),
    (19, 64, 72),
    (64, 67, 65),
]


def test_bytes_an_element_are_whole_where_small_samples_leave_that_possible():
    point = np.array([[400.0, 500, 300]])
    for seed in range(6):
        found = fitted(lambda a, b, c: 200_000 + 12 * a * b * c, SMALLER, seed)
        estimate, upper = found.predict(point, volumes(point), 0.01)
        assert estimate == pytest.approx(12 * 6e7, rel=0.005) and upper >= 12 * 6e7


def test_bytes_that_are_not_whole_are_not_made_so():
    found = fitted(lambda a, b, c: 5.5 * a * b * c)
    assert found.coefficients["n0*n1*n2"] == pytest.approx(5.5, rel=0.01)


def test_what_works_in_pieces_needs_no_more_for_more_of_them():
    """Samples of NumPy's histogram."""
    peaks = {
        (45, 51): 49_152,
        (126, 142): 401_408,
        (540, 204): 2_744_320,
        (361, 1221): 3_162_112,
        (722, 814): 3_059_712,
        (325, 2925): 3_166_208,
        (2925, 325): 3_166_208,
        (361, 407): 3_096_576,
    }
    terms = candidates(InputLayout.of(2))
    found = fit(list(peaks), volumes(list(peaks)), list(peaks.values()), terms, BATCH)
    point = np.array([[6347.0, 7666.0]])
    estimate, upper = found.predict(point, volumes(point), 0.01)
    assert estimate == pytest.approx(3_170_304, rel=0.05) and upper >= 3_170_304


def test_a_square_of_less_than_half_a_byte_is_none():
    """Samples of NumPy's corrcoef, of which two stages overtake each other: a cube of 0.02 bytes follows them best."""
    peaks = {
        (45, 51): 65_536,
        (126, 142): 581_632,
        (387, 145): 2_211_840,
        (255, 867): 3_260_416,
        (722, 814): 11_571_200,
        (1533, 577): 29_835_264,
        (540, 204): 4_227_072,
        (511, 1731): 11_087_872,
    }
    terms = candidates(InputLayout.of(2), (), lambda lengths: lengths[0] ** 2)
    found = fit(list(peaks), volumes(list(peaks)), list(peaks.values()), terms, BATCH)
    point = np.array([[6347.0, 7666.0]])
    estimate, upper = found.predict(point, volumes(point), 0.01)
    assert estimate < 2 * 731_500_544 < 2 * upper


def test_terms_that_grow_too_slowly_do_not_win_by_giving_a_constant_back():
    """Samples of SciPy's cdist(x, x), which needs two arrays of float64 like its input, and its output."""
    peaks = {
        (45, 51): 53_248,
        (387, 145): 2_015_232,
        (45, 153): 131_072,
        (255, 867): 3_903_488,
        (722, 814): 14_352_384,
        (511, 1731): 16_080_896,
        (722, 2442): 32_272_384,
        (1083, 407): 16_261_120,
    }
    shapes = [(126, 142), (126, 142), *peaks]
    terms = candidates(InputLayout.of(2), (), lambda lengths: float(lengths[0] ** 2))
    found = fit(shapes, volumes(shapes), [344_064, 331_776, *peaks.values()], terms, BATCH)
    assert found.coefficients["1"] >= -2 * BATCH
    point = np.array([[3000.0, 2000.0]])
    assert found.predict(point, volumes(point), 0.01)[1][0] >= 16 * 3000 * 2000 + 8 * 3000**2


def test_where_every_set_gives_a_constant_back_the_best_is_still_taken():
    columns = np.array([[1.0, n] for n in (1e5, 2e5, 5e5, 1e6)])
    noise, scales = np.full(4, BATCH / 3), np.array([1e7, 50])
    data = Data(columns, 9 * columns[:, 1] - 800_000, noise, scales, np.zeros(2))
    found = follow(data, columns[:, 1], [(np.array([[0, 1]]), np.zeros(1))], -2 * BATCH)
    assert found is not None and found.means[0, 1] == pytest.approx(9, rel=0.05)


FLAT = [(45, 51), (126, 142), (129, 435), (387, 145), (255, 289), (309, 309), (103, 925), (925, 103)]
"""what is run of an array of two axes and a tenth of a million elements at most"""


@pytest.mark.parametrize(
    ("formula", "worst"),
    [
        (lambda a, b: max(24 * a * b, 16 * a * a + 4 * a * b), 0.12),
        (lambda a, b: max(40 * min(a, b) ** 2 + 8 * a * b, 24 * a * b), 0.2),
        (lambda a, b: max(24 * a * a, 16 * b * b + 8 * a * b), 0.12),
    ],
)
def test_stages_that_overtake_each_other_are_told_apart_and_the_bound_covers_both(formula, worst):
    shapes = [(2162, 968), (1030, 2032), (1283, 1630), (1800, 2380)]
    true = np.array([formula(*shape) for shape in shapes])
    for seed in range(3):
        found = fitted(formula, FLAT, seed)
        estimate, upper = found.predict(np.array(shapes, dtype=float), volumes(shapes), 0.01)
        assert np.abs(estimate / true - 1).max() < worst and (upper >= 0.99 * true).all() and (upper < 2 * true).all()
        assert any("stages overtake each other" in note for note in found.notes)
        assert len(found.overtaking) == 1 and set(found.overtaking[0]) != set(found.coefficients)


def test_memory_that_hardly_grows_is_told():
    found = fitted(lambda a, b: 3e6 + 0.3 * a * b, FLAT)
    assert any("hardly grew" in note for note in found.notes)
    assert not any("hardly grew" in note for note in fitted(lambda a, b: 3e6 + 30 * a * b, FLAT).notes)


def test_runs_at_one_point_are_evidence_of_one():
    def formula(a, b):
        return 20 * a * b + (900_000 if a * b < 20_000 else 250_000)  # a workspace that only small ones fill

    once, point = fitted(formula, FLAT[1:]), np.array([[2162.0, 968]])
    often = fitted(formula, [*FLAT[1:], *[FLAT[1]] * 4])
    assert often.predict(point, volumes(point), 0.01)[0] == pytest.approx(
        once.predict(point, volumes(point), 0.01)[0], rel=0.01
    )


def test_memory_that_no_term_follows_has_a_wide_bound():
    rng = np.random.default_rng(3)
    found = fitted(lambda a, b, c: 16 * a * b * c * rng.uniform(0.4, 1.6))
    estimate, upper = found.predict(np.array(FAR, dtype=float), volumes(FAR), 0.01)
    assert (upper > 1.5 * estimate).all()


def test_memory_that_only_falls_is_a_constant_with_a_wide_bound():
    found = fitted(lambda a, b, c: 1e12 / (a * b * c))
    estimate, upper = found.predict(np.array(FAR, dtype=float), volumes(FAR), 0.01)
    assert (upper > 2 * estimate).all()


@pytest.mark.parametrize("ndim", [1, 2, 4])
def test_every_number_of_axes_has_its_terms(ndim):
    rng = np.random.default_rng(ndim)
    side = {1: 2e5, 2: 600, 4: 24}[ndim]
    shapes = [tuple(int(n) for n in side * rng.uniform(0.3, 1.6, ndim)) for _ in range(8)]
    point = np.array([[3 * side] * ndim])
    estimate, upper = fitted(lambda *shape: 24 * np.prod(shape), shapes).predict(point, volumes(point), 0.01)
    true = 24 * volumes(point)
    assert abs(estimate / true - 1) < 0.03 and upper >= true


@given(n=st.integers(1, 5000), largest=st.sampled_from([5, 11]))
def test_fast_lengths_are_the_least_with_small_factors_only(n, largest):
    def smooth(m):
        for p in (2, 3, 5, 7, 11):
            while p <= largest and m % p == 0:
                m //= p
        return m == 1

    found = next_fast_len(n, largest)
    assert smooth(found) and not any(smooth(m) for m in range(n, found))


def test_fast_lengths_are_those_of_scipy():
    fft = pytest.importorskip("scipy.fft")
    for n in range(1, 700):
        assert next_fast_len(n, 5) == fft.next_fast_len(n, real=True)
        assert next_fast_len(n, 11) == fft.next_fast_len(n, real=False)


@pytest.mark.parametrize("freedom", [7, 12, 30])
def test_quantiles_are_those_of_student(freedom):
    stats = pytest.importorskip("scipy.stats")
    for probability in (0.9, 0.99, 0.999):
        assert student_quantile(probability, np.array(freedom)) == pytest.approx(
            stats.t.ppf(probability, freedom), rel=0.02
        )


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        (lambda a, b, c: (a, b, c), ("n0", "n1", "n2")),
        (lambda a, b, c: (a - 2, b - 2, c - 2), ("n0-2", "n1-2", "n2-2")),
        (lambda a, b, c: (a, c // 2 + 1), ("n0", "n2//2+1")),
        (lambda a, b, c: (a * b * c,), ("n0*n1*n2",)),
        (lambda a, b, c: (7, 2 * b), ("7", "2*n1")),
        (lambda a, b, c: (c, a), ("n2", "n0")),
        (lambda a, b, c: (), ()),
    ],
)
def test_the_output_shape_is_learned(rule, names):
    found = learn_output(SHAPES, [rule(*shape) for shape in SHAPES], ["n0", "n1", "n2"])
    assert found is not None and found.names == names
    assert found((901, 802, 703)) == rule(901, 802, 703)


def test_an_output_that_follows_no_rule_has_no_shape():
    rng = np.random.default_rng(0)
    assert learn_output(SHAPES, [(int(rng.integers(1, 99)),) for _ in SHAPES], ["n0", "n1", "n2"]) is None
    assert learn_output(SHAPES, [None] * len(SHAPES), ["n0", "n1", "n2"]) is None


def test_seconds_follow_the_volume_and_an_overhead():
    timing = learn_timing(SHAPES, [0.01 + 5e-8 * np.prod(shape) for shape in SHAPES], InputLayout.of(3))
    assert timing((400, 400, 400)) == pytest.approx(3.21, rel=0.02)


def test_jitter_of_short_runs_does_not_pass_for_work_that_grows_faster_than_the_volume():
    for seed in range(20):
        late = np.random.default_rng(seed).uniform(0, 3e-4, len(SHAPES))
        seconds = [1e-9 * np.prod(shape) + wait for shape, wait in zip(SHAPES, late, strict=True)]
        assert learn_timing(SHAPES, seconds, InputLayout.of(3)).term == "volume"


def test_a_few_runs_of_about_a_millisecond_cannot_tell_more_than_the_volume():
    shapes = [(45, 51), (126, 142), (126, 142), (540, 204)]
    for milliseconds in ([0.20, 0.35, 0.35, 1.66], [0.22, 0.41, 0.50, 3.52]):  # as a busy machine had them
        assert learn_timing(shapes, [each / 1000 for each in milliseconds], InputLayout.of(2)).term == "volume"
    work = [2e-10 * (n0 * n1) * n0 for n0, n1 in (*shapes, (1900, 700))]
    assert learn_timing([*shapes, (1900, 700)], work, InputLayout.of(2)).term == "volume*n0"
