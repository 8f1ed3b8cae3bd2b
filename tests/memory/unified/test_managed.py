"""Unified memory on a GPU, each test in a process of its own: allocators last as long as a process.

No test takes more managed memory than the device has free.
"""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.gpu


def child(code, *needs):
    """Run code in a fresh process; it fails the test where it fails."""
    for name in needs:
        pytest.importorskip(name)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_cupy_computes_in_managed_memory_and_gets_its_allocator_back():
    child(
        """
        import cupy, forebay.memory as pm
        before = cupy.cuda.get_allocator()
        with pm.unify("cupy", limit="2GB") as unified:
            a = cupy.arange(10**6, dtype="float32")
            b = (2 * a + 1).astype("float64").sum()
            assert float(b) == 1e12
            assert pm.where(a).kind == "managed", pm.where(a)
            usage = {one.library: one for one in pm.report().usages}["cupy"]
            assert usage.managed and usage.live >= 4 * 10**6 and usage.peak >= usage.live
            assert pm.report().unused < 1
        assert cupy.cuda.get_allocator() == before
        assert pm.where(cupy.zeros(3)).kind == "device"
        assert float(a[7]) == 7  # what was made there lives on
        del a, b
        """,
        "cupy",
        "rmm",
    )


def test_torch_trains_in_managed_memory():
    child(
        """
        import torch, forebay.memory as pm
        pm.unify("torch", limit="2GB")
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).cuda()
        x, y = torch.randn(64, 256).cuda(), torch.randn(64, 1).cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.5 * losses[0]
        assert pm.where(model[0].weight).kind == "managed"
        assert pm.where(model[0].weight.grad).kind == "managed"
        """,
        "torch",
        "rmm",
    )


def test_torch_that_was_used_before_is_told_of_and_restored():
    child(
        """
        import gc, warnings, torch, forebay.memory as pm
        first = torch.ones(10, device="cuda")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pm.unify("torch", limit="1GB"):
                inside = torch.ones(10**6, device="cuda")
                assert pm.where(inside).kind == "managed", pm.where(inside)
                assert float(inside.sum()) == 1e6
                del inside
                gc.collect()
        assert any("torch has used the GPU before unify()" in str(one.message) for one in caught), caught
        assert pm.where(torch.ones(10**6, device="cuda")).kind == "device"
        assert float(first.sum()) == 10
        """,
        "torch",
        "rmm",
    )


def test_torch_and_cupy_exchange_arrays_in_managed_memory():
    child(
        """
        import cupy, torch, forebay.memory as pm
        pm.unify("cupy", "torch", limit="2GB")
        a = cupy.arange(1000, dtype="float32")
        t = torch.as_tensor(a, device="cuda")
        assert t.data_ptr() == a.data.ptr and float(t.sum()) == float(a.sum())
        t += 1
        torch.cuda.synchronize()
        assert float(a[0]) == 1
        u = torch.arange(1000.0, device="cuda")
        for b in (cupy.asarray(u), cupy.from_dlpack(u)):
            assert b.data.ptr == u.data_ptr() and float(b.sum()) == float(u.sum())
        usages = {one.library: one.live for one in pm.report().usages}
        assert usages["cupy"] >= 4000 and usages["torch"] >= 4000
        """,
        "cupy",
        "torch",
        "rmm",
    )


def test_advice_and_movement_of_arrays_of_all_libraries():
    child(
        """
        import cupy, numpy as np, torch, forebay.memory as pm
        pm.unify("cupy", "torch", limit="2GB")
        arrays = [cupy.ones(10**6, "float32"), torch.ones(10**6, device="cuda"), pm.managed_empty(10**6)]
        arrays[2][:] = 1
        for array in arrays:
            for place in ("host", "device", "host", "device"):
                pm.prefetch(array, place)
                torch.cuda.synchronize()
                assert pm.where(array).prefetched == place, (type(array), pm.where(array))
            pm.advise(array, "read_mostly")
            assert pm.where(array).read_mostly
            pm.advise(array, "prefer_host")
            assert pm.where(array).preferred == "host"
            pm.advise(array, "prefer_device")
            assert pm.where(array).preferred == "device"
            pm.advise(array, "accessed_by")
            assert float(array.sum()) == 1e6
        assert pm.where(np.zeros(10)).kind == "host"
        """,
        "cupy",
        "torch",
        "rmm",
    )


