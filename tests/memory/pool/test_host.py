"""The host's side of a pool: what is pinned, and how often."""

import random

import numpy as np
import pytest

import forebay as fb
from forebay.errors import BudgetError
from forebay.machine.virtual import VirtualPool
from forebay.memory import Pool
from forebay.memory.pool import host
from tests.memory.pool.programs import Trimmed

pytestmark = pytest.mark.filterwarnings("ignore::forebay.memory.pool.thrash.ThrashWarning")

KIB = 1024
STEP = 64 * KIB


class Counting(VirtualPool):
    """Counts what is pinned."""

    pins = 0

    def pin(self, nbytes):
        self.pins += 1
        return super().pin(nbytes)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    monkeypatch.setattr(host, "STEP", STEP)


def zeros_after(count, length, value=1.0):
    """Give an array that is encoded in a little more than eight bytes a number that is not zero."""
    return np.r_[np.full(count, value), np.zeros(length - count)]


def pinned(pool):
    return sum(slab.nbytes for slab in pool._pager.host._slabs)


def test_more_than_the_host_has_is_refused_whatever_the_budget_allows(monkeypatch):
    pool = Pool(fb.Budget(device="4kB", host="1GB"), arrays="numpy")
    monkeypatch.setattr(host, "CHECKED", 1)
    monkeypatch.setattr(host, "free_host_bytes", lambda: 3 * KIB - pool._pager.host.held)
    kept = [pool.put(np.full(128, float(number))) for number in range(3)]
    pool.drop(kept.pop())  # what it leaves is unpinned for one of another size
    kept.append(pool.put(np.full(100, 2.0)))
    with pytest.raises(BudgetError, match=r"allows 1GB of the host, of which 3\.07kB are there.* are pinned"):
        pool.put(np.full(128, 3.0))
    assert [pool.get(array)[0] for array in kept] == [0, 1, 2]


def test_unused_memory_of_another_size_makes_way():
    pool = Pool(fb.Budget(device="4kB", host="4kB"), arrays="numpy")
    kept = [pool.put(np.full(128, float(number))) for number in range(3)]
    pool.drop(kept.pop())
    kept.append(pool.put(np.full(200, 9.0)))
    assert [pool.get(array)[0] for array in kept] == [0, 1, 9]
    assert pool._pager.host.held == pinned(pool) == 2 * 1024 + 1600


