"""What a pool promises: values, budgets, marks, traffic, and errors that say what to do."""
# ruff: noqa: N806 - what is handed out has the name of the array in capitals, as in the documentation

import warnings
from itertools import pairwise

import numpy as np
import pytest
from bench.cases.traffic import traffic

import forebay as fb
from forebay.errors import BudgetError, EngineError, StateError
from forebay.machine.virtual import VirtualPool
from forebay.memory import Pool, ThrashWarning
from forebay.memory.pool.sequence import Use
from forebay.units import to_text
from tests.memory.pool.programs import Trimmed

ARRAY = 1024
LENGTH = 128


def pool_of(slots, host=64 * ARRAY, codec=None, seed=0, without=None):
    return Pool(fb.Budget(device=slots * ARRAY, host=host), codec, VirtualPool(seed, without))


def put_some(pool, count):
    return [pool.put(np.full(LENGTH, float(number)), name=f"field {number}") for number in range(count)]


def sweep(pool, arrays, role="reads", rounds=1):
    for _ in range(rounds):
        for array in arrays:
            with pool.use(**{role: [array]}) as (values,):
                if role != "reads":
                    values += 1


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThrashWarning)
        yield


def test_arrays_come_in_the_order_in_which_they_are_named():
    pool = pool_of(4)
    a, b, c, d = put_some(pool, 4)
    with pool.use(reads=[b, a], writes=[d], overwrites=[c]) as (B, A, D, C):
        assert (A[0], B[0], D[0]) == (0, 1, 3)
        C[:] = A + B + D
        D += 1
    assert pool.get(c).tolist() == [4] * LENGTH and pool.get(d).tolist() == [4] * LENGTH


def test_a_pool_writes_a_page_about_what_it_moved(tmp_path):
    pool = pool_of(2)
    sweep(pool, put_some(pool, 4), rounds=2)
    pool.report(tmp_path / "page.html", "My pool")
    text, moved = (tmp_path / "page.html").read_text(), pool.metrics.moved["up 1"]
    assert "My pool" in text and "moved up 1" in text and to_text(moved) in text


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex128", "bool", "uint8"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (2, 3, 4)])
def test_every_type_and_shape_comes_back_as_it_went(shape, dtype):
    pool = pool_of(2)
    values = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    array = pool.put(values)
    with pool.use(reads=[array]) as (handed,):
        assert handed.shape == shape and handed.dtype == dtype
        assert np.array_equal(handed, values)
    found = pool.get(array)
    assert found.dtype == dtype and np.array_equal(found, values)


def test_arrays_with_gaps_are_gathered():
    pool = pool_of(4)
    values = np.arange(64.0).reshape(8, 8)
    assert pool.get(pool.put(values.T[::2])).tolist() == values.T[::2].tolist()


def test_what_is_put_is_copied():
    pool = pool_of(4)
    values = np.zeros(LENGTH)
    plain, coded = pool.put(values), pool.put(values, codec=Trimmed())
    values[:] = 7
    assert not pool.get(plain).any() and not pool.get(coded).any()


def test_reads_cannot_be_written():
    pool = pool_of(2)
    (a,) = put_some(pool, 1)
    with pool.use(reads=[a]) as (A,), pytest.raises(ValueError, match="read-only"):
        A[:] = 1


def test_the_budget_is_hard_and_the_peak_is_told():
    pool = pool_of(3)
    arrays = put_some(pool, 10)
    sweep(pool, arrays, "writes", rounds=4)
    assert pool.metrics.peak_device == 3 * ARRAY
    assert pool.metrics.peak["host"] == 10 * ARRAY


def test_clean_data_is_never_written_back():
    pool = pool_of(3)
    sweep(pool, put_some(pool, 10), "reads", rounds=5)
    assert pool.metrics.moved["down 1"] == 0 and pool.metrics.moved["up 1"] > 0


def test_what_was_written_once_is_written_back_once():
    pool = pool_of(3)
    arrays = put_some(pool, 10)
    sweep(pool, arrays, "writes")
    sweep(pool, arrays, "reads", rounds=6)
    assert pool.metrics.moved["down 1"] == 10 * ARRAY


def test_what_is_overwritten_is_not_fetched():
    pool = pool_of(3)
    arrays = [pool.empty((LENGTH,), "float64") for _ in range(8)]
    for _ in range(3):
        for number, array in enumerate(arrays):
            with pool.use(overwrites=[array]) as (values,):
                assert np.isnan(values).all()
                values[:] = number
    assert pool.metrics.moved["up 1"] == 0
    assert [pool.get(array)[0] for array in arrays] == list(range(8))


