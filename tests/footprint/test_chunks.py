"""Chunks: what is chosen fits, is sensible, and is refused with the smallest budget that works."""

import math
import re
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.example_counts import fewer

from forebay.errors import BudgetError
from forebay.footprint.chunks.need import ChunkProblem
from forebay.footprint.chunks.plan import choose_chunks, plan_chunks
from forebay.footprint.estimate import Estimate

F3 = (651, 951, 462)


@dataclass
class Affine:
    """Bytes and seconds affine in the volume, with a bound a little above."""

    a_voxel: float = 16.0
    fixed: float = 0.0
    ndim: int = 3
    seconds_a_voxel: float = 1e-7
    margin: float = 1.0
    ripple: int = 0
    dtype: np.dtype = np.dtype("float32")  # noqa: RUF009

    def predict(self, shape):
        volume = math.prod(shape)
        # A ripple makes the footprint fall here and there where the shape grows, as padding to fast lengths does.
        rough = self.ripple * (sum(shape) % 7)
        needed = int(self.fixed + self.a_voxel * volume) + rough
        return Estimate(
            needed, int(needed * self.margin), 0.01, tuple(shape), self.dtype, self.seconds_a_voxel * volume
        )


def bytes_needed(model, shape, chunks, threads=1, halo=(0, 0, 0), padded=True):
    """The specification, written down apart from the planner: (input with halo + neighbours + bound) x threads."""
    along = []
    for whole, n, h in zip(shape, chunks, halo, strict=True):
        starts = range(0, whole, n)
        if padded:
            along.append({min(n, whole - start) + 2 * h for start in starts})
        else:
            along.append({min(whole, start + n + h) - max(0, start - h) for start in starts})
    touched = [min(whole, 3 * n) if h else n for whole, n, h in zip(shape, chunks, halo, strict=True)]
    neighbours = math.prod(touched) * model.dtype.itemsize if any(halo) else 0
    of_all = math.prod(shape) * model.dtype.itemsize
    worst = max(math.prod(each) * model.dtype.itemsize + model.predict(each).upper for each in product(*along))
    return threads * worst + min(of_all, threads * neighbours)


def counts(shape, chunks):
    return [math.ceil(whole / n) for whole, n in zip(shape, chunks, strict=True)]


models = st.builds(
    Affine,
    a_voxel=st.floats(0, 500),
    fixed=st.floats(0, 1e6),
    seconds_a_voxel=st.floats(0, 1e-4),
    margin=st.floats(1, 2),
    ripple=st.sampled_from([0, 0, 1000, 100_000]),
)


@pytest.mark.slow
@fewer(100, of=300)
@example(Affine(0, seconds_a_voxel=0, ripple=1000), (1, 14, 1), (0, 5, 0), None, 1, 1, False, 1000)
@given(
    model=models,
    shape=st.tuples(*[st.integers(1, 300)] * 3),
    halo=st.tuples(*[st.integers(0, 12)] * 3),
    stored=st.none() | st.tuples(*[st.integers(1, 100)] * 3),
    threads=st.integers(1, 4),
    workers=st.integers(1, 5),
    padded=st.booleans(),
    budget=st.integers(1000, 10**9),
)
def test_no_plan_exceeds_the_budget(model, shape, halo, stored, threads, workers, padded, budget):
    options = {"threads": threads, "halo": halo, "padded": padded}
    try:
        plan = plan_chunks(model, shape, budget, stored_chunks=stored, workers=workers, **options)
    except BudgetError as error:
        named = int(re.search(r"works is (\d+)", str(error))[1])
        assert named > budget
        plan_chunks(model, shape, named, **options)
        return
    assert bytes_needed(model, shape, plan.chunks, **options) == plan.need.total <= budget
    assert all(1 <= n <= whole for n, whole in zip(plan.chunks, shape, strict=True))
    assert plan.tasks == math.prod(counts(shape, plan.chunks))


@fewer(40)
@given(
    model=st.builds(Affine, a_voxel=st.floats(0, 500), fixed=st.floats(0, 1e6)),
    shape=st.tuples(*[st.integers(1, 200)] * 3),
    halo=st.tuples(*[st.integers(0, 12)] * 3),
    threads=st.integers(1, 4),
    padded=st.booleans(),
)
def test_a_refusal_names_the_smallest_budget_that_works(model, shape, halo, threads, padded):
    options = {"threads": threads, "halo": halo, "padded": padded}
    with pytest.raises(BudgetError) as refused:
        choose_chunks(model, shape, 0, **options)
    smallest = int(re.search(r"works is (\d+)", str(refused.value))[1])
    choose_chunks(model, shape, smallest, **options)
    with pytest.raises(BudgetError, match=str(smallest)):
        choose_chunks(model, shape, smallest - 1, **options)


