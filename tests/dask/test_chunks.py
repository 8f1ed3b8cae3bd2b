"""The door to Dask: chunks that the workers can hold, the result that Dask itself gives, and models that learn on."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import dask.array as da
import dask.config
import dask.system
import distributed
import numpy as np
import pytest
from dask.utils import key_split

import forebay.dask as door
from forebay.dask.limits import limits_of
from forebay.dask.tightening import tighten
from forebay.errors import BudgetError, PlanError
from forebay.footprint import CutError, FootprintWarning
from forebay.units import Budget

VOLUME = np.random.default_rng(0).random((61, 47, 53), dtype="float32")


def array(chunks=(20, 47, 53)):
    return da.from_array(VOLUME, chunks=chunks)


def of_workers(source, name):
    """Workers cannot import this file: functions made like this travel whole."""
    scope = {"__name__": "__main__", "np": np, "time": time}
    exec(source, scope)
    return scope[name]


double = of_workers(
    """
def double(block):
    return 2 * block
""",
    "double",
)
SMOOTH = of_workers(
    """
def smooth(block, width=3):
    from scipy.ndimage import uniform_filter
    return uniform_filter(block, width, mode="nearest")
""",
    "smooth",
)
SMOOTH_ON_WORKERS = """
def smooth(block):
    import scipy.signal
    from scipy.ndimage import gaussian_filter
    return gaussian_filter(block, 1.0, mode="nearest")
