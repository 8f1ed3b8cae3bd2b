"""What goes wrong in a pool leaves it whole: on the way in, in a block, between blocks, and after the end."""
# ruff: noqa: N806 - what is handed out has the name of the array in capitals, as in the documentation

import numpy as np
import pytest

import forebay as fb
from forebay.errors import BudgetError, StateError
from forebay.machine.virtual import VirtualPool
from forebay.memory import Pool, ThrashWarning
from forebay.memory.pool import pool as pool_module
from tests.memory.pool.programs import Trimmed

pytestmark = pytest.mark.filterwarnings("ignore::forebay.memory.pool.thrash.ThrashWarning")

ARRAY, LENGTH = 1024, 128


def pool_of(slots, host=64 * ARRAY, codec=None, machine=None):
    return Pool(fb.Budget(device=slots * ARRAY, host=host), codec, machine or VirtualPool())


def full(value, length=LENGTH):
    return np.full(length, float(value))


class Failing(VirtualPool):
    """Raises in one of its methods, as long as it is told to."""

    failing = None

    def __getattribute__(self, name):
        if name == object.__getattribute__(self, "failing"):
            raise MemoryError(name)
        return super().__getattribute__(name)


class TestOnTheWayIn:
    def test_a_mask_is_not_dropped_in_silence(self):
        pool = pool_of(8)
        with pytest.raises(StateError, match=r"the mask .* would be lost.*filled"):
            pool.put(np.ma.masked_less(np.arange(4.0), 2))
        assert "0 arrays" in repr(pool)

    def test_a_put_whose_copy_fails_keeps_nothing(self, monkeypatch):
        pool = pool_of(8, host=2 * ARRAY)

        def copy_in(*_):
            raise MemoryError("copy_in")

        with monkeypatch.context() as patch:
            patch.setattr("forebay.memory.pool.pool.copy_in", copy_in)
            with pytest.raises(MemoryError, match="copy_in"):
                pool.put(full(1))
        assert not pool._pager.pages and pool._pager.heap.used == pool._pager.coding.nbytes
        assert [pool.get(pool.put(full(number)))[0] for number in range(3)] == [0, 1, 2]

    @pytest.mark.parametrize("codec", [None, Trimmed()])
    @pytest.mark.parametrize("method", ["pin", "fill"])
    def test_a_put_that_fails_keeps_nothing(self, method, codec):
        machine = Failing()
        pool = pool_of(8, host=2 * ARRAY, codec=codec, machine=machine)
        machine.failing = method
        if (method == "fill") == (codec is not None):
            with pytest.raises(MemoryError):
                pool.put(full(1))
        machine.failing = None
        assert not pool._pager.pages and pool._pager.heap.used == pool._pager.coding.nbytes
        assert [pool.get(pool.put(full(number)))[0] for number in range(3)] == [0, 1, 2]

    @pytest.mark.parametrize("method", ["enter", "array"])
    def test_a_block_that_cannot_be_entered_is_not_open(self, method):
        machine = Failing()
        pool = pool_of(2, machine=machine)
        a, b = pool.put(full(1)), pool.put(full(2))
        machine.failing = method
        for roles in ({"reads": [a]}, {"writes": [a, b]}):
            with pytest.raises(MemoryError):
                pool.use(**roles).__enter__()
        machine.failing = None
        assert pool._uses._open == 0
        with pool.use(reads=[a], writes=[b]) as (A, B):
            B += A
        assert pool.get(b)[0] == 3

    def test_rooms_for_encodings_that_find_no_place_leave_those_there_were(self):
        for count in range(1, 9):
            pool = pool_of(12, codec=Trimmed())
            small = [pool.put(full(number)) for number in range(8)]
            with pool.use(reads=small[:count]), pytest.raises(BudgetError):
                pool.put(full(1, 448))
            for _ in range(2):
                for array in small:
                    with pool.use(writes=[array]) as (values,):
                        values += 1
            assert [pool.get(array)[0] for array in small] == [number + 2 for number in range(8)]

    def test_rooms_for_encodings_of_a_put_that_failed_make_way(self):
        pool = pool_of(40)
        arrays = [pool.put(full(1, length * LENGTH)) for length in (16, 16, 5)]
        with pool.use(reads=arrays[:2]), pytest.raises(BudgetError, match="finds no room between the arrays of uses"):
            pool.put(full(2, 3 * LENGTH), codec=Trimmed())
        with pool.use(reads=arrays):
            pass

    @pytest.mark.parametrize("left", [True, False])
    def test_rooms_for_encodings_of_arrays_that_were_dropped_make_way(self, left):
        pool = pool_of(16)
        small = pool.put(full(1, 32), codec=Trimmed() if left else None)
        pool.drop(pool.put(full(2, 4 * LENGTH), codec=Trimmed()))
        large = pool.put(full(3, 13 * LENGTH))
        for array, value in ((large, 3), (small, 1)):
            with pool.use(writes=[array]) as (values,):
                assert values[0] == value
        assert pool.get(small)[0] == 1

    @pytest.mark.parametrize("from_host", [True, False])
    def test_rooms_for_encodings_taken_in_a_block_are_in_nobodys_way_after_it(self, from_host, monkeypatch):
        if not from_host:
            monkeypatch.setattr(pool_module, "view_of", lambda array: None)  # so that it is taken for one of a device
        pool = pool_of(40)
        first = pool.put(full(1, 16 * LENGTH))
        with pool.use(reads=[first]):
            small = pool.put(full(2, LENGTH), codec=Trimmed())
        large = pool.put(full(3, 24 * LENGTH))
        for array, value in ((large, 3), (small, 2), (first, 1), (large, 3)):
            with pool.use(writes=[array]) as (values,):
                assert values[0] == value

    def test_a_first_codec_finds_no_room_beside_a_block_that_takes_all(self):
        pool = pool_of(8)
        arrays = [pool.put(full(1)) for _ in range(8)]
        with pool.use(reads=arrays), pytest.raises(BudgetError, match="no room for encodings"):
            pool.put(full(1), codec=Trimmed())