def test_large_encodings_whose_size_changes_a_little_take_the_places_of_earlier_ones():
    machine, length = Counting(), 64 * KIB
    pool = Pool(fb.Budget(device=8 * 8 * length, host=16 * 8 * length), Trimmed(), machine)
    arrays = [pool.put(zeros_after(length // 4, length)) for _ in range(12)]
    generator = np.random.default_rng(0)

    def one_round():
        for array in arrays:
            with pool.use(writes=[array]) as (values,):
                values[:] = zeros_after(int(length * generator.uniform(0.25, 0.27)), length)

    for _ in range(3):
        one_round()
    before, stores = machine.pins, pool.metrics.ratios.count
    for _ in range(6):
        one_round()
    assert pool.metrics.ratios.count > stores + 40
    assert machine.pins <= before + 2


@pytest.mark.parametrize("kib", [5, 9, 36, 40, 63, 100])
def test_encodings_fill_the_host_budget_but_for_an_eighth(kib):
    length, budget = 128 * kib * 2, 640 * KIB
    pool = Pool(fb.Budget(device=100 * 8 * length, host=budget), Trimmed(), VirtualPool(1))

    def encode_many():
        for _ in range(400):
            array = pool.put(zeros_after(128 * kib - 1, length))
            arrays.append(array)
            pool._pager.evict(array._page)
            pool.wait()
            pool._pager.coding.settle_arrived()

    arrays = []
    with pytest.raises(BudgetError, match="host budget"):
        encode_many()
    live = sum(page.room.region.nbytes for page in pool._pager.pages.values() if page.room)
    assert live >= 0.87 * (budget - kib * KIB)
    assert pool._pager.host.held == pinned(pool) <= budget


def test_the_first_encoding_leaves_room_for_arrays_kept_as_they_are(monkeypatch):
    monkeypatch.setattr(host, "STEP", 64 * 2**20)
    pool = Pool(fb.Budget(device="1MB", host="1MB"), Trimmed(), VirtualPool())
    coded = pool.put(zeros_after(100, 1000))
    pool._pager.evict(coded._page)
    pool.wait()
    pool._pager.coding.settle_arrived()
    assert pool.get(pool.put(np.ones(100_000), codec=None))[0] == pool.get(coded)[0] == 1


def test_where_only_the_exact_size_fits_it_is_taken():
    memory = host.HostMemory(1024 + 256, VirtualPool())
    room = memory.take(1025, "u")
    assert (room.held[0].size, memory.held) == (1280, 1280)
    memory = host.HostMemory(33 * 256, VirtualPool())
    assert memory.take(33 * 256, "u").held[0].size == 33 * 256
    with pytest.raises(BudgetError, match="encoding of v"):
        memory.take(1, "v")


def test_rooms_are_never_too_small_and_at_most_an_eighth_too_large():
    for nbytes in (1, 255, 256, 257, 2048, 2049, 5000, 10**5 + 1, 2**26 - 1, 2**26 + 1, 10**9):
        assert nbytes <= host.coarse(nbytes) <= max(nbytes * 9 / 8, nbytes + 256)


def test_the_budget_that_is_named_is_enough():
    def fill(budget):
        pool = Pool(fb.Budget(device=102_800, host=budget), arrays="numpy")
        small = [pool.put(zeros_after(112, 112, number + 1), codec=Trimmed()) for number in range(8)]
        large = pool.put(np.zeros(12_500))
        for arrays in ([large], small, [large]):
            with pool.use(reads=arrays):
                pass
        pool.wait()
        pool._pager.coding.settle_arrived()
        pool.put(np.zeros(12_500))
        assert [pool.get(array)[0] for array in small] == [number + 1 for number in range(8)]

    with pytest.raises(BudgetError, match="no room on the host for array 10 of 100kB") as raised:
        fill("160kB")
    fill(str(raised.value).split("Budget(host='")[1].split("'")[0])


class Repeated:
    """Takes rooms and gives them back, the same ones however often it runs."""

    def __init__(self, seed):
        generator = random.Random(seed)
        self.steps = [
            (generator.random(), generator.choice((300, 900, 1300, 2500, 5000)) + generator.randrange(200))
            for _ in range(60)
        ]

    def run(self, budget):
        """Give the step that finds no room and the budget that is named for it; None where there is no such step."""
        memory, rooms, arrays = host.HostMemory(budget, VirtualPool()), [], []
        for number, (chance, nbytes) in enumerate(self.steps):
            try:
                if chance < 0.5 or not rooms:
                    rooms.append(memory.take(nbytes, "u"))
                elif chance < 0.6:
                    memory.promise(3 * nbytes, "v")
                    arrays.append(memory.take_exact(3 * nbytes))
                elif chance < 0.65 and arrays:
                    array = arrays.pop(0)
                    memory.give(array)
                    memory.unpromise(array.region.nbytes)
                else:
                    memory.give(rooms.pop(nbytes % len(rooms)))
            except BudgetError as error:
                return number, fb.Budget(host=str(error).split("Budget(host='")[1].split("'")[0])["host"]
            assert memory.held <= budget
        return None


@pytest.mark.parametrize("seed", range(40))
def test_the_budget_that_is_named_is_enough_whatever_was_taken_and_given_back(seed):
    program, budget, reached = Repeated(seed), 4000, -1
    while (found := program.run(budget)) is not None:
        assert found[0] > reached and found[1] > budget
        reached, budget = found


def test_the_budget_that_is_named_holds_what_is_still_to_be_encoded():
    def fill(budget):
        pool = Pool(fb.Budget(device="128kB", host=budget), Trimmed(), VirtualPool())
        arrays = [pool.put(zeros_after(500, 500, number + 1)) for number in range(24)]
        with pool.use(reads=[pool.put(np.ones(11_000), codec=None)]):
            pass
        assert [pool.get(array)[0] for array in arrays] == [number + 1 for number in range(24)]

    with pytest.raises(BudgetError, match="no room on the host for the encoding of array") as raised:
        fill("110kB")
    fill(str(raised.value).split("Budget(host='")[1].split("'")[0])


def test_the_budget_that_is_named_for_an_encoding_holds_it():
    def fill(budget):
        memory = host.HostMemory(budget, VirtualPool())
        memory.promise(3000, "u")
        for nbytes in (1000, 1100, 5000, 1200, 700, 2100, 4200):
            memory.take(nbytes, "v")

    budget = 3000
    for _ in range(7):
        with pytest.raises(BudgetError, match="encoding of v") as raised:
            fill(budget)
        named = fb.Budget(host=str(raised.value).split("Budget(host='")[1].split("'")[0])["host"]
        assert named > budget
        budget = named
    fill(budget)
