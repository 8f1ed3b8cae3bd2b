"""Whole graphs: what they are taken for, run in mind, predicted, and cut."""

import gc
import os
import re
import subprocess
import sys

import numpy as np
import pytest

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from forebay import BudgetError  # noqa: E402
from forebay.dask import chunk, chunks_for_graph, forecast  # noqa: E402
from forebay.dask.graphs.choose import candidates  # noqa: E402
from forebay.dask.graphs.nodes import share, task_graph  # noqa: E402
from forebay.dask.graphs.rates import rates_of, sized_tasks, source_bytes  # noqa: E402
from forebay.dask.graphs.running import run_tasks  # noqa: E402
from forebay.dask.graphs.simulate import Cluster, SizedTask, simulate  # noqa: E402
from forebay.drawing.blocks import Blocks  # noqa: E402

ONE = Cluster(workers=1, threads=1, bandwidth=1e9, overhead=0.0)


def task(*reads, output=100, peak=100, seconds=1.0, view=False):
    return SizedTask(reads, output, peak, seconds, view)


def test_a_result_is_held_until_the_last_that_reads_it_is_done():
    chain = [task(), task(0), task(1)]
    assert simulate(chain, frozenset(), ONE).peak == 200
    fan = [task(), task(0), task(0), task(1, 2)]
    assert simulate(fan, frozenset(), ONE).peak == 300


def test_results_of_the_graph_are_held_to_the_end():
    tasks = [task() for _ in range(5)]
    assert simulate(tasks, frozenset(), ONE).peak == 100
    assert simulate(tasks, frozenset(range(5)), ONE).peak == 500


def test_threads_run_side_by_side_and_their_peaks_add_up():
    tasks = [task(peak=1000) for _ in range(4)]
    two = simulate(tasks, frozenset(), Cluster(1, 2, 1e9, 0.0))
    assert (two.peak, round(two.seconds)) == (2000, 2)


def test_a_part_keeps_all_that_it_was_cut_from_alive():
    copied = [task(), task(0, output=10, peak=10), task(1, peak=1000)]
    cut = [task(), task(0, output=10, peak=0, view=True), task(1, peak=1000)]
    assert simulate(copied, frozenset(), ONE).peak == 1010
    assert simulate(cut, frozenset(), ONE).peak == 1100


def test_what_another_worker_has_is_copied_and_takes_time():
    tasks = [task(), task(), task(0, 1, seconds=0.0)]
    run = simulate(tasks, frozenset(), Cluster(workers=2, threads=1, bandwidth=100, overhead=0.0))
    assert run.peak == 300 and run.seconds == pytest.approx(2.01, abs=0.02)


def test_a_share_is_what_slices_leave():
    assert share((slice(None), slice(0, 5)), (10, 20)) == 0.25
    assert share((), (10, 20)) == 1


def known(rows=64):
    return da.from_array(np.ones((2 * rows, 64)), chunks=(rows, 64))


def test_kinds_are_told_by_what_they_do_whatever_the_chunks():
    def pipeline(array):
        return da.stack([array.max(axis=0), array.min(axis=0)])

    few, many = (set(task_graph(pipeline(known(rows))).kinds) for rows in (64, 32))
    assert few == many


@pytest.mark.slow
def test_tasks_of_other_sizes_are_predicted_from_small_ones():
    def pipeline(array):
        return array.map_overlap(np.sqrt, depth=2, boundary="none")

    def sizes(rows):
        array = known(rows)
        graph = task_graph(pipeline(array))
        samples = run_tasks(graph.nodes, graph.kinds, source_bytes(graph, array))
        return graph, array, samples

    *_, samples = sizes(256)
    graph, array, wanted = sizes(2048)
    predicted = sized_tasks(graph, rates_of(samples), array)
    assert [each.output for each in predicted] == pytest.approx([each.output for each in wanted], rel=0.03)
    assert any(each.view for each in predicted)


def test_a_single_block_that_is_read_and_reduced_in_one_task_is_predicted_from_a_smaller_one():
    def graph_of(rows):
        array = da.from_array(np.ones((rows, 64, 64)), chunks=-1)
        return task_graph(np.sqrt(array).max(axis=0)), array

    (small, few), (large, many) = graph_of(64), graph_of(512)
    samples = run_tasks(small.nodes, small.kinds, source_bytes(small, few))
    assert sum(source_bytes(large, many)) >= many.nbytes
    assert max(each.peak for each in sized_tasks(large, rates_of(samples), many)) > 0.9 * many.nbytes


def test_candidates_leave_whole_axes_whole_and_follow_what_is_stored():
    class Stored:
        shape, dtype, chunks = (651, 951, 462), np.dtype("float32"), (64, 64, 64)

    found = list(candidates(Stored(), 500_000_000, 2, frozenset({2})))
    assert len(found) == len(set(found)) > 4
    assert all(
        chunks[2] == 462 and chunks[0] % 64 in (0, 651 % 64) and chunks[1] % 64 in (0, 951 % 64) for chunks in found
    )


