"""What a cluster is asked for a job: how it is started, what its workers do, and how they sum."""

import logging
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from forebay.errors import CorruptionError, WaveError
from forebay.units import Budget
from forebay.wave.job.stack import PartialImage
from forebay.wave.job.tables import RunTable

pytest.importorskip("distributed")

from forebay.wave.job.shots import cluster
from forebay.wave.job.shots.cluster import ShotCluster

BOX = (slice(0, 2), slice(0, 3))


class TestOfItsStart:
    """A cluster of this machine's own: a process for each worker, and one for each GPU."""

    @pytest.mark.parametrize(("device", "gpus"), [("cpu", 0), ("cpu", 4), ("gpu", 1)])
    def test_workers_are_processes_of_one_thread_with_nothing_to_look_at(self, monkeypatch, device, gpus):
        started = []
        monkeypatch.setattr(cluster, "distributed", SimpleNamespace(LocalCluster=lambda **how: started.append(how)))
        cluster._start(3, device, gpus, "a token")
        assert started == [
            {
                "n_workers": 3,
                "threads_per_worker": 1,
                "processes": True,
                "dashboard_address": None,
                "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"},
                "security": "a token",
                "silence_logs": logging.WARNING,
            }
        ]

    def test_several_gpus_have_a_worker_each(self, monkeypatch):
        started = []
        found = SimpleNamespace(LocalCUDACluster=lambda **how: started.append(how) or "a cluster")
        monkeypatch.setattr(cluster, "import_module", lambda name: {"dask_cuda": found}[name])
        assert cluster._start(2, "gpu", 2, "a token") == "a cluster"
        assert started[0]["n_workers"] == 2 and started[0]["security"] == "a token"
        assert started[0]["dashboard_address"] is None and "threads_per_worker" not in started[0]

        def missing(name):
            raise ImportError(name)

        monkeypatch.setattr(cluster, "import_module", missing)
        with pytest.raises(WaveError, match="several GPUs need dask-cuda: pip install dask-cuda, or set run"):
            cluster._start(2, "gpu", 2, "a token")

    @pytest.mark.parametrize(
        ("workers", "device", "gpus", "cores", "threads"),
        [
            (2, "cpu", 0, 6, 3),
            (4, "cpu", 0, 6, 1),
            (8, "cpu", 0, 6, 1),
            (2, "gpu", 2, 6, 3),
            (3, "gpu", 2, 6, None),
            (1, "gpu", 1, 6, 6),
        ],
    )
    def test_workers_share_processors_and_are_no_more_than_the_gpus(
        self, monkeypatch, tmp_path, workers, device, gpus, cores, threads
    ):
        began = []

        @contextmanager
        def private_cluster(start):
            assert cluster.dask_config.get("temporary-directory") == str(tmp_path)
            began.append(start.args)
            yield "a client"

        monkeypatch.setattr(cluster, "private_cluster", private_cluster)
        monkeypatch.setattr(cluster, "gpu_count", lambda: gpus)
        monkeypatch.setattr(cluster, "processors", lambda: cores)
        table = RunTable(workers=workers)
        if threads is None:
            with pytest.raises(WaveError, match="expected at most 2, one for each GPU, not 3"):
                cluster.local(table, device, tmp_path).__enter__()
        else:
            with cluster.local(table, device, tmp_path) as found:
                assert found == ShotCluster("a client", table, threads)
            assert began == [(workers, device, gpus)]

    @pytest.mark.parametrize(("told", "gpus"), [({"a": 2, "b": 1}, 1), ({"a": 0, "b": 1}, 0), ({}, 0)])
    def test_every_worker_has_as_many_gpus(self, monkeypatch, told, gpus):
        monkeypatch.setattr(cluster, "ask_workers", lambda client, ask: told)
        assert ShotCluster("a client", None, None).gpus() == gpus