"""


class TestLimits:
    @pytest.mark.slow
    def test_the_budget_is_what_the_worker_has_left_before_it_spills(self, client):
        limits = limits_of(client)
        assert 0 < limits.budget < 0.6 * 10**9 - 50e6  # a worker takes more than 50 MB for itself
        assert (limits.threads, limits.workers, limits.declared) == (2, 1, 500e6)

    def test_without_a_cluster_it_is_this_process(self):
        limits = limits_of(None)
        assert limits.budget > 0
        assert (limits.workers, limits.declared) == (1, None)

    def test_the_allocator_of_the_callers_process_is_left_alone(self, monkeypatch):
        """Small temporaries of NumPy took 3.5 times as long where it was told to map each of them."""
        told = []
        libc = SimpleNamespace(mallopt=lambda *option: told.append(option))
        monkeypatch.setattr("forebay.dask.limits.ctypes", SimpleNamespace(CDLL=lambda name: libc))
        limits_of(None)
        with (
            distributed.LocalCluster(n_workers=1, dashboard_address=":0", processes=False) as threads,
            distributed.Client(threads, set_as_default=False) as one,
        ):
            limits_of(one)
        assert not told

    def test_what_this_process_holds_is_not_there_for_tasks(self, monkeypatch):
        class Holding:
            rss = 16 * 2**30

            def memory_info(self):
                return self

        monkeypatch.setattr("forebay.dask.limits._memory", lambda: 32 * 2**30)
        monkeypatch.setattr("forebay.dask.limits.psutil.Process", Holding)
        assert limits_of(None).budget == int(0.6 * 32 * 2**30) - 16 * 2**30
        monkeypatch.setattr(Holding, "rss", 30 * 2**30)
        assert limits_of(None).budget == 0

    @pytest.mark.parametrize(
        ("settings", "threads"),
        [
            ({}, dask.system.CPU_COUNT),
            ({"num_workers": 17}, 17),
            ({"pool": ThreadPoolExecutor(5)}, 5),
            ({"scheduler": "sync"}, 1),
        ],
    )
    def test_without_a_cluster_threads_are_those_that_dask_starts(self, settings, threads):
        with dask.config.set(settings):
            assert limits_of(None).threads == threads

    def test_a_cluster_without_workers_is_refused(self):
        with (
            distributed.LocalCluster(n_workers=0, dashboard_address=":0", processes=False) as empty,
            distributed.Client(empty, set_as_default=False) as one,
            pytest.raises(BudgetError, match="no workers"),
        ):
            limits_of(one)

    def test_workers_give_large_allocations_back_at_once(self, client):
        limits_of(client)

        def held_by_freed_megabytes():
            import numpy
            import psutil

            process = psutil.Process()
            before = process.memory_info().rss
            several = [numpy.ones(2**20, "uint8") for _ in range(64)]
            keep = several[-1]  # the top of a heap would hold all that lies below it
            del several
            return process.memory_info().rss - before - keep.nbytes

        (left,) = client.run(held_by_freed_megabytes).values()
        assert left < 16e6


class TestChunks:
    def test_chunks_fit_the_budget_with_every_thread_busy(self, client, known):
        chunks = door.chunks_for(double, array(), client, budget="2MB", model=known())
        volume = math.prod(chunks)
        assert 2 * (4 * volume + 12 * volume + 4 * volume + 4 * volume) <= 2e6

    def test_auto_takes_what_the_workers_have(self, client, known):
        large = da.zeros((1000, 1000, 1000), chunks=100, dtype="float32")
        chunks = door.chunks_for(double, large, client, model=known(100))
        assert 0.5 < 2 * 162 * math.prod(chunks) / limits_of(client).budget <= 1

    def test_a_budget_of_tiers_gives_that_of_the_host(self, client, known):
        plain = door.chunks_for(double, array(), client, budget="2MB", model=known())
        assert door.chunks_for(double, array(), client, budget=Budget(host="2MB"), model=known()) == plain

    def test_functions_on_a_device_need_a_budget(self, client, known):
        model = known()
        model.place = "device"
        with pytest.raises(BudgetError, match=r"double works on a device.*: give budget="):
            door.chunks_for(double, array(), client, model=model)
        assert door.chunks_for(double, array(), client, budget="1GB", model=model) == VOLUME.shape

    def test_axes_that_must_stay_whole_do(self, client, known):
        chunks = door.chunks_for(double, array(), client, budget="500kB", model=known(), whole=(2,))
        assert chunks[2] == 53

    def test_a_budget_that_holds_nothing_is_refused(self, client, known):
        with pytest.raises(BudgetError, match="the smallest budget that works is"):
            door.chunks_for(double, array(), client, budget=10, model=known())


class TestModels:
    @pytest.mark.slow
    def test_a_function_is_learned_once_and_kept_in_a_file(self, client, tmp_path, monkeypatch):
        path = tmp_path / "sqrt.json"
        volume = da.zeros((400, 400, 400), chunks=100, dtype="float32")
        chunks = door.chunks_for(np.sqrt, volume, client, budget="50MB", model=path)
        assert 2 * 4 * 4 * math.prod(chunks) <= 50e6  # input and result, in work and waiting, on two threads
        monkeypatch.setattr("forebay.footprint.registry.learn", None)  # nothing is learned again
        monkeypatch.setattr("forebay.footprint.registry._MODELS", {})
        assert door.chunks_for(np.sqrt, volume, client, budget="50MB", model=path) == chunks
        assert door.chunks_for(np.sqrt, volume, client, budget="50MB") == chunks

    @pytest.mark.slow
    def test_a_function_of_two_arrays_is_learned_as_such(self, client):
        one, other = array(), array((61, 10, 53))
        result = door.map_blocks(np.subtract, one, other, budget="4MB", client=client)
        assert not result.compute().any()
        assert 2 * (4 + 4 + 4) * math.prod(result.chunksize) <= 4e6

    def test_all_inputs_are_counted_before_and_after_observations(self, client, known):
        one = da.ones((100, 100, 100), chunks=50, dtype="float32")
        for _ in range(2):
            result = door.map_blocks(np.add, one, one, budget="8MB", client=client, model=known(4))
            assert 2 * (4 + 4 + 4 + 2 * 4 + 4) * math.prod(result.chunksize) <= 8e6
            assert (result.compute() == 2).all()


class TestMapBlocks:
    def test_the_result_is_that_of_the_function(self, client, known):
        result = door.map_blocks(lambda block: block + 1, array(), budget="1MB", model=known(), client=client)
        assert result.numblocks != array().numblocks
        assert np.array_equal(result.compute(), VOLUME + 1)

    def test_arrays_that_are_none_of_dasks_are_opened_in_these_chunks(self, client, known):
        result = door.map_blocks(double, VOLUME, budget="1MB", model=known(), client=client)
        assert math.prod(result.numblocks) > 1
        assert np.array_equal(result.compute(), 2 * VOLUME)

    def test_shapes_and_dtypes_come_from_the_model(self, client, known):
        """The function fails on the empty arrays that Dask would try it on."""

        def inner(block):
            assert block.size
            return block[1:-1, 1:-1, 1:-1].astype("float64")

        result = door.map_blocks(inner, array(), budget="1MB", model=known(trims=2, output="float64"), client=client)
        assert result.dtype == "float64"
        assert result.shape == tuple(
            extent - 2 * blocks for extent, blocks in zip(VOLUME.shape, result.numblocks, strict=True)
        )
        assert result.compute().shape == result.shape

    def test_axes_that_go_or_come_have_to_be_told(self, client, known):
        class Flat(known):
            def predict(self, shape):
                return replace(super().predict(shape), output_shape=shape[:-1])

        def energy(block):
            return (block**2).sum(axis=-1)

        with pytest.raises(PlanError, match=r"energy makes .* of a chunk of .*: say which axes go or come"):
            door.map_blocks(energy, array(), model=Flat(), client=client, whole=(-1,))
        result = door.map_blocks(energy, array(), model=Flat(), client=client, whole=(-1,), drop_axis=2)
        assert result.shape == VOLUME.shape[:-1]
        assert np.allclose(result.compute(), energy(VOLUME))

    def test_options_reach_the_function(self, client, known):
        result = door.map_blocks(
            lambda block, add, block_id: block + add + 0 * sum(block_id), array(), model=known(), client=client, add=3
        )
        assert np.allclose(result.compute(), VOLUME + 3)

    @pytest.mark.slow
    def test_functions_that_ask_which_block_they_are_given_are_learned_too(self, client):
        def numbered(block, block_id=None, block_info=None):
            assert block_info[0]["chunk-location"] == block_id
            return block + sum(block_id)

        result = door.map_blocks(numbered, array(), budget="2MB", client=client, whole=(1, 2))
        first = result.chunks[0][0]
        assert result.numblocks[0] > 1
        assert np.array_equal(result[:first].compute(), VOLUME[:first])
        assert np.array_equal(result[first : 2 * first].compute(), VOLUME[first : 2 * first] + 1)

    @pytest.mark.parametrize("shape", [(), (0, 3)])
    def test_where_there_is_nothing_to_cut_functions_just_run(self, client, shape):
        empty = np.full(shape, 4.0, "float32")
        assert door.chunks_for(np.sqrt, empty, client) == shape
        for result in (
            door.map_blocks(np.sqrt, empty, client=client),
            door.map_overlap(np.sqrt, da.from_array(empty), depth="auto", client=client),
        ):
            assert result.dtype == "float32" and np.array_equal(result.compute(), np.sqrt(empty))

    @pytest.mark.parametrize("mapped", [door.map_blocks, partial(door.map_overlap, depth=1, boundary="none")])
    def test_tasks_have_the_name_of_the_function(self, client, known, mapped):
        """Dask shows it on its dashboard."""
        result = mapped(double, array(), budget="2MB", model=known(), client=client)
        assert any(key_split(key) == "double" for key in result.dask)

    def test_arrays_that_are_cut_alike(self, client, known):
        result = door.map_blocks(
            lambda one, other: one - other, array(), array((61, 10, 53)), budget="2MB", model=known(), client=client
        )
        assert not result.compute().any()

    def test_chunks_that_no_worker_can_hold_are_refused_before_anything_runs(self, client, known):
        with pytest.raises(BudgetError, match=r"open it with the chunks that chunks_for\(\) gives"):
            door.map_blocks(double, array(VOLUME.shape), budget="500kB", model=known(), client=client)

    def test_chunks_that_fit_once_but_not_on_every_thread_are_refused(self, client, known):
        """Pieces cut from them keep them alive, one on each thread."""
        whole = math.prod(VOLUME.shape) * 4
        with pytest.raises(BudgetError, match="with 2 threads holds"):
            door.map_blocks(double, array(VOLUME.shape), budget=int(1.5 * whole), model=known(), client=client)

    def test_chunks_put_together_from_all_others_are_refused_where_those_do_not_fit(self, client, known):
        """Each chunk is small, but each block needs a piece of every one."""
        size = math.prod(VOLUME.shape) * 4
        options = {"model": known(30), "client": client, "whole": (1, 2)}
        with pytest.raises(BudgetError, match="open it with the chunks"):
            door.map_blocks(double, array((61, 2, 53)), budget=size, **options)
        door.map_blocks(double, array((2, 47, 53)), budget=size, **options)

    def test_chunks_that_are_right_need_not_be_cut(self, client, known):
        budget = "2MB"
        chunks = door.chunks_for(double, VOLUME, client, budget=budget, model=known(), whole=(1, 2))
        opened = array(chunks)
        result = door.map_blocks(double, opened, budget=budget, model=known(), client=client, whole=(1, 2))
        assert result.chunks == opened.chunks

    def test_what_is_no_array_goes_by_keyword(self, client, known):
        with pytest.raises(PlanError, match=r"argument 1 is a int, not an array.*by keyword"):
            door.map_blocks(np.add, array(), 3, model=known(), client=client)

    def test_chunks_of_unknown_sizes_are_refused(self, client, known):
        flat = array().reshape(-1)
        with pytest.raises(PlanError, match=r"compute_chunk_sizes\(\)"):
            door.map_blocks(double, flat[flat > 0.5], model=known(ndim=1), client=client)

    @pytest.mark.slow
    def test_two_tasks_that_do_not_fit_together_do_not_run_together(self, client, known):
        spans = of_workers(
            """
