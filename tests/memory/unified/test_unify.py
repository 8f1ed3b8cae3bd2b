"""Unified memory where it can be tested without a GPU: its guard, its stack, spilling and messages."""

import sys
import warnings
from types import SimpleNamespace

import pytest

from forebay.errors import BudgetError, DeviceError, StateError
from forebay.memory import AllocatorWarning, OversubscriptionWarning, SpillWarning, report, unify
from forebay.memory.unified.adopt import check
from forebay.memory.unified.guard import HEADROOM, decide
from forebay.memory.unified.report import Report, Usage
from forebay.memory.unified.resources import Spill, build
from forebay.memory.unified.unify import room
from tests.memory.unified.fakes import FAKE, GB, FakeCupy


class TestGuard:
    def decide(self, limit, free=100 * GB, spill=None, oversubscribe=False, beside=0):
        return decide(limit, free, spill=spill, oversubscribe=oversubscribe, beside=beside)

    def test_without_a_limit_it_is_what_is_free_less_some_for_the_libraries(self):
        assert self.decide(None) == 100 * GB - HEADROOM
        assert self.decide(None, beside=GB) == 99 * GB - HEADROOM

    def test_a_limit_within_what_is_free_is_taken(self):
        assert self.decide("100GB") == 100 * GB and self.decide("1GiB") == 2**30

    def test_more_than_is_free_is_refused_with_what_to_do(self):
        with pytest.raises(BudgetError) as raised:
            self.decide("150GB")
        message = str(raised.value)
        for part in (
            "150GB of managed",
            "has 100GB free",
            "limit='99.5GB'",
            "spill='host'",
            "memory.Pool",
            "1 to 2 GB/s",
        ):
            assert part in message
        with pytest.raises(BudgetError, match="101GB"):
            self.decide("100GB", beside=GB)

    def test_more_than_is_free_is_warned_of_where_it_is_insisted_on(self):
        with pytest.warns(OversubscriptionWarning, match="100GB free.*150GB, which is 50GB more.*spill='host'"):
            assert self.decide("150GB", oversubscribe=True) == 150 * GB
        with pytest.warns(OversubscriptionWarning, match="without a limit"):
            assert self.decide(None, oversubscribe=True) is None

    def test_a_limit_that_fits_is_no_reason_to_warn(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert self.decide("50GB", oversubscribe=True) == 50 * GB

    def test_a_full_device_is_refused(self):
        with pytest.raises(BudgetError, match="only 300MB free"):
            self.decide(None, free=300 * 10**6)

    def test_nonsense_is_refused(self):
        with pytest.raises(BudgetError, match="give 'host', or None"):
            self.decide(None, spill="disk")
        with pytest.raises(BudgetError, match="one of the two"):
            self.decide(None, spill="host", oversubscribe=True)
        with pytest.raises(BudgetError, match="a limit of no bytes"):
            self.decide(0)


class Counted:
    """A resource with so many bytes."""

    def __init__(self, nbytes, base):
        self.left, self.base, self.live = nbytes, base, {}

    def allocate(self, nbytes, stream):
        if nbytes > self.left:
            raise MemoryError
        self.left -= nbytes
        self.base += nbytes
        self.live[self.base] = nbytes
        return self.base

    def deallocate(self, pointer, nbytes, stream):
        assert self.live.pop(pointer) == nbytes
        self.left += nbytes


class TestSpill:
    def test_what_finds_no_room_goes_to_the_host_and_back_to_where_it_came_from(self):
        first, second = Counted(100, 0), Counted(1000, 10**6)
        spill = Spill(first, second, 100)
        a = spill.allocate(80, None)
        with pytest.warns(
            SpillWarning, match="allocation of 50B finds no room within the limit of 100B.*over the link"
        ):
            b = spill.allocate(50, None)
        c = spill.allocate(20, None)
        assert (set(first.live), set(second.live)) == ({a, c}, {b})
        assert (spill.live, spill.peak) == (50, 50)
        spill.deallocate(a, 80, None)
        d = spill.allocate(60, None)
        assert d in first.live
        for pointer, nbytes in ((b, 50), (c, 20), (d, 60)):
            spill.deallocate(pointer, nbytes, None)
        assert not first.live and not second.live and (spill.live, spill.peak) == (0, 50)

    def test_it_is_told_once(self):
        spill = Spill(Counted(0, 0), Counted(1000, 10**6), 0)
        with pytest.warns(SpillWarning):
            spill.allocate(10, None)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            spill.allocate(10, None)

    def test_where_the_host_is_full_too_it_fails(self):
        spill = Spill(Counted(10, 0), Counted(10, 10**6), 10)
        with pytest.raises(MemoryError):
            spill.allocate(20, None)
        assert spill.live == 0


def kinds(resource):
    found = [resource.kind]
    while resource.arguments and hasattr(resource.arguments[0], "kind"):
        resource = resource.arguments[0]
        found.append(resource.kind)
    return found


class TestStack:
    def build(self, limit=8 * GB, pool=True, prefetch=True, spill=False, plain=0):
        return build(FAKE, limit, pool=pool, prefetch=prefetch, spill=spill, plain=plain, host=GB)

    def test_a_pool_over_prefetched_managed_memory_within_the_limit(self):
        stack = self.build()
        assert kinds(stack.top) == [
            "FailureCallbackResourceAdaptor",
            "PoolMemoryResource",
            "LimitingResourceAdaptor",
            "PrefetchResourceAdaptor",
            "ManagedMemoryResource",
        ]
        assert stack.pool.arguments[0].arguments[1] == 8 * GB and stack.pool.initial_pool_size == 2**30

    def test_sizes_are_what_rmm_takes(self):
        stack = self.build(limit=1000, plain=1000)
        assert stack.pool.initial_pool_size == stack.pool.arguments[0].arguments[1] == 768
        assert stack.plain.initial_pool_size == stack.plain.maximum_pool_size == 1024
        assert kinds(stack.plain) == ["PoolMemoryResource", "CudaMemoryResource"]

    def test_without_a_limit_there_is_none(self):
        assert "LimitingResourceAdaptor" not in kinds(self.build(limit=None).top)

    def test_without_a_pool_the_limit_still_holds(self):
        assert kinds(self.build(pool=False).top)[1:3] == ["LimitingResourceAdaptor", "PrefetchResourceAdaptor"]
        bare = self.build(pool=False, prefetch=False)
        assert kinds(bare.top)[1:] == ["LimitingResourceAdaptor", "ManagedMemoryResource"]

    def test_spilling_stands_on_top_and_has_a_limit_of_its_own(self):
        stack = self.build(spill=True)
        assert stack.top.kind == "CallbackMemoryResource" and stack.top.arguments[0] == stack.spill.allocate
        assert kinds(stack.spill.first)[0] == "PoolMemoryResource"
        pinned = stack.spill.second
        assert kinds(pinned) == ["PoolMemoryResource", "LimitingResourceAdaptor", "PinnedHostMemoryResource"]
        assert pinned.arguments[0].arguments[1] == GB

    def test_a_failing_allocation_is_explained(self):
        explain = self.build().top.arguments[1]
        with pytest.warns(AllocatorWarning, match="9GB finds no room within the limit of 8GB.*spill='host'"):
            assert explain(9 * GB) is False

    def test_the_explanation_is_shown_by_default(self):
        assert not issubclass(AllocatorWarning, ResourceWarning | DeprecationWarning | PendingDeprecationWarning)


class TestNames:
    def test_libraries_that_nobody_knows(self):
        with pytest.raises(DeviceError, match="no library is called 'jax': unify\\(\\) knows cupy, torch, numba, cudf"):
            check(("jax",))

    def test_libraries_that_are_not_there(self):
        with pytest.raises(DeviceError, match="cudf is not installed"):
            check(("cudf",))

    def test_none(self):
        with pytest.raises(DeviceError, match="name the libraries"):
            unify()

    def test_advice_and_places_that_nobody_knows(self):
        import numpy as np

        from forebay.memory import advise, prefetch

        with pytest.raises(StateError, match="there are read_mostly, prefer_device, prefer_host, accessed_by"):
            advise(np.zeros(3), "be_quick")
        with pytest.raises(StateError, match="there are device and host"):
            prefetch(np.zeros(3), "disk")


class TestReport:
    def test_the_part_of_the_pool_without_arrays(self):
        usages = (Usage("cupy", 300, 500, 1000, True), Usage("torch", 250, 400, 1000, True))
        made = Report(usages, 1000, spilled=50, spilled_peak=80, free=10, total=20)
        assert made.unused == pytest.approx(0.5)
        assert made.table().row_count == 5

    def test_without_unified_memory_there_is_none(self):
        assert report().unused is None

    def test_a_library_is_not_asked_where_there_is_no_gpu(self, monkeypatch):
        monkeypatch.setattr(sys.modules["forebay.memory.unified.report"], "device_capacity", lambda: None)
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())  # raises when asked, as CuPy does without a driver
        assert report().usages == () and report().free is None