def test_what_fits_moves_once():
    pool = pool_of(4)
    arrays = put_some(pool, 4)
    sweep(pool, arrays, "writes", rounds=5)
    metrics = pool.metrics
    assert metrics.moved == {"up 1": 4 * ARRAY}
    assert metrics.avoided["up 1"] == 16 * ARRAY and metrics.avoided["down 1"] == 20 * ARRAY
    assert (metrics.hits, metrics.misses) == (16, 4)


@pytest.mark.parametrize(("count", "slots"), [(24, 8), (12, 4), (30, 10)])
@pytest.mark.parametrize("role", ["reads", "writes"])
def test_sweeps_move_little_more_than_the_farthest_next_use_would(count, slots, role):
    """Where the pool needs rooms for what comes and goes, it moves what the bound moves with those rooms less."""
    pool = pool_of(slots)
    arrays = put_some(pool, count)
    sweep(pool, arrays, role, rounds=3)
    before = dict(pool.metrics.moved)
    sweep(pool, arrays, role, rounds=10)
    moved = {lane: pool.metrics.moved[lane] - before.get(lane, 0) for lane in ("up 1", "down 1")}
    keep = {"reads": slots - 2, "writes": slots - 3}[role]
    assert moved["up 1"] == 10 * (count - keep) * ARRAY
    uses = [Use((key,)) for key in range(count)] * 13
    sizes = dict.fromkeys(range(count), ARRAY)
    least = traffic(uses, sizes, (keep + 1) * ARRAY, "min", warm=3 * count).up
    assert moved["up 1"] <= 1.01 * least + 10 * ARRAY
    assert moved["up 1"] < traffic(uses, sizes, slots * ARRAY, "lru", warm=3 * count).up


def test_there_and_back_keeps_what_comes_again_first():
    pool = pool_of(6)
    arrays = put_some(pool, 12)
    sweep(pool, [*arrays, *reversed(arrays)], rounds=6)
    # Least recently used happens to be right here, too: each way, the last ones are still there.
    assert pool.metrics.moved["up 1"] <= (12 + 11 * (12 - 4)) * ARRAY


def test_the_computation_finds_what_was_fetched_ahead():
    pool = pool_of(6)
    arrays = put_some(pool, 12)
    sweep(pool, arrays, rounds=3)
    for array in arrays:
        coming = array.on_device
        with pool.use(reads=[array]):
            assert coming


def test_an_array_that_left_the_sequence_does_no_harm():
    pool = pool_of(4)
    arrays = put_some(pool, 9)
    sweep(pool, arrays, "writes", rounds=3)
    pool.drop(arrays.pop(4))
    sweep(pool, arrays, "writes", rounds=3)
    assert [pool.get(array)[0] for array in arrays] == [0 + 6, 1 + 6, 2 + 6, 3 + 6, 5 + 6, 6 + 6, 7 + 6, 8 + 6]


def test_memory_of_forgotten_arrays_is_used_again():
    pool = pool_of(4, host=4 * ARRAY)
    for number in range(20):
        array = pool.put(np.full(LENGTH, float(number)))
        with pool.use(writes=[array]) as (values,):
            values += 1
        assert pool.get(array)[0] == number + 1
        del array
    assert pool.metrics.peak["host"] <= 4 * ARRAY


def test_pieces_of_many_sizes_find_room():
    pool = pool_of(4)
    sizes = [32, 96, 64, 160, 224, 128, 288, 480]
    arrays = [pool.put(np.full(size, float(size))) for size in sizes]
    for _ in range(4):
        for first, second in pairwise(arrays):
            if first.nbytes + second.nbytes <= 4 * ARRAY - 512:
                with pool.use(reads=[first], writes=[second]) as (A, B):
                    assert A[0] in sizes and B[0] in sizes
    with pool.use(reads=[arrays[-1]]) as (A,):
        assert (A == 480).all()


def test_blocks_may_be_nested():
    pool = pool_of(3)
    a, b, c, d = put_some(pool, 4)
    with pool.use(reads=[a], writes=[b]) as (A, B):
        with pool.use(reads=[a], writes=[c]) as (again, C):
            C += again + 10
        with pool.use(writes=[d]) as (D,):
            D += 10
        B += A + 10
    assert [pool.get(array)[0] for array in (a, b, c, d)] == [0, 11, 12, 13]