def spans(block):
    begun = time.time()
    time.sleep(0.3)
    return np.array([[[begun, time.time()]]])
""",
            "spans",
        )

        def most_at_once(a_voxel):
            result = door.map_blocks(
                *(spans, array((20, 47, 53))),
                model=known(a_voxel, output="float64", seconds=1e-4),
                budget="4GB",
                client=client,
                chunks=(1, 1, 2),
            )
            with dask.config.set({"optimization.fuse.active": False}):
                times = [tuple(span) for span in result.compute().reshape(-1, 2)]
            assert len(times) > 1
            return max(sum(other[0] <= begun < other[1] for other in times) for begun, _ in times)

        block = 1.5 * math.prod((31, 47, 53))
        with pytest.warns(FootprintWarning, match="optimization.fuse.active"):
            assert most_at_once(300e6 / block) == 1  # of 500 MB declared
        assert dask.config.get("optimization.fuse.active", None) is None  # Dask's configuration is the caller's
        assert most_at_once(100e6 / block) == 2
        with pytest.warns(FootprintWarning):
            assert most_at_once(900e6 / block) == 1


class TestMapOverlap:
    @pytest.mark.slow
    @pytest.mark.parametrize("boundary", ["nearest", "none"])
    def test_the_result_is_that_of_the_whole(self, client, known, boundary):
        result = door.map_overlap(
            SMOOTH, array(), depth=2, boundary=boundary, budget="3MB", model=known(), client=client, width=5
        )
        assert math.prod(result.numblocks) > 1
        assert np.allclose(result.compute(), SMOOTH(VOLUME, width=5), atol=1e-6)

    def test_a_depth_that_is_asked_for_is_found_or_refused(self, client, known):
        result = door.map_overlap(
            SMOOTH, array(), depth="auto", boundary="none", budget="3MB", model=known(), client=client, width=5
        )
        assert math.prod(result.numblocks) > 1
        assert np.allclose(result.compute(), SMOOTH(VOLUME, width=5), atol=1e-6)
        rows = door.map_overlap(
            lambda x: np.cumsum(x, axis=2), array(), depth="auto", budget="500kB", model=known(), client=client
        )
        assert rows.numblocks[2] == 1 < math.prod(rows.numblocks)
        with pytest.raises(CutError, match="fftn looks at all of its input"):
            door.map_overlap(np.fft.fftn, array(), depth="auto", model=known(), client=client)
        with pytest.raises(PlanError, match="'auto' with one array"):
            door.map_overlap(np.add, array(), array(), depth="auto", model=known(), client=client)

    def test_several_arrays_each_with_its_depth(self, client, known):
        def sums(one, other):
            return one + other[1:-1]

        result = door.map_overlap(
            *(sums, array(), array((61, 10, 53))),
            depth=[0, {0: 1}],
            boundary=["none", "nearest"],
            trim=False,
            budget="2MB",
            model=known(),
            client=client,
        )
        assert math.prod(result.numblocks) > 1
        assert np.array_equal(result.compute(), 2 * VOLUME)

    def test_keywords_of_dask_do_not_reach_the_function(self, client, known):
        result = door.map_overlap(
            double, array(), depth=1, allow_rechunk=False, align_arrays=True, budget="2MB", model=known(), client=client
        )
        assert np.array_equal(result.compute(), 2 * VOLUME)

    @pytest.mark.parametrize("depth", [1.5, -1, {0: (1, 2.5)}])
    def test_depths_that_are_no_numbers_of_elements_are_refused(self, client, known, depth):
        with pytest.raises(PlanError, match="give a whole number of elements"):
            door.map_overlap(double, array(), depth=depth, model=known(), client=client)

    def test_a_function_that_changes_the_shape_is_refused(self, client, known):
        with pytest.raises(PlanError, match=r"double makes .* of a chunk of .*: pad the result"):
            door.map_overlap(double, array(), depth=2, model=known(trims=2), client=client)

    def test_halos_and_neighbours_are_counted(self, client, known):
        plain = door.chunks_for(double, array(), client, budget="2MB", model=known())
        with_halo = door.chunks_for(double, array(), client, budget="2MB", model=known(), depth=(4, 4, 4))
        assert math.prod(with_halo) < 0.6 * math.prod(plain)


def test_a_number_among_arrays_is_refused_rather_than_left_without_halo(known):
    def both(block, number):
        return block + number

    for mapper, options in ((door.map_overlap, {"depth": 2}), (door.map_blocks, {})):
        for arrays in ((np.ones((40, 40), "float32"), np.float32(0)), (np.float32(0), np.ones((40, 40), "float32"))):
            with dask.config.set(scheduler="sync"), pytest.raises(BudgetError, match="cannot be cut alike"):
                mapper(both, *arrays, model=known(ndim=2), budget="1MB", **options)
    with dask.config.set(scheduler="sync"), pytest.raises(PlanError, match="argument 1 is a float"):
        door.map_blocks(both, np.ones((40, 40), "float32"), 0.0, model=known(ndim=2), budget="1MB")


class TestMeasuring:
    def test_observations_are_found_by_what_the_door_was_given(self, known):
        def plus(block, add=1):
            return block + add

        options = {"budget": "1MB", "model": known(), "add": 2}
        volume = array()
        with dask.config.set(scheduler="sync"):
            door.map_blocks(plus, volume, dtype="float32", **options).compute()
            blocks = door.observed(plus, volume, dtype="float32", **options)
            assert blocks
            door.map_overlap(plus, volume, depth=1, boundary="none", **options).compute()
            assert len(door.observed(plus, volume, depth=1, boundary="none", **options)) > len(blocks)
        assert not door.observed(plus, volume, add=3)

    @pytest.mark.slow
    def test_chunks_that_ran_alone_are_observed(self, known):
        def copies(block):
            return (block + 1) * (block + 2)  # the product takes the place of one of its factors

        large = da.ones((200, 100, 100), chunks=(100, 100, 100), dtype="float32")
        with (
            distributed.LocalCluster(
                n_workers=1, threads_per_worker=1, memory_limit="1GB", dashboard_address=":0"
            ) as cluster,
            distributed.Client(cluster, set_as_default=False) as one,
        ):
            result = door.map_blocks(copies, large, budget="40MB", model=known(), client=one)
            one.compute(result.sum()).result()
            seen = door.observed(copies, large, client=one)
        volume = math.prod(result.chunksize)
        assert len(seen) == result.npartitions
        assert {observation.shape for observation in seen} == {result.chunksize}
        assert min(observation.bytes for observation in seen) == pytest.approx(8 * volume, rel=0.1)
        assert {observation.output_dtype for observation in seen} == {"float32"}

    @pytest.mark.slow
    def test_calls_again_and_again_never_make_chunks_smaller(self, known):
        """The first block of a worker pays for the imports: these were the bound of all later calls, 49 to 93 MB."""
        smooth = of_workers(SMOOTH_ON_WORKERS, "smooth")
        volume = da.random.default_rng(0).random((200, 200, 200), chunks=100, dtype="float32")
        sizes = []
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, memory_limit="1GB", dashboard_address=":0"
            ) as cluster,
            distributed.Client(cluster, set_as_default=False) as two,
        ):
            for _ in range(20):
                result = door.map_blocks(smooth, volume, budget="60MB", model=known(4.1), client=two)
                sizes.append(math.prod(result.chunksize))
                two.compute(result.sum()).result()
            seen = door.observed(smooth, volume, client=two)
        assert sizes == sorted(sizes)
        bound = tighten(known(4.1), seen).predict(result.chunksize).upper
        most = max(run.bytes for run in seen if not run.first and run.shape == result.chunksize)
        assert most <= bound <= 1.03 * most
        assert 1 <= sum(run.first for run in seen) <= 2