class TestInABlock:
    def test_its_own_error_is_seen_where_the_host_is_full_too(self):
        for seed in range(12):
            pool = pool_of(12, host=2 * ARRAY, codec=Trimmed(), machine=VirtualPool(seed))
            kept = []

            def fill(pool=pool, kept=kept):
                for number in range(12):
                    kept.append(pool.put(full(number + 1, 2 * LENGTH)))

            def fail(pool=pool, kept=kept):
                with pool.use(reads=kept[-1:]):
                    raise ZeroDivisionError

            with pytest.raises(BudgetError, match=r"encoding of array \d+ .* Give Budget\(host=.* holds it with all"):
                fill()
            with pytest.raises(ZeroDivisionError):
                fail()
            assert [pool.get(array)[0] for array in kept] == [number + 1 for number in range(len(kept))]

    def test_an_encoding_that_waits_for_room_on_the_host_can_be_read(self):
        pool = pool_of(12, host=ARRAY, codec=Trimmed())
        array = pool.put(full(7, 2 * LENGTH))
        pool._pager.coding.settle_arrived = lambda: None  # its size is not known yet
        pool._pager.evict(array._page)
        assert pool.get(array)[0] == 7

    @pytest.mark.parametrize("codec", [None, Trimmed()])
    def test_what_a_failed_block_overwrites_has_no_values(self, codec):
        pool = pool_of(8, codec=codec)
        new, old = pool.empty(LENGTH, "float64"), pool.put(full(1))

        def fail(**roles):
            with pool.use(**roles):
                raise ZeroDivisionError

        for roles in ({"overwrites": [new, old]}, {"writes": [new]}):
            with pytest.raises(ZeroDivisionError):
                fail(**roles)
        for array in (new, old):
            with pytest.raises(StateError, match="has no values yet, or lost them"):
                pool.get(array)
            with pytest.raises(StateError, match="use it in `overwrites` first"):
                pool.use(reads=[array]).__enter__()
            assert not array.dirty
            with pool.use(overwrites=[array]) as (values,):
                values[:] = 7
            assert pool.get(array)[0] == 7

    def test_blocks_may_be_left_in_any_order(self):
        pool = pool_of(4)
        a, b, c = (pool.put(full(number)) for number in range(3))

        def steps(array):
            with pool.use(reads=[c], writes=[array]) as (_, values):
                yield values

        first, second = steps(a), steps(b)
        A, B = next(first), next(second)
        A[:], B[:] = 10, 20
        for generator in (first, second):
            assert next(generator, None) is None
        assert [pool.get(array)[0] for array in (a, b, c)] == [10, 20, 2]

    def test_a_block_is_entered_once_at_a_time_and_again_later(self):
        pool = pool_of(2)
        lease = pool.use(reads=[pool.put(full(1))])
        with lease, pytest.raises(StateError, match="open already"):
            lease.__enter__()
        with lease as (values,):
            assert values[0] == 1


