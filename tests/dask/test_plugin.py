"""Blocks on workers: measured where they run, in plain graphs; one that outgrows its room is told, once a call."""

import math
import time
from contextlib import contextmanager

import dask.array as da
import dask.config
import distributed
import numpy as np
import pytest
from dask.utils import key_split

import forebay.dask as door
from forebay.errors import BudgetError
from forebay.footprint import FootprintWarning

VOLUME = np.random.default_rng(0).random((240, 130, 120), dtype="float32")


def of_workers(source, name):
    """Workers cannot import this file: functions made like this travel whole."""
    scope = {"__name__": "__main__", "np": np, "time": time}
    exec(source, scope)
    return scope[name]


INSIDE = """
def run(block):
    import traceback
    return np.full(block.shape, any("measuring.py" in frame.filename for frame in traceback.extract_stack()))
"""


@contextmanager
def workers(count, memory):
    """Start workers of one thread for tasks that are not tried again when one of them is killed."""
    how = {"n_workers": count, "threads_per_worker": 1, "memory_limit": memory, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(**how) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def computed(client, collection):
    """Compute it, and wait until what workers have to tell has arrived."""
    result = client.compute(collection).result()
    time.sleep(0.5)
    return result


def plugins_of(client):
    """Return the names of our plugins on the one worker."""
    (names,) = client.run(lambda dask_worker: [name for name in dask_worker.plugins if "forebay" in name]).values()
    return names


class TestPlainGraphs:
    def test_tasks_have_the_functions_name_and_nothing_of_ours_around_it(self, client, known):
        def attribute(block):
            return block + 1

        for mapper, options in ((door.map_blocks, {}), (door.map_overlap, {"depth": 1, "boundary": "none"})):
            array = da.from_array(VOLUME, chunks=(60, 130, 120))
            result = mapper(attribute, array, budget="20MB", model=known(), client=client, **options)
            layers = [layer for layer in result.dask.layers if key_split(layer) == "attribute"]
            assert len(layers) == 1
            assert "MeasuredFunction" not in repr(dict(result.dask.layers[layers[0]]))

    def test_a_name_of_ones_own_stays_and_is_not_measured(self, client, known):
        def negative(block):
            return -block

        options = {"budget": "20MB", "model": known(), "client": client}
        for name in ("my-attribute-1", "attribute"):
            result = door.map_blocks(negative, VOLUME, name=name, **options)
            assert result.name == name
            assert np.array_equal(computed(client, result), -VOLUME)
        assert not door.observed(negative, VOLUME, client=client)
        assert key_split(door.map_blocks(negative, VOLUME, token="mine", **options).name) == "mine"

    def test_tasks_of_others_run_as_they_are(self, client, known):
        """Whatever was named in calls of ours, of the same beginning or of the same function."""
        run = of_workers(INSIDE, "run")
        for name in ("run-1", "run"):
            door.map_blocks(run, VOLUME, budget="20MB", model=known(), client=client, name=name).compute()
        assert door.map_blocks(run, VOLUME, budget="20MB", model=known(), client=client).compute().all()
        others = da.map_blocks(run, da.zeros((8, 8), chunks=4), dtype=float)
        single = client.submit(run, np.zeros(1), key="load")
        assert not client.compute(others).result().any() and not single.result().any()

    def test_names_of_one_beginning_share_nothing(self, client, known):
        def small(block):
            return block + 1

        def large(block):
            return sum([block + number for number in range(9)], block)

        for name, func in (("attribute-1", small), ("attribute-2", large)):
            options = {"budget": "20MB", "model": known(), "client": client}
            assert np.array_equal(door.map_blocks(func, VOLUME, token=name, **options).compute(), func(VOLUME))
        needed = [run.bytes for run in door.observed(small, VOLUME, client=client) if not run.first]
        more = [run.bytes for run in door.observed(large, VOLUME, client=client) if not run.first]
        assert not needed or not more or max(needed) < min(more)

    @pytest.mark.slow
    def test_functions_that_ask_for_their_block_are_told_and_measured(self, known):
        def marked(block, block_id, block_info):
            assert block_info[0]["chunk-location"] == block_id
            return block + 1000 * block_id[0]

        marked.__module__ = "__main__"
        with workers(count=1, memory="1GB") as client:
            result = door.map_blocks(marked, VOLUME, budget="20MB", model=known(), client=client, whole=(1, 2))
            starts = np.cumsum([0, *result.chunks[0]])[:-1]
            wanted = VOLUME + 1000 * (np.searchsorted(starts, np.arange(240), "right") - 1)[:, None, None]
            assert result.numblocks[0] > 1
            assert np.allclose(computed(client, result), wanted)
            seen = door.observed(marked, VOLUME, client=client)
        assert seen and {run.shape for run in seen} <= {(rows, 130, 120) for rows in result.chunks[0]}

    @pytest.mark.slow
    def test_one_plugin_serves_all_calls_of_all_clients(self, known):
        with (
            distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        ):
            for number in range(3):
                with distributed.Client(cluster, set_as_default=False) as client:
                    options = {"budget": f"{10 + number}MB", "model": known(), "client": client}
                    door.map_blocks(np.negative, VOLUME, **options)
                    door.map_blocks(np.sqrt, VOLUME, **options)
                    assert len(plugins_of(client)) == 1

    @pytest.mark.slow
    def test_graphs_that_are_only_looked_at_leave_nothing_with_workers(self, known):
        with (
            distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            options = {"budget": "10MB", "model": known(), "client": client}
            model = known()
            with client.as_current():
                door.chunks_for_graph(
                    lambda array: door.map_blocks(np.negative, array, budget="1GB", model=model), VOLUME, client
                )
            assert not plugins_of(client)
            assert not door.observed(np.negative, VOLUME, client=client)
            computed(client, door.map_blocks(np.negative, VOLUME, **options))
            assert door.observed(np.negative, VOLUME, client=client)


@pytest.mark.slow
def test_a_cluster_without_workers_is_told_before_anything_is_learned():
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        pytest.raises(BudgetError, match="the cluster has no workers"),
    ):
        door.map_blocks(lambda block: block + 1, VOLUME, client=client)


def test_arrays_of_one_element_or_none_need_no_chunks():
    for array in (np.float32(2), np.full((), 2.0), da.zeros((0, 5)) + 2):
        for mapper, options in ((door.map_blocks, {}), (door.map_overlap, {"depth": 0})):
            with dask.config.set(scheduler="sync"):
                result = mapper(np.sqrt, array, **options).compute()
            assert result.shape == array.shape and np.allclose(result, 2**0.5)
        assert door.chunks_for(np.sqrt, array) == array.shape


def test_axes_that_go_stay_whole(known):
    """Dask puts all blocks along them together: a block would be as long as they are, whatever the chunks."""
    lengths = []

    def energy(block):
        lengths.append(block.shape[0])
        return (block**2).sum(axis=0)

    with dask.config.set(scheduler="sync"):
        options = {"model": known(), "budget": "5MB", "drop_axis": 0, "dtype": "float32"}
        result = door.map_blocks(energy, VOLUME, meta=np.empty((0, 0), "float32"), **options)
        assert result.npartitions > 1
        assert np.allclose(result.compute(), energy(VOLUME), rtol=1e-4)
    assert set(lengths) == {len(VOLUME)}


@pytest.mark.slow
@pytest.mark.parametrize("function", ["block - block.mean()", "np.subtract(block, 1, out=block)"])
def test_blocks_that_outgrow_are_told_once_a_call_and_stay_as_they_are(known, function):
    """The model says 8 bytes a voxel, and the function takes 48 more; a half of the volume is muted."""
    source = f"""
def greedy(block):
    held = [block + np.float32(1) for _ in range(12)]
    return {function}
"""
    greedy, muted = of_workers(source, "greedy"), np.where(np.arange(240)[:, None, None] < 120, 0, VOLUME)
    with workers(count=2, memory="1GB") as client:
        options = {"budget": "40MB", "model": known(), "client": client}
        result = door.map_blocks(greedy, muted, **options)
        with pytest.warns(FootprintWarning, match="greedy needed .* planned to need no more than .* Call it") as told:
            array = computed(client, result)
        assert len([warning for warning in told if "greedy needed" in str(warning.message)]) == 1
        chunks = da.from_array(muted.copy(), chunks=result.chunks)
        with dask.config.set(scheduler="sync"):
            assert np.array_equal(array, da.map_blocks(greedy, chunks, dtype="float32").compute())
        later = door.map_blocks(greedy, muted, **options)
    assert math.prod(later.chunksize) < math.prod(result.chunksize)


@pytest.mark.slow
def test_a_block_that_outgrows_without_a_cluster_is_told_too(known):
    """Above 32 MiB no allocator hands out pages that were in memory before."""

    def greedy(block):
        held = [block + number for number in range(6)]
        return held[0] + held[1]

    volume = np.ones((1000, 200, 120), "float32")
    with dask.config.set(scheduler="sync"), pytest.warns(FootprintWarning, match="greedy needed"):
        door.map_blocks(greedy, volume, budget="400MB", model=known()).compute()