def smooth_twice(array):
    def smooth(block):
        return block + np.sqrt(np.abs(block))

    return array.map_overlap(smooth, depth=3, boundary="none").map_overlap(smooth, depth=3, boundary="none").max(axis=0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells exact peaks")
@pytest.mark.parametrize(("workers", "threads"), [(1, 2), (2, 1)])
def test_the_peak_of_a_graph_is_predicted(tmp_path, workers, threads):
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(tmp_path / "v", shape=(256, 256, 256), chunks=(64,) * 3, dtype="float32")
    stored[:] = np.random.default_rng(0).standard_normal(stored.shape, dtype="float32")
    how = {"n_workers": workers, "threads_per_worker": threads, "memory_limit": "800MB", "dashboard_address": ":0"}
    with distributed.LocalCluster(**how) as cluster, distributed.Client(cluster) as client:
        plan = chunks_for_graph(smooth_twice, stored, client)
        result = smooth_twice(da.from_array(stored, chunks=plan.chunks))
        by_collection = forecast(result, client)
        client.run(gc.collect)
        client.run(_forget)
        result.compute()
        measured = max(client.run(_high_water).values())
    assert plan.forecast.bytes == pytest.approx(measured, rel=0.15), plan.explain()
    assert by_collection.bytes == pytest.approx(measured, rel=0.15), by_collection.explain()
    assert "a worker holds" in plan.explain()


@pytest.mark.slow
def test_a_budget_that_nothing_fits_names_what_would(client):
    array = np.ones((64, 64, 64), "float32")
    with pytest.raises(BudgetError, match=r"none of .* chunk shapes fits a budget of 1kB: the least needs") as told:
        chunks_for_graph(lambda cut: cut.max(), array, client, budget="1kB")
    (budget,) = re.findall('budget="(.*)" would do', str(told.value))
    assert chunks_for_graph(lambda cut: cut.max(), array, client, budget=budget).chunks


@pytest.mark.slow
def test_what_one_user_of_a_cluster_has_learned_the_next_need_not(client, monkeypatch):
    array = np.ones((96, 96, 96), "float32")
    first = chunks_for_graph(smooth_twice, array, client, budget="20MB")
    monkeypatch.delattr("forebay.dask.graphs.corners.sample")
    with distributed.Client(client.scheduler.address) as other:
        second = chunks_for_graph(smooth_twice, array, other, budget="20MB")
    assert second.chunks == first.chunks
    assert second.forecast.seconds == first.forecast.seconds


def test_a_root_tells_what_it_reads_by_its_slices(tmp_path):
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(tmp_path / "v", shape=(10, 10), chunks=(5, 5), dtype="float32")
    graph = task_graph(da.from_array(stored, chunks=(6, 10)) + 1)
    assert sorted(task.source for task in graph.tasks) == [0, 160, 240]


@pytest.mark.slow  # in a process of its own: other tests have a cluster
@pytest.mark.parametrize("ask", ["forecast(da.ones(3))", "chunks_for_graph(lambda cut: cut, da.ones(3))"])
def test_without_a_cluster_it_is_said_how_to_get_one(ask):
    script = f"import dask.array as da\nfrom forebay.dask import *\n{ask}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "PlanError: there is no cluster to ask: start one with distributed.Client(), or give client=" in ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process holds")
def test_a_task_that_outgrows_its_worker_is_told_and_the_worker_lives_on(client):
    def hog(block):
        return block + np.ones(10**9)[0]

    before = client.run(os.getpid)
    large = da.ones((100, 100), chunks=50).map_blocks(hog, dtype="float64", meta=np.empty((0, 0)))
    with pytest.raises(BudgetError, match=r"hog outgrows a worker.*: cut the array into smaller chunks"):
        forecast(large, client)
    assert client.run(os.getpid) == before


@pytest.mark.slow
def test_what_a_cluster_has_persisted_is_read_from_there(client):
    array = da.ones((64, 64, 64), chunks=32).persist()
    result = (array + 1).sum()
    assert forecast(result, client).tasks > 0
    cut = chunk(array, lambda cut: cut.sum(axis=2), client, budget="40MB")
    assert np.array_equal(cut.sum(axis=2).compute(), np.full((64, 64), 64.0))


@pytest.mark.slow
def test_chunks_are_seen_as_blocks_and_memory_over_time(client, tmp_path):
    plan = chunks_for_graph(lambda cut: (cut + 1).sum(), np.ones((96, 96, 96), "float32"), client, budget="10MB")
    forecast = plan.forecast
    assert max(held for _, held in forecast.history) == forecast.bytes <= forecast.upper <= forecast.budget
    chart = plan.plot()
    assert [mark.name for mark in chart.panels[0].marks] == ["held", "bound", "budget"]
    plan.write(tmp_path / "chunks.html")
    for html in (plan._repr_html_(), (tmp_path / "chunks.html").read_text()):
        assert Blocks(plan.shape, plan.chunks).markup in html and chart.markup in html
    assert "chosen" in (tmp_path / "chunks.html").read_text()


def _forget():
    from forebay.footprint.measure.resident import CLEAR_REFS

    CLEAR_REFS.write_text("5")


def _high_water():
    from forebay.footprint.measure.resident import read_status

    assert os.getpid()
    return read_status("VmHWM")