def test_an_exception_in_a_block_leaves_the_pool_whole():
    pool = pool_of(2)
    a, b, c = put_some(pool, 3)

    def fail():
        with pool.use(writes=[a]) as (A,):
            A[:] = 5
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    sweep(pool, [b, c, a], rounds=2)
    assert pool.get(a)[0] == 5


def test_a_codec_makes_what_moves_smaller_and_is_told():
    pool = pool_of(16, codec=Trimmed())
    arrays = [pool.put(np.r_[np.full(32, number + 1.0), np.zeros(96)]) for number in range(30)]
    sweep(pool, arrays, rounds=4)
    metrics = pool.metrics
    assert metrics.mean_ratio == pytest.approx(1024 / 264, rel=0.01)
    assert metrics.moved["down 1"] == metrics.ratios.count * 264
    assert metrics.peak["host"] <= 64 * ARRAY and metrics.peak_device <= 16 * ARRAY
    assert [pool.get(array)[0] for array in arrays] == [number + 1 for number in range(30)]


def test_each_array_may_have_its_own_codec():
    pool = pool_of(12, codec=Trimmed())
    zeros = np.zeros(LENGTH)
    arrays = [pool.put(zeros), pool.put(zeros, codec=None), pool.put(zeros, codec="cast:bfloat16")]
    arrays += [pool.put(np.arange(LENGTH))]  # of a type that cast does not know
    for _ in range(3):
        with pool.use(reads=arrays):
            pass
        sweep(pool, put_some(pool, 6), "writes")
    assert not any(pool.get(array)[:1].any() for array in arrays)


def test_encodings_that_find_no_room_on_the_host_are_refused_and_nothing_is_lost():
    pool = pool_of(12, host=6 * ARRAY, codec=Trimmed())
    arrays = []

    def put_many():
        for number in range(30):
            arrays.append(pool.put(np.full(LENGTH, number + 0.1)))

    with pytest.raises(BudgetError, match=r"host budget of 6\.14kB is taken"):
        put_many()
    assert len(arrays) > 6
    assert [pool.get(array)[0] for array in arrays] == [number + 0.1 for number in range(len(arrays))]


def test_memory_is_not_unpinned_under_a_copy():
    def run(seed, without=None):
        pool = pool_of(2, host=4 * ARRAY, seed=seed, without=without)
        arrays = put_some(pool, 4)
        sweep(pool, arrays, "writes")
        for array in arrays:
            pool.drop(array)
        pool.put(np.zeros(4 * LENGTH - 256))

    def run_all(without=None):
        for seed in range(20):
            run(seed, without)

    run_all()
    with pytest.raises(EngineError, match="let go of"):
        run_all("unpin: room free")


class TestThrashing:
    def caught(self, pool, arrays, rounds):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sweep(pool, arrays, "writes", rounds)
        return [str(one.message) for one in caught if one.category is ThrashWarning]

    def test_it_names_the_arrays_and_a_budget_that_cures_it(self):
        pool = pool_of(3)
        (message,) = self.caught(pool, put_some(pool, 9), rounds=6)
        assert "field 0 (float64[128], 1.02kB), field 1" in message and "more push each other out" in message
        assert "A device budget of 9.22kB holds all 9 arrays" in message
        cured = Pool(fb.Budget(device="9.22kB", host="1MB"), arrays=VirtualPool())
        assert self.caught(cured, put_some(cured, 9), rounds=6) == []
        assert cured.metrics.moved["up 1"] == 9 * ARRAY

    def test_it_is_quiet_while_most_stays(self):
        pool = pool_of(9)
        assert self.caught(pool, put_some(pool, 10), rounds=6) == []

    def test_it_is_quiet_while_nothing_repeats(self):
        pool = pool_of(3)
        arrays = put_some(pool, 12)
        generator = np.random.default_rng(0)
        assert self.caught(pool, [arrays[number] for number in generator.integers(0, 12, 100)], rounds=1) == []