@settings(max_examples=50)
@example(Affine(4, ndim=2), (18, 12), (6, 5), 4, False)
@given(
    model=st.builds(Affine, a_voxel=st.floats(0, 500), fixed=st.floats(0, 1e6), ndim=st.just(2)),
    shape=st.tuples(*[st.integers(1, 24)] * 2),
    halo=st.tuples(*[st.integers(0, 6)] * 2),
    threads=st.integers(1, 4),
    padded=st.booleans(),
)
def test_no_shape_needs_less_than_a_refusal_says(model, shape, halo, threads, padded):
    """Without padding, one chunk of all the array may need less than the shortest chunks with two halos."""
    with pytest.raises(BudgetError) as refused:
        choose_chunks(model, shape, 0, threads=threads, halo=halo, padded=padded)
    thick = [
        [n for n in range(1, whole + 1) if n == whole or (n >= h and (whole % n or n) >= h)]
        for whole, h in zip(shape, halo, strict=True)
    ]
    least = min(bytes_needed(model, shape, chunks, threads, halo, padded) for chunks in product(*thick))
    assert int(re.search(r"works is (\d+)", str(refused.value))[1]) == least


@fewer(40)
@given(shape=st.tuples(*[st.integers(1, 300)] * 3), halo=st.tuples(*[st.integers(0, 12)] * 3))
def test_no_chunk_is_thinner_than_the_halo(shape, halo):
    """Dask would merge such chunks with their neighbours, and then they are larger than planned."""
    chunks = choose_chunks(Affine(200), shape, 2 * bytes_needed(Affine(200), shape, (24, 24, 24), 1, halo), halo=halo)
    for whole, n, h in zip(shape, chunks, halo, strict=True):
        assert n == whole or (n >= h and (whole % n == 0 or whole % n >= h))


@pytest.mark.parametrize("budget", ["1GB", "2GB", "4GB", "8GB"])
@pytest.mark.parametrize("shape", [F3, (997, 991, 983), (1001, 500, 333), (7, 100_003, 41)])
def test_shapes_without_a_common_divisor_get_few_large_chunks(shape, budget):
    model = Affine(240)
    plan = plan_chunks(model, shape, budget, threads=2)
    volumes = 2 * math.prod(shape) * 244 / plan.budget  # the chunks that there are at least
    assert plan.tasks <= max(2, 1.25 * volumes + 1)


def test_all_of_the_array_is_one_chunk_where_it_fits():
    assert choose_chunks(Affine(16), F3, "10GB") == F3


def test_every_lane_gets_a_chunk_where_all_would_fit_into_one():
    plan = plan_chunks(Affine(16), F3, "100GB", threads=2, workers=4)
    assert plan.tasks == 8


def test_small_arrays_are_not_cut_for_the_sake_of_lanes():
    """A chunk that takes less time than the overhead of another is not worth it."""
    assert choose_chunks(Affine(16), (30, 30, 30), "1GB", workers=8) == (30, 30, 30)


def test_the_time_of_the_model_is_weighed_against_the_overhead():
    slow, quick = Affine(16, seconds_a_voxel=1e-5), Affine(16, seconds_a_voxel=1e-12)
    assert plan_chunks(slow, F3, "20GB", workers=16).tasks == 16
    assert plan_chunks(quick, F3, "20GB", workers=16).tasks == 1


def test_contiguous_axes_stay_whole():
    chunks = choose_chunks(Affine(16), F3, "1GB")
    assert chunks[1:] == F3[1:]


def test_wide_halos_avoid_thin_slabs():
    """A slab of ten with a halo of eight on each side computes most of its voxels twice."""
    chunks = choose_chunks(Affine(240), F3, "1GB", halo=8)
    computed = math.prod(n + 16 for n in chunks) / math.prod(chunks)
    slab = (10, *F3[1:])
    assert computed < 0.8 * math.prod(n + 16 for n in slab) / math.prod(slab)