class TestOfItsWork:
    """Shots as tasks: the first one makes the plan, and workers tell how far they are."""

    @pytest.mark.parametrize(
        ("plans", "shares", "batches"),
        [
            ([None, "a plan"], True, [[5], [6, 7]]),
            ([None, None, "a plan"], True, [[5], [6], [7]]),
            ([None, None, None, None], True, [[5], [6], [7], []]),
            (["a plan"], True, [[5, 6, 7]]),
            ([None], False, [[5, 6, 7]]),
        ],
    )
    def test_the_first_shots_make_the_plan_alone(self, monkeypatch, tmp_path, plans, shares, batches):
        done, left = [], list(plans)
        client = SimpleNamespace(
            subscribe_topic=lambda *about: None, unsubscribe_topic=lambda topic: done.append(topic)
        )
        monkeypatch.setattr(ShotCluster, "_root", lambda self, workspace: "root")
        monkeypatch.setattr(cluster, "_shares", lambda workspace: shares)

        def do(self, workspace, about, todo, bars):
            assert about == ("root", "token", "work", "forebay-steps-token", Budget(host=1))
            done.append(list(todo))
            return {shot: "failed" for shot in todo if shot == 6}

        monkeypatch.setattr(ShotCluster, "_all", do)
        space = SimpleNamespace(run="token", work="work", plan=lambda: left.pop(0) if len(left) > 1 else left[0])
        shots = ShotCluster(client, None, None)
        assert shots.shots(space, [5, 6, 7], Budget(host=1), None) == {6: "failed"}
        assert done == [*batches, "forebay-steps-token"]
        assert shots.shots(space, [], Budget(host=1), None) == {} and len(done) == len(batches) + 1

    @pytest.mark.parametrize(
        ("kind", "checkpoint", "shares"),
        [("migration", False, True), ("migration", True, False), ("gradient", False, True), ("light", False, False)],
    )
    def test_a_plan_is_shared_by_reversals_that_keep_no_progress(self, kind, checkpoint, shares):
        memory = SimpleNamespace(checkpoint=checkpoint)
        described = SimpleNamespace(job=SimpleNamespace(memory=memory))
        space = SimpleNamespace(work=SimpleNamespace(kind=kind), described=described)
        assert cluster._shares(space) is shares

    def test_a_worker_tells_now_and_then_how_far_it_is(self, monkeypatch):
        told, clock = [], iter([7.0, 7.0, 7.4, 7.5, 7.5, 7.9, 9.0, 9.0])
        worker = SimpleNamespace(log_event=lambda topic, about: told.append((topic, about)))
        monkeypatch.setattr(cluster, "distributed", SimpleNamespace(get_worker=lambda: worker))
        monkeypatch.setattr(cluster, "monotonic", lambda: next(clock))

        def try_shot(root, shot, run, budget, threads, tell, work):
            assert (root, shot, run, budget, threads, work) == ("root", 4, "token", "budget", 3, "work")
            for done in range(5):
                tell(shot, done)
            return {"seconds": 1.0}

        monkeypatch.setattr(cluster, "try_shot", try_shot)
        assert cluster._work("root", "token", "work", "topic", "budget", 4, 3) == {"seconds": 1.0}
        assert told == [("topic", (4, 0)), ("topic", (4, 2)), ("topic", (4, 4))]

    def test_a_pilot_has_the_budget_of_a_worker(self, monkeypatch):
        asked = []
        monkeypatch.setattr(ShotCluster, "_root", lambda self, workspace: "root")
        monkeypatch.setattr(ShotCluster, "budget", lambda self, workspace: "budget")

        def submit(*about, pure):
            asked.append((*about, pure))
            return SimpleNamespace(result=lambda: asked.append("waited for"))

        ShotCluster(SimpleNamespace(submit=submit), None, 3).pilot(SimpleNamespace(run="token"))
        assert asked == [(cluster.run_pilot, "root", "token", "budget", 3, False), "waited for"]

    def test_a_worker_sees_a_directory_by_its_description(self, tmp_path):
        assert cluster._sees(str(tmp_path)) is False
        (tmp_path / "job.json").write_text("")
        assert cluster._sees(str(tmp_path)) is True

    def test_a_worker_that_does_not_see_it_is_named(self, monkeypatch, tmp_path):
        monkeypatch.setattr(cluster, "ask_workers", lambda client, sees, root: {"a": True, "b": False, "c": False})
        with pytest.raises(WaveError, match="the worker b does not see"):
            ShotCluster(None, None, None)._root(SimpleNamespace(root=tmp_path))
        monkeypatch.setattr(cluster, "ask_workers", lambda client, sees, root: {"a": True})
        assert ShotCluster(None, None, None)._root(SimpleNamespace(root=tmp_path)) == str(tmp_path.resolve())


class TestOfItsSum:
    """Images are summed by workers in the order of one process; what is damaged is told and left out."""

    @pytest.fixture
    def summed(self, monkeypatch, tmp_path):
        """Sum images that tell their numbers, some damaged, by a client that does everything at once."""

        class Client:
            def __init__(self):
                self.called = Counter()

            def submit(self, call, *about, pure):
                assert pure is False
                self.called[call.__name__] += 1
                about = [each.value if isinstance(each, Client.Future) else each for each in about]
                return Client.Future(call(*about))

            def gather(self, futures):
                return {shot: future.value for shot, future in futures.items()}

            class Future:
                def __init__(self, value):
                    self.value = value

                def result(self):
                    return self.value

        class Workspaces:
            damaged = ()

            def __init__(self, root):
                assert root == tmp_path.resolve()

            def part(self, shot):
                if shot in Workspaces.damaged:
                    raise CorruptionError(f"shot {shot} is damaged")
                values = np.full((2, 3), 10.0**shot)
                return PartialImage(values, 2 * values, BOX)

        def summed(count, chosen, damaged=()):
            Workspaces.damaged = damaged
            monkeypatch.setattr(cluster, "Workspace", Workspaces)
            space = SimpleNamespace(root=tmp_path, geometry=SimpleNamespace(count=count))
            failed, client = {9: "before"}, Client()
            stack = ShotCluster(client, None, None).stack(space, chosen, failed)
            return stack, failed, client.called

        return summed

    def test_all_that_is_whole_is_summed(self, summed):
        stack, failed, called = summed(4, {0, 1, 3})
        assert (stack.image == 1011).all() and (stack.illumination == 2022).all() and failed == {9: "before"}
        assert called == {"_damage_of": 3, "_read_image": 3, "__add__": 2}

    def test_what_is_damaged_is_told(self, summed):
        stack, failed, called = summed(3, [0, 1, 2], damaged=(1,))
        assert (stack.image == 101).all() and failed == {9: "before", 1: "shot 1 is damaged"}
        assert called["_read_image"] == 2

    def test_of_nothing_there_is_no_sum(self, summed):
        assert summed(3, set())[0] is None and summed(2, {0}, damaged=(0,))[0] is None