class TestUnify:
    def test_a_library_allocates_from_the_stack_and_gets_its_own_back(self, cupy):
        with unify("cupy", limit="8GB") as unified:
            memory = cupy.allocator(1000)
            assert (memory.pointer, memory.size) == (4096, 1000)
            assert memory.owner.mr.top is unified.stack.top and memory.owner.stream == "stream"
            assert unified.limit == 8 * GB
        assert cupy.allocator is cupy.before

    def test_it_is_restored_once(self, cupy):
        unified = unify("cupy")
        unified.restore()
        cupy.allocator = later = object()
        unified.restore()
        assert cupy.allocator is later

    def test_it_is_set_up_once_at_a_time(self, cupy):
        with unify("cupy"), pytest.raises(DeviceError, match="set up already"):
            unify("cupy")
        unify("cupy").restore()

    def test_a_limit_above_what_is_free_changes_nothing(self, cupy):
        with pytest.raises(BudgetError, match="has 100GB free"):
            unify("cupy", limit="120GB")
        assert cupy.allocator is cupy.before

    def test_where_one_library_fails_the_others_are_restored(self, cupy, monkeypatch):
        monkeypatch.setitem(sys.modules, "rmm.allocators.torch", SimpleNamespace(rmm_torch_allocator=None))
        with pytest.raises(DeviceError, match="torch finds no GPU"):
            unify("cupy", "torch")
        assert cupy.allocator is cupy.before

    def test_rmm_writes_no_errors_of_what_spills(self, cupy, rmm):
        with unify("cupy"):
            assert rmm.level == rmm.level_enum.info
        with unify("cupy", limit="8GB", spill="host") as unified:
            assert rmm.level == rmm.level_enum.critical
        assert rmm.level == rmm.level_enum.info and not unified.kept and cupy.allocator is cupy.before

    def test_plain_memory_comes_from_the_pool_kept_apart(self, cupy):
        with unify("cupy", comm_pool="256MB") as unified:
            assert unified.buffer("1MB").mr is unified.stack.plain
            assert unified.limit == 100 * GB - HEADROOM - 256 * 10**6
        with unify("cupy") as unified, pytest.raises(BudgetError, match="comm_pool='256MB'"):
            unified.buffer("1MB")

    def test_devices_without_concurrent_access_are_told_of_the_pool(self, cupy, monkeypatch):
        from forebay.cuda import driver

        monkeypatch.setattr(driver, "managed_concurrently", lambda: False)
        with pytest.raises(DeviceError, match=r"use forebay\.memory\.Pool"):
            unify("cupy")

    def test_the_report_tells_of_each_library(self, cupy):
        with unify("cupy", pool=False) as unified:
            unified.counted["cupy"].allocation_counts.current_bytes = 30
            (usage,) = report().usages
            assert (usage.library, usage.live, usage.peak, usage.pool, usage.managed) == ("cupy", 30, 50, None, True)
            unified.counted["cupy"].allocation_counts.current_bytes = 0
        assert report().usages == ()

    def test_managed_memory_that_was_not_touched_yet_counts(self, cupy, monkeypatch):
        from forebay.cuda import managed

        monkeypatch.setattr(managed, "_alive", {4096: 90 * GB})
        monkeypatch.setattr(managed, "_place", lambda *_range: None)
        with pytest.raises(BudgetError, match="has 10GB free"):
            unify("cupy", limit="20GB")

    @pytest.mark.parametrize(("options", "left"), [({"pool": False}, 60), ({}, 100 - 100 / GB)])
    def test_so_does_what_is_behind_libraries_unless_it_was_prefetched(self, cupy, options, left):
        with unify("cupy", prefetch=False, **options) as unified:
            unified.counted["cupy"].allocation_counts.current_bytes = 40 * GB
            assert room() == left * GB
            unified.counted["cupy"].allocation_counts.current_bytes = 0
        with unify("cupy", **options):
            assert room() == 100 * GB


def test_rmm_that_is_missing_is_told_of(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy())
    monkeypatch.setitem(sys.modules, "rmm", None)
    with pytest.raises(DeviceError, match=r"needs RMM: install Forebay with its extra cuda12 or cuda13"):
        unify("cupy")
