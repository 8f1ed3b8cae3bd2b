"""Blocks on workers: measured where they run, in plain graphs; who outgrows his room is cut before a worker is lost."""

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
from forebay.footprint import FootprintWarning

VOLUME = np.random.default_rng(0).random((240, 130, 120), dtype="float32")


def of_workers(source, name):
    """Workers cannot import this file: functions made like this travel whole."""
    scope = {"__name__": "__main__", "np": np, "time": time}
    exec(source, scope)
    return scope[name]


GREEDY = """
def greedy(block, copies=60):
    held = []
    for _ in range(copies):
        held.append(block + np.float32(1))
        time.sleep(0.01)
    return sum(held[1:], held[0]) / np.float32(copies)
"""
SMOOTH = """
def smooth(block, copies=30):
    from scipy.ndimage import uniform_filter
    held = []
    for _ in range(copies):
        held.append(uniform_filter(block, 5, mode="nearest"))
        time.sleep(0.01)
    return held[0]
"""


@contextmanager
def workers(count=2, threads=1, memory="420MB"):
    """Start workers for tasks that are not tried again when one of them is killed."""
    how = {"n_workers": count, "threads_per_worker": threads, "memory_limit": memory, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(**how) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def small_workers():
    with workers() as client:
        yield client


def computed(client, collection):
    """Compute it, and wait until what workers have to tell has arrived."""
    result = client.compute(collection).result()
    time.sleep(0.5)
    return result


def workers_of(client):
    return set(client.scheduler_info(n_workers=-1)["workers"])


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

    def test_a_name_of_ones_own_stays(self, client, known):
        options = {"budget": "20MB", "model": known(), "client": client}
        result = door.map_blocks(np.negative, VOLUME, name="my-attribute-1", **options)
        assert result.name == "my-attribute-1"
        assert np.array_equal(result.compute(), -VOLUME)
        assert key_split(door.map_blocks(np.negative, VOLUME, token="mine", **options).name) == "mine"

    def test_functions_that_ask_for_their_block_are_told_and_measured(self, client, known):
        def marked(block, block_id, block_info):
            assert block_info[0]["chunk-location"] == block_id
            return block + 1000 * block_id[0]

        result = door.map_blocks(marked, VOLUME, budget="20MB", model=known(), client=client, whole=(1, 2))
        starts = np.cumsum([0, *result.chunks[0]])[:-1]
        wanted = VOLUME + 1000 * (np.searchsorted(starts, np.arange(240), "right") - 1)[:, None, None]
        assert result.numblocks[0] > 1
        assert np.allclose(result.compute(), wanted)


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
class TestOutgrown:
    @pytest.mark.parametrize(
        ("budget", "how"),
        [
            ("auto", {}),
            ("60MB", {}),
            ("auto", {"count": 1, "threads": 2, "memory": "700MB"}),
        ],
    )
    def test_a_block_that_outgrows_is_cut_before_its_worker_is_killed(self, known, budget, how):
        """The model says 8 bytes a voxel, and the function takes 244: more than a worker has."""
        greedy = of_workers(GREEDY, "greedy")
        with workers(**how) as client:
            before = workers_of(client)
            options = {"budget": budget, "model": known(), "client": client}
            result = door.map_blocks(greedy, VOLUME, **options)
            chunk = math.prod(result.chunksize)
            with pytest.warns(FootprintWarning, match=r"greedy: it needed .* there is room for .* worked on in"):
                array = computed(client, result)
            assert np.array_equal(array, greedy(VOLUME))
            assert workers_of(client) == before
            if not how:  # of blocks that ran beside others, nothing is known but that there was too much
                assert math.prod(door.map_blocks(greedy, VOLUME, **options).chunksize) < chunk

    def test_parts_take_their_halo_with_them(self, small_workers, known):
        smooth, before = of_workers(SMOOTH, "smooth"), workers_of(small_workers)
        options = {"budget": "60MB", "model": known(), "client": small_workers, "depth": 2, "boundary": "none"}
        with pytest.warns(FootprintWarning, match="smooth: it needed"):
            array = computed(small_workers, door.map_overlap(smooth, VOLUME, **options))
        assert np.allclose(array, smooth(VOLUME, copies=1), atol=1e-6)
        assert workers_of(small_workers) == before

    def test_a_function_that_is_told_its_block_is_worked_on_whole_and_tells_what_it_needs(self, known):
        source = GREEDY.replace("block,", "block, block_id,").replace("copies=60", "copies=12")
        greedy = of_workers(source, "greedy")
        with workers(memory="1GB") as client:
            result = door.map_blocks(greedy, VOLUME, budget="40MB", model=known(), client=client)
            with pytest.warns(FootprintWarning, match="greedy: it needed .* what remains needs as much: give workers"):
                array = computed(client, result)
        assert np.allclose(array, VOLUME + 1)

    def test_what_gives_something_else_in_parts_is_worked_on_whole(self, small_workers, known):
        source = GREEDY.replace("block + np.float32(1)", "block - block.mean()")
        greedy = of_workers(source, "greedy")
        result = door.map_blocks(greedy, VOLUME, budget="40MB", model=known(), client=small_workers)
        with pytest.warns(FootprintWarning, match="greedy: its blocks give something else in parts, and stay whole"):
            array = computed(small_workers, result)
        with dask.config.set(scheduler="sync"):
            plain = da.map_blocks(greedy, da.from_array(VOLUME, chunks=result.chunks), copies=1, dtype="float32")
            assert np.allclose(array, plain.compute(), atol=1e-5)
