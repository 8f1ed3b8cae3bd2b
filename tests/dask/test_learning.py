"""Footprints are learned on workers, and what one user of a cluster has learned serves all others."""

import json
import os

import dask.array as da
import dask.config
import distributed
import numpy as np
import pytest

import forebay.dask as door
from forebay.footprint import FootprintError, FootprintWarning

ARRAY = da.zeros((400, 300, 200), chunks=(20, 300, 200), dtype="float32")


def of_workers(source, name):
    """Workers cannot import this file: functions made like this travel whole."""
    scope = {"__name__": "__main__", "np": np, "os": os}
    exec(source, scope)
    return scope[name]


COUNTED = """
def counted(block, log=None):
    with open(log, "a") as file:
        file.write("ran\\n")
    many = int(os.environ.get("COPIES", "1"))
    return sum([block + np.float32(1) for _ in range(many)], np.float32(0))
"""


@pytest.fixture
def log(tmp_path):
    (tmp_path / "log").write_text("")
    return tmp_path / "log"


@pytest.fixture(scope="module")
def cluster():
    with (
        dask.config.set({"distributed.nanny.environ": {"COPIES": "8"}}),
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="2GB", dashboard_address=":0") as one,
    ):
        yield one


@pytest.mark.slow
class TestLearning:
    def test_what_workers_have_is_what_is_learned(self, cluster, log):
        """Here the function makes one array, and there eight."""
        counted = of_workers(COUNTED, "counted")
        with distributed.Client(cluster, set_as_default=False) as client:
            there = door.chunks_for(counted, ARRAY, client, budget="100MB", log=str(log))
        with dask.config.set(scheduler="sync"):
            here = door.chunks_for(counted, ARRAY, budget="100MB", log=str(log))
        assert np.prod(there) < 0.5 * np.prod(here)

    def test_the_second_user_takes_no_sample(self, cluster, log):
        counted, chunks, runs = of_workers(COUNTED, "counted"), [], []
        for _ in range(2):
            log.write_text("")
            with distributed.Client(cluster, set_as_default=False) as client:
                chunks.append(door.chunks_for(counted, ARRAY, client, budget="100MB", log=str(log)))
            runs.append(len(log.read_text().splitlines()))
        assert runs[0] > 3 and runs[1] == 0
        assert chunks[0] == chunks[1]

    def test_what_was_learned_with_other_threads_is_learned_again(self, cluster, log, tmp_path):
        counted, kept = of_workers(COUNTED, "counted"), tmp_path / "counted.json"
        options = {"budget": "100MB", "log": str(log), "model": kept}

        def runs():
            log.write_text("")
            with distributed.Client(cluster, set_as_default=False) as client:
                door.chunks_for(counted, ARRAY, client, **options)
            return len(log.read_text().splitlines())

        assert runs() > 3 and runs() == 0
        content = json.loads(kept.read_text())
        for name, other in (("OMP_NUM_THREADS", "96"), ("LD_PRELOAD", "libjemalloc.so"), ("numpy", "1.0")):
            kept.write_text(json.dumps(content | {"learned on": content["learned on"] | {name: other}}))
            assert runs() > 3
        assert json.loads(kept.read_text())["learned on"]["numpy"] == np.__version__

    def test_workers_unlike_the_others_are_told(self, cluster, log):
        counted = of_workers(COUNTED, "counted")
        with distributed.Client(cluster, set_as_default=False) as client:
            door.chunks_for(counted, ARRAY, client, budget="100MB", log=str(log))
        with dask.config.set({"distributed.nanny.environ": {"MALLOC_ARENA_MAX": "2"}}):
            cluster.scale(2)
            with distributed.Client(cluster, set_as_default=False) as client:
                client.wait_for_workers(2)
                with pytest.warns(FootprintWarning, match="MALLOC_ARENA_MAX was unset and is 2"):
                    door.chunks_for(counted, ARRAY, client, budget="100MB", log=str(log))
        cluster.scale(1)

    def test_a_function_that_needs_to_know_its_block_is_learned(self, cluster):
        marked = of_workers("def marked(block, block_id):\n    return block + block_id[0]", "marked")
        with distributed.Client(cluster, set_as_default=False) as client:
            result = door.map_blocks(marked, ARRAY, client=client, budget="30MB", whole=(1, 2))
            marks = result[:, 0, 0].compute()
        assert result.numblocks[0] > 1 and marks[-1] == result.numblocks[0] - 1

    def test_a_file_of_another_dtype_or_of_other_axes_is_learned_anew(self, cluster, log, tmp_path):
        counted, kept = of_workers(COUNTED, "counted"), tmp_path / "counted.json"
        for array, dtype, axes in (
            (ARRAY, "float32", 3),
            (ARRAY.astype("float64"), "float64", 3),
            (ARRAY[0], "float32", 2),
        ):
            log.write_text("")
            with distributed.Client(cluster, set_as_default=False) as client:
                door.chunks_for(counted, array, client, budget="100MB", model=kept, log=str(log))
            content = json.loads(kept.read_text())
            assert log.read_text() and content["dtype"] == dtype
            assert content["layout"]["ndims"] == [axes]

    def test_a_damaged_file_is_told_by_its_own_path(self, cluster, tmp_path):
        kept = tmp_path / "kept.json"
        kept.write_text("{")
        with (
            distributed.Client(cluster, set_as_default=False) as client,
            pytest.raises(FootprintError, match=str(kept)),
        ):
            door.chunks_for(np.sqrt, ARRAY, client, budget="100MB", model=kept)

    def test_workers_that_come_later_are_asked_too(self, cluster, log):
        counted = of_workers(COUNTED, "counted")
        with distributed.Client(cluster, set_as_default=False) as client:
            door.chunks_for(counted, ARRAY, client, budget="100MB", log=str(log))
            with dask.config.set({"distributed.nanny.environ": {"MALLOC_ARENA_MAX": "3"}}):
                cluster.scale(2)
                client.wait_for_workers(2)
            with pytest.warns(FootprintWarning, match="MALLOC_ARENA_MAX was unset and is 3"):
                door.chunks_for(counted, ARRAY, client, budget="100MB", log=str(log))
        cluster.scale(1)