class TestBadInput:
    @pytest.mark.parametrize("budget", ["8GB", 10, fb.Budget(device="1kB"), fb.Budget(host="1GB"), None])
    def test_budgets_without_two_tiers(self, budget):
        with pytest.raises(BudgetError, match=r"give forebay.Budget\(device='8GB', host='64GB'\)"):
            Pool(budget, arrays="numpy")

    def test_a_budget_with_a_disk(self):
        with pytest.raises(BudgetError, match="two tiers"):
            Pool(fb.Budget(device="1GB", host="1GB", disk="1GB"), arrays="numpy")

    def test_an_unknown_library(self):
        with pytest.raises(StateError, match="there are 'cupy', 'torch' and 'numpy'"):
            Pool(fb.Budget(device="1MB", host="1MB"), arrays="jax")

    def test_an_array_larger_than_the_device(self):
        with pytest.raises(BudgetError, match=r"array 1 of 8.19kB needs 8.19kB .* Budget\(device='8.2kB'\)"):
            pool_of(2).put(np.zeros(1024))

    def test_more_than_the_host_holds(self):
        pool = pool_of(2, host=3 * ARRAY)
        arrays = put_some(pool, 3)
        with pytest.raises(BudgetError, match=r"no room on the host for u of 1.02kB.*Budget\(host='4.1kB'\)"):
            pool.put(np.zeros(LENGTH), name="u")
        pool.drop(arrays[0])
        pool.put(np.zeros(LENGTH))

    def test_more_at_once_than_the_device_holds(self):
        pool = pool_of(2)
        arrays = put_some(pool, 3)
        with pytest.raises(BudgetError, match=r"3 arrays of 3.07kB are used together.*Budget\(device='3.08kB'\)"):
            pool.use(reads=arrays).__enter__()
        with (
            pool.use(reads=arrays[:2]),
            pytest.raises(BudgetError, match=r"beside the 2.05kB of open uses"),
            pool.use(reads=arrays[2:]),
        ):
            pass
        with pool.use(reads=arrays[1:]) as (B, C):
            assert (B[0], C[0]) == (1, 2)

    def test_an_array_named_twice(self):
        pool = pool_of(2)
        (a,) = put_some(pool, 1)
        with pytest.raises(StateError, match="field 0 is named twice: name it once, in `writes`"):
            pool.use(reads=[a], writes=[a]).__enter__()

    def test_an_array_without_values(self):
        pool = pool_of(2)
        a = pool.empty(LENGTH, "float64")
        with pytest.raises(StateError, match="array 1 has no values yet, or lost them"):
            pool.use(reads=[a]).__enter__()
        with pytest.raises(StateError, match="no values yet"):
            pool.get(a)
        with pool.use(writes=[a]) as (A,):
            A[:] = 1
        assert pool.get(a)[0] == 1

    def test_arrays_of_others(self):
        pool, other = pool_of(2), pool_of(2)
        (a,) = put_some(other, 1)
        for stranger in (a, np.zeros(3)):
            with pytest.raises(StateError, match=r"not of this pool: pool.put\(x\)"):
                pool.use(reads=[stranger])
        with pytest.raises(StateError, match="keeps arrays of NumPy, not list"):
            pool.put([1, 2, 3])
        with pytest.raises(StateError, match="Python objects"):
            pool.put(np.array([None]))

    def test_a_second_writer_while_the_first_is_open(self):
        pool = pool_of(3)
        a, b = put_some(pool, 2)
        with pool.use(writes=[a], reads=[b]):
            for roles in ({"reads": [a]}, {"writes": [b]}):
                with pytest.raises(StateError, match="in a use that is still open"):
                    pool.use(**roles).__enter__()
            with pytest.raises(StateError, match="leave its use before its values are read"):
                pool.get(a)
            with pytest.raises(StateError, match="leave its use before it is dropped"):
                pool.drop(b)

    def test_what_was_dropped_or_closed(self):
        pool = pool_of(3)
        a, b = put_some(pool, 2)
        pool.drop(a)
        with pytest.raises(StateError, match="field 0 was dropped"):
            pool.get(a)
        pool.close()
        pool.close()
        with pytest.raises(StateError, match="the pool is closed"):
            pool.use(reads=[b])

    def test_a_codec_without_room_for_its_encodings(self):
        with pytest.raises(BudgetError, match=r"encodings on their way, but the budget is .*give Budget\("):
            pool_of(2, codec=Trimmed()).put(np.zeros(LENGTH))


def test_a_resident_array_says_what_and_where_it_is():
    pool = pool_of(2)
    a = pool.put(np.zeros((4, 8), np.float32), name="velocity")
    assert repr(a) == "Resident(velocity, float32[4, 8], on the host)"
    with pool.use(writes=[a]):
        pass
    assert repr(a) == "Resident(velocity, float32[4, 8], on the device, dirty)"
    assert (a.shape, a.dtype, a.nbytes, a.dirty) == ((4, 8), np.float32, 128, True)


def test_the_table_speaks_of_a_pool():
    pool = pool_of(2)
    sweep(pool, put_some(pool, 4), "writes", rounds=2)
    assert pool.metrics.table().title.startswith("pool in")