def test_memory_that_does_not_move_is_refused():
    child(
        """
        import cupy, numpy as np, forebay.memory as pm
        from forebay.errors import StateError
        for array, kind in ((cupy.zeros(10), "device"), (np.zeros(10), "host")):
            try:
                pm.prefetch(array, "host")
            except StateError as error:
                assert f"in {kind} memory, which does not move" in str(error), error
            else:
                raise AssertionError(kind)
        """,
        "cupy",
    )


def test_past_the_limit_allocations_fail_and_say_why():
    child(
        """
        import warnings, cupy, forebay.memory as pm
        pm.unify("cupy", limit="100MB")
        kept = cupy.zeros(10**7, "float32")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                cupy.zeros(10**8, "float32")
            except MemoryError:
                pass
            else:
                raise AssertionError("400 MB within 100 MB")
        assert any("finds no room within the limit of 100MB and fails" in str(one.message) for one in caught), caught
        assert float(kept.sum()) == 0
        """,
        "cupy",
        "rmm",
    )


def test_more_than_is_free_is_refused():
    child(
        """
        import forebay.memory as pm
        from forebay.errors import BudgetError
        try:
            pm.unify("cupy", limit="10TB")
        except BudgetError as error:
            assert "10TB of managed memory are asked for" in str(error)
        else:
            raise AssertionError
        """,
        "cupy",
        "rmm",
    )


def test_what_exceeds_the_limit_spills_and_gives_the_same_results():
    child(
        """
        import warnings, cupy, forebay.memory as pm
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pm.unify("cupy", limit="64MB", spill="host")
            arrays = [cupy.full(4 * 10**6, number, "float32") for number in range(12)]
            total = sum(arrays)
        assert any(one.category is pm.SpillWarning for one in caught), caught
        assert float(total[0]) == float(total[-1]) == 66
        kinds = [pm.where(array).kind for array in arrays]
        assert "managed" in kinds and "pinned" in kinds
        assert pm.report().spilled > 0
        del arrays, total
        assert pm.report().spilled == 0 and pm.report().spilled_peak > 0
        """,
        "cupy",
        "rmm",
    )


def test_a_training_step_that_fails_natively_runs_with_spill():
    code = """
        import warnings, torch, forebay.memory as pm
        warnings.simplefilter("ignore")
        {setup}
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(24)))
        x = torch.randn(512, 1024)
        try:
            model, x = model.cuda(), x.cuda()
            model(x).square().mean().backward()
        except RuntimeError as error:
            assert "memory" in str(error) or "alloc" in str(error), error
            print("failed")
        else:
            print(float(model[0].weight.grad.double().norm()))
        """
    native = "torch.cuda.set_per_process_memory_fraction(130e6 / torch.cuda.get_device_properties(0).total_memory)"
    assert child(code.format(setup=native), "torch", "rmm").strip() == "failed"
    spilled = child(code.format(setup='pm.unify("torch", limit="130MB", spill="host")'), "torch", "rmm")
    whole = child(code.format(setup="pass"), "torch")
    assert float(spilled) == pytest.approx(float(whole), rel=1e-4)


def test_hooks_move_what_was_pushed_to_the_host_and_nothing_else():
    child(
        """
        import torch, forebay.memory as pm
        pm.unify("torch", limit="2GB")
        model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(6))).cuda()
        x = torch.randn(64, 512, device="cuda")
        expected = model(x).detach()
        for parameter in model.parameters():
            pm.prefetch(parameter, "device")
        with pm.prefetch_hooks(model) as hooks:
            model(x)
            settled = hooks.moved
            model(x)
            assert hooks.moved == settled, "nothing has to move twice"
            for parameter in model.parameters():
                pm.prefetch(parameter, "host")
            assert torch.equal(model(x), expected)
            assert hooks.moved > settled
        torch.cuda.synchronize()
        assert all(pm.where(parameter).prefetched == "device" for parameter in model.parameters())
        """,
        "torch",
        "rmm",
    )