def test_chunks_follow_the_stored_ones_where_that_costs_little():
    plan = plan_chunks(Affine(16), (640, 960, 448), "1GB", stored_chunks=(64, 64, 64))
    whole_or_aligned = [n in (64 * (n // 64), whole) for n, whole in zip(plan.chunks, (640, 960, 448), strict=True)]
    assert all(whole_or_aligned)
    assert plan.reads == 1


def test_chunks_that_are_right_already_stay():
    """So that an array which was opened in chosen chunks is not cut anew, although a little less memory is left."""
    before = plan_chunks(Affine(240), F3, "1GB", halo=8)
    again = plan_chunks(Affine(240), F3, before.need.total, halo=8, stored_chunks=before.chunks)
    assert again.chunks == before.chunks


def test_chunks_leave_the_stored_ones_where_that_costs_much():
    """One stored chunk does not fit: it is cut, evenly."""
    plan = plan_chunks(Affine(240), (600, 600, 600), "1GB", stored_chunks=(300, 300, 300))
    assert plan.need.total <= 10**9
    assert plan.reads > 1


@pytest.mark.parametrize("budget", ["20MB", "60MB", "130MB"])
def test_chunks_that_follow_the_stored_ones_leave_no_slivers(budget):
    """257 in 64s would end in a chunk of one."""
    (first, *_) = chunks = choose_chunks(Affine(16), (257, 200, 200), budget, stored_chunks=(64, 64, 64))
    assert min(chunks) >= 8
    assert first == 257 or (257 % first or first) >= 4


@given(extent=st.integers(1, 60), length=st.integers(1, 60), stored=st.integers(1, 60))
def test_the_chunks_of_a_stored_chunk_are_counted(extent, length, stored):
    length = min(extent, length)
    problem = ChunkProblem(Affine(ndim=1), (extent,), 1, 1, 1, (0,), True, (stored,), 0, 0.0)
    pairs = {(place // length, place // stored) for place in range(extent)}
    assert problem.reads((length,)) == pytest.approx(len(pairs) / math.ceil(extent / stored))


def test_long_axes_take_no_longer():
    assert plan_chunks(Affine(ndim=1), (10**9,), "1kB", stored_chunks=(7,)).need.total <= 1000


def test_numbers_of_numpy_are_numbers():
    four = np.int64(4)
    ours = choose_chunks(Affine(), (50, 50, 50), "1MB", halo=4, threads=4, whole=0)
    assert choose_chunks(Affine(), np.array([50] * 3), "1MB", halo=four, threads=four, whole=np.int64(0)) == ours


def test_axes_that_must_stay_whole_do():
    assert choose_chunks(Affine(240), F3, "500MB", whole=(-1,))[2] == 462
    assert choose_chunks(Affine(240), F3, "500MB", whole=(0, 1))[:2] == F3[:2]


def test_chunks_that_wait_are_counted():
    hungry, patient = (plan_chunks(Affine(4), F3, "200MB", waiting=waiting) for waiting in (0, 1))
    assert patient.tasks > hungry.tasks
    assert patient.need.waiting == math.prod(patient.chunks) * 8


def test_halos_are_not_padded_where_chunks_end_with_the_array():
    whole = plan_chunks(Affine(16), (100, 100, 100), "1GB", halo=8, padded=False)
    padded = plan_chunks(Affine(16), (100, 100, 100), "1GB", halo=8)
    assert whole.need.input == 4 * 100**3
    assert padded.need.input == 4 * 116**3


@pytest.mark.parametrize("ndim", [1, 2, 4, 5, 6])
def test_any_number_of_axes(ndim):
    shape = (10**7,) if ndim == 1 else tuple(int(10 ** (7 / ndim)) + axis for axis in range(ndim))
    plan = plan_chunks(Affine(100, ndim=ndim), shape, "100MB")
    assert plan.need.total <= 10**8
    assert plan.tasks <= 2.5 * math.prod(shape) * 104 / 10**8


def test_a_plan_explains_itself():
    text = plan_chunks(Affine(16), F3, "1GB", halo=2).explain()
    assert re.search(r"\d+ chunks of at most \d+x951x462, .* predicted", text)
    assert re.search(r"needs at most .* of 1GB: input .* \+ bound .* \+ neighbours .*", text)


def test_the_same_question_has_the_same_answer():
    answers = {choose_chunks(Affine(237), F3, "2GB", threads=2, halo=8, stored_chunks=(64, 64, 64)) for _ in range(3)}
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (10, 10)}, "2 axes, the model was learned on 3"),
        ({"halo": (1, 2)}, "each of the 3 axes"),
        ({"halo": -1}, "at least 0"),
        ({"halo": (2.7, 1, 1)}, "whole number"),
        ({"halo": 2.5}, "whole number"),
        ({"whole": 0.5}, "axes 0 to 2"),
        ({"threads": 1.5}, "whole numbers"),
        ({"shape": (10, 10, math.nan)}, "compute_chunk_sizes"),
        ({"stored_chunks": (0, 1, 1)}, "at least 1"),
        ({"threads": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message):
    with pytest.raises(BudgetError, match=message):
        choose_chunks(Affine(), **{"shape": (10, 10, 10), "budget": "1GB"} | options)


@pytest.mark.parametrize("long", [10**6, 10**11])
def test_few_shapes_are_looked_at_however_long_an_axis_is(long):
    seen, model = [], Affine(ndim=2, seconds_a_voxel=1e-9)
    predict = model.predict
    model.predict = lambda shape: seen.append(shape) or predict(shape)
    assert plan_chunks(model, (8, long), "4GB").chunks[0] == 8
    assert len(seen) < 20_000


def test_a_shape_that_is_none_is_refused():
    with pytest.raises(BudgetError, match="shape 651: give a tuple of lengths"):
        plan_chunks(Affine(ndim=1), 651, "1MB")
