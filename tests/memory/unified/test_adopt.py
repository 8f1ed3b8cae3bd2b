"""What libraries keep of unified memory when it is restored, and that nothing is exchanged under their arrays."""

import sys
import warnings
from types import SimpleNamespace

import pytest

from forebay.errors import DeviceError
from forebay.memory import AllocatorWarning, report, unify


def hold(unified, name, nbytes):
    """Have arrays of a library live in unified memory."""
    unified.counted[name].allocation_counts.current_bytes = nbytes


class TestTorch:
    def test_unused_it_keeps_what_it_was_given_and_says_so(self, rmm, torch):
        unified = unify("torch")
        torch.initialized = True
        hold(unified, "torch", 30)
        with pytest.warns(AllocatorWarning, match="keeps unified memory until the process ends"):
            unified.restore()
        assert rmm.current is unified.counted["torch"] and unified.kept == ["torch"]
        (usage,) = report().usages
        assert (usage.library, usage.live, usage.managed) == ("torch", 30, True)

    def test_what_it_keeps_is_not_exchanged_under_its_tensors(self, rmm, torch):
        unified = unify("torch")
        torch.initialized = True
        with pytest.warns(AllocatorWarning):
            unified.restore()
        for names in (("torch",), ("cudf",), ("cupy", "torch")):
            with pytest.raises(DeviceError, match="given back to the wrong one"):
                unify(*names)
        assert rmm.current is unified.counted["torch"]
        unify("cupy").restore()

    def test_used_before_it_is_given_a_pool_for_a_while(self, rmm, torch):
        torch.initialized = True
        with pytest.warns(AllocatorWarning, match="has used the GPU before"), unify("torch"):
            assert torch.in_pool
        assert not torch.in_pool and rmm.current == "first" and report().usages == ()

    def test_tensors_that_outlive_the_block_are_freed_where_they_came_from(self, rmm, torch):
        torch.initialized = True
        with pytest.warns(AllocatorWarning, match="has used the GPU before"):
            unified = unify("torch")
        hold(unified, "torch", 30)
        with pytest.warns(AllocatorWarning, match="still alive"):
            unified.restore()
        assert rmm.current is unified.counted["torch"]
        with pytest.raises(DeviceError, match="drop them first"):
            unify("torch")
        hold(unified, "torch", 0)
        with pytest.warns(AllocatorWarning), unify("torch"):
            pass

    def test_a_pool_that_torch_does_not_make_leaves_everything_as_it_was(self, rmm, torch):
        torch.initialized = True

        def refuse(allocator):
            raise RuntimeError("no pools")

        torch.cuda.MemPool = refuse
        with pytest.warns(AllocatorWarning), pytest.raises(RuntimeError, match="no pools"):
            unify("cupy", "torch")
        assert rmm.current == "first" and sys.modules["cupy"].allocator is sys.modules["cupy"].before

    @pytest.mark.parametrize("names", [("torch", "cudf"), ("cudf", "torch")])
    def test_with_cudf_it_shares_the_current_resource_and_the_counts(self, rmm, torch, names):
        unified = unify(*names)
        assert rmm.current is unified.counted["torch"] is unified.counted["cudf"]
        assert [one.library for one in report().usages] == [" and ".join(names)]
        with pytest.warns(AllocatorWarning):
            unified.restore()
        assert rmm.current is unified.counted["torch"], "torch gives its tensors back to it"


def test_numba_that_was_used_keeps_what_it_was_given_and_says_so(rmm, monkeypatch):
    gpu = SimpleNamespace(primary_context=None)
    driver = SimpleNamespace(_memory_manager="own")
    driver.set_memory_manager = lambda manager: setattr(driver, "_memory_manager", manager)
    devices = SimpleNamespace(_runtime=SimpleNamespace(gpus=[gpu]))
    monkeypatch.setitem(sys.modules, "numba", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "numba.cuda.cudadrv.driver", driver)
    monkeypatch.setitem(sys.modules, "numba.cuda.cudadrv.devices", devices)
    monkeypatch.setitem(sys.modules, "rmm.allocators.numba", SimpleNamespace(RMMNumbaManager=object))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unify("numba").restore()
    with pytest.warns(AllocatorWarning, match="Numba keeps the memory manager"), unify("numba") as unified:
        gpu.primary_context = "made"
    assert driver._memory_manager == "own" and unified.kept == ["numba"]
    with pytest.raises(DeviceError, match="Numba has used the GPU already"):
        unify("numba")