def test_hooks_leave_models_that_work_in_place_alone_and_see_all_their_tensors():
    child(
        """
        import torch, forebay.memory as pm
        pm.unify("torch", limit="2GB")
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True),
            torch.nn.Linear(256, 256), torch.nn.ReLU(inplace=True), torch.nn.Linear(256, 1),
        ).cuda()
        x = torch.randn(8, 32, 256, device="cuda")

        def gradients():
            model.zero_grad()
            model(x).square().mean().backward()
            return [parameter.grad.clone() for parameter in model.parameters()]

        expected = gradients()
        with pm.prefetch_hooks(model):
            gradients()
            for parameter in model.parameters():
                pm.prefetch(parameter, "host")
            found = gradients()
        torch.cuda.synchronize()
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-7) for a, b in zip(found, expected))
        left = [name for name, one in model.named_parameters() if pm.where(one).prefetched != "device"]
        assert not left, left
        """,
        "torch",
        "rmm",
    )


def test_what_torch_keeps_is_told_of_and_not_exchanged():
    child(
        """
        import warnings, torch, forebay.memory as pm
        from forebay.errors import DeviceError
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pm.unify("torch", limit="1GB"):
                kept = torch.ones(10**6, device="cuda")
        assert any("keeps unified memory until the process ends" in str(one.message) for one in caught), caught
        assert {one.library: one.live for one in pm.report().usages}["torch"] >= 4 * 10**6
        try:
            pm.unify("torch", limit="1GB")
        except DeviceError as error:
            assert "given back to the wrong one" in str(error)
        else:
            raise AssertionError
        assert float(kept.sum()) == 1e6
        del kept
        """,
        "torch",
        "rmm",
    )


def test_managed_memory_that_was_not_touched_counts():
    child(
        """
        import forebay.memory as pm
        from forebay.cuda import managed
        from forebay.cuda.driver import device_memory
        from forebay.errors import BudgetError
        part = int(0.6 * device_memory()[0])
        kept = pm.managed_empty(part, "u1")  # never touched: nothing moves
        assert managed.untouched() == part
        try:
            pm.managed_empty(device_memory()[0] - part // 2, "u1")
        except BudgetError as error:
            assert "of managed memory are asked for" in str(error)
        else:
            raise AssertionError
        del kept
        assert managed.untouched() == 0
        """,
        "cupy",
    )


def test_plain_memory_is_kept_apart_for_other_processes():
    child(
        """
        import cupy, forebay.memory as pm
        with pm.unify("cupy", limit="1GB", comm_pool="64MB") as unified:
            buffer = cupy.asarray(unified.buffer("1MB"))
            assert pm.where(buffer).kind == "device"
            cupy.cuda.runtime.ipcGetMemHandle(buffer.data.ptr)
            try:
                cupy.cuda.runtime.ipcGetMemHandle(cupy.zeros(10**6).data.ptr)
            except cupy.cuda.runtime.CUDARuntimeError:
                pass
            else:
                raise AssertionError("managed memory was given a handle")
            del buffer
        """,
        "cupy",
        "rmm",
    )


def test_numba_takes_it_up_before_its_first_array():
    child(
        """
        import numpy as np, forebay.memory as pm
        from numba import cuda
        pm.unify("numba", limit="1GB")
        array = cuda.to_device(np.arange(1000.0))
        assert pm.where(array).kind == "managed"
        assert {one.library: one.live for one in pm.report().usages}["numba"] >= 8000
        assert array.copy_to_host().sum() == 499500
        """,
        "numba_cuda",
        "rmm",
    )


def test_what_was_moved_to_the_device_counts_once():
    child(
        """
        import forebay.memory as pm
        from forebay.cuda import managed
        from cuda.core import LEGACY_DEFAULT_STREAM as stream
        before = managed.untouched()
        kept = pm.managed_empty(64 * 10**6, "u1")
        kept[:] = 1
        counts = []
        for place in ("device", "host"):
            counts.append(managed.untouched() - before)
            pm.prefetch(kept, place)
            stream.sync()
        counts.append(managed.untouched() - before)
        assert counts == [64 * 10**6, 0, 64 * 10**6], counts
        """
    )