class TestTheEnd:
    def test_a_block_entered_after_it_is_refused(self):
        pool = pool_of(2)
        lease = pool.use(reads=[pool.put(full(1))])
        pool.close()
        with pytest.raises(StateError, match="the pool is closed"):
            lease.__enter__()

    def test_a_block_that_is_open_can_still_be_left(self):
        pool = pool_of(2)
        arrays = [pool.put(full(number)) for number in range(6)]
        for array in arrays * 3:
            with pool.use(writes=[array]) as (values,):
                values += 1
        with pool.use(writes=arrays[:1]) as (values,):
            values += 1
            pool.close()


class TestNumbers:
    @pytest.mark.parametrize("length", [128, 1000, 9999])
    def test_the_budget_named_for_an_array_with_a_codec_holds_it(self, length):
        with pytest.raises(BudgetError, match="for itself and for encodings on their way") as raised:
            pool_of(3, host=10**7, codec=Trimmed()).put(full(1, length))
        named = str(raised.value).split("Budget(device='")[1].split("'")[0]
        pool = Pool(fb.Budget(device=named, host=10**7), Trimmed(), VirtualPool())
        with pool.use(writes=[pool.put(full(1, length))]) as (values,):
            assert values[0] == 1

    @pytest.mark.parametrize("large", [15, 30, 60])
    def test_a_large_array_beside_encodings_is_told_the_budget_that_holds_it(self, large):
        def put(device):
            pool = Pool(fb.Budget(device=device, host=10**7), None, VirtualPool())
            small = pool.put(full(1), codec=Trimmed())
            array = pool.put(full(2, large * LENGTH))
            for one, value in ((array, 2), (small, 1)):
                with pool.use(writes=[one]) as (values,):
                    assert values[0] == value

        with pytest.raises(BudgetError) as raised:
            put(8 * ARRAY)
        named = str(raised.value).split("Budget(device='")[1].split("'")[0]
        put(named)
        with pytest.raises(BudgetError):
            put(large * ARRAY + 2 * 1280 - 256)

    def test_a_first_codec_that_leaves_an_older_array_no_room_is_refused(self):
        pool = pool_of(10)
        large = pool.put(full(1, 9 * LENGTH), name="large")
        with pytest.raises(BudgetError, match=r"large of 9.22kB needs 11.8kB .* with which array 2 is put"):
            pool.put(full(2), codec=Trimmed())
        with pool.use(reads=[large]) as (values,):
            assert values[0] == 1

    @pytest.mark.parametrize("length", [100, 128, 1000])
    def test_the_budget_named_for_thrashing_holds_all_arrays_with_a_codec(self, length):
        def sweep(device, rounds):
            pool = Pool(fb.Budget(device=device, host=10**7), Trimmed(), VirtualPool())
            arrays = [pool.put(full(1, length)) for _ in range(40)]
            for _ in range(rounds):
                for array in arrays:
                    with pool.use(writes=[array]):
                        pass
            return pool

        with pytest.warns(ThrashWarning) as caught:
            sweep(12 * max(ARRAY, 8 * length), 6)
        assert caught[0].filename == __file__
        named = str(caught[0].message).split("A device budget of ")[1].split(" ")[0]
        assert sweep(named, 6).metrics.moved["up 1"] == 0

    def test_several_arrays_with_a_codec_are_told_the_budget_that_holds_them(self):
        def use(device):
            pool = Pool(fb.Budget(device=device, host=10**7), Trimmed(), VirtualPool())
            with pool.use(reads=[pool.put(full(1)) for _ in range(20)]):
                pass

        with pytest.raises(BudgetError, match=r"20 arrays of 20.5kB are used together") as raised:
            use(8 * ARRAY)
        use(str(raised.value).split("Budget(device='")[1].split("'")[0])

    def test_rooms_for_encodings_are_fewer_where_arrays_that_are_used_together_need_theirs(self):
        device, room = 100 * ARRAY, 6400
        pool = Pool(fb.Budget(device=device, host=10**7), None, VirtualPool())
        small = pool.put(full(1, room // 8 - 1), codec=Trimmed())
        assert pool._pager.coding.nbytes == 4 * room
        large = [pool.put(full(number, (device - 2 * room) // 16)) for number in (2, 3)]
        with pool.use(reads=large) as (a, b):
            assert (a[0], b[0]) == (2, 3)
        with pool.use(reads=[small]) as (values,):
            assert values[0] == 1

    def test_bytes_avoided_are_never_less_than_none(self):
        pool = pool_of(16, codec=Trimmed())
        kept = [pool.put(full(number + 1)) for number in range(40)]
        pool.wait()
        assert len(kept) == 40 and pool.metrics.moved["down 1"] > 0
        assert min(pool.metrics.avoided.values()) >= 0
        assert pool.metrics.avoided["down 1"] == 40 * ARRAY - pool.metrics.moved["down 1"]
