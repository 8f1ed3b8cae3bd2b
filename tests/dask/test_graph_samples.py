"""Tasks of graphs that run to be measured: beside their worker or in it, and always on what is their own."""

import gc
import os
import signal

import numpy as np
import pytest

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

import dask.config  # noqa: E402

from forebay import BudgetError  # noqa: E402
from forebay.dask import chunks_for_graph, forecast  # noqa: E402
from forebay.dask.graphs.nodes import task_graph  # noqa: E402
from forebay.dask.graphs.rates import source_bytes  # noqa: E402
from forebay.dask.graphs.running import run_tasks  # noqa: E402
from forebay.errors import PlanError  # noqa: E402

META = {"dtype": "float64", "meta": np.empty((0, 0, 0))}


@pytest.mark.slow
def test_functions_that_change_what_they_are_given_leave_persisted_arrays_as_they_are(client):
    def halved(block):
        block *= 0.5
        return block

    array = da.from_array(np.ones((64, 64, 64)), chunks=32).persist()
    distributed.wait(array)
    chunks_for_graph(lambda cut: cut.map_blocks(halved, **META), array, client, budget="40MB")
    assert float(array.min().compute()) == 1


def test_what_the_caller_has_frozen_stays_frozen():
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        array = da.ones((8, 8), chunks=4)
        graph = task_graph(array + 1)
        assert run_tasks(graph.nodes, graph.kinds, source_bytes(graph, array))
        assert gc.get_freeze_count() > before / 2  # some of them may have come to an end
    finally:
        gc.unfreeze()


@pytest.mark.slow
def test_a_task_that_ends_its_process_is_not_told_to_be_too_large(client):
    def aborted(block):
        os.abort()

    before = client.run(os.getpid)
    ending = da.ones((8, 8, 8), chunks=4).map_blocks(aborted, **META)
    with pytest.raises(PlanError, match="aborted ended the process that ran it, with SIGABRT"):
        forecast(ending, client)
    assert client.run(os.getpid) == before


@pytest.mark.slow
def test_more_persisted_data_than_a_worker_should_get_is_refused(client, monkeypatch):
    array = da.ones((64, 64, 64), chunks=32).persist()
    monkeypatch.setattr("forebay.dask.graphs.sampling.PERSISTED_SHARE", 0.0)
    with pytest.raises(BudgetError, match="that the cluster has persisted, too much to bring to one worker"):
        forecast(array + 1, client)


@pytest.mark.slow
def test_workers_that_are_ended_by_a_corner_are_told_of():
    def ended(block):
        os.kill(os.getpid(), signal.SIGKILL)

    settings = {"distributed.scheduler.allowed-failures": 0, "logging.distributed": "critical"}
    how = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(**how) as cluster,
        distributed.Client(cluster, set_as_default=False) as one,
        pytest.raises(BudgetError, match="workers were ended as they ran a small corner"),
    ):
        chunks_for_graph(lambda cut: cut.map_blocks(ended, **META), np.ones((16, 16, 16)), one, budget="40MB")
