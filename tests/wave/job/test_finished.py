"""A job whose shots are finished: what its report tells, what is drawn and summed, and what an interruption leaves."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from forebay.errors import BudgetError, CorruptionError, WaveError
from forebay.units import Budget
from forebay.wave.job import results, run, work
from forebay.wave.job.workspace import Workspace, workspace


class TestWhatIsDrawn:
    """The report's sections, and the pictures of a shot's waves."""

    def test_the_facts_of_a_survey(self, finished, sections):
        results.write_report(finished, None, ["picture"], "title", "lead")
        facts = dict(sections[""][0].values)
        told = {
            "shots": "4 of 4",
            "grid": "48 x 96 at 50 m",
            "steps of a shot": "126 of 8 ms",
            "imaged every": "7 steps, 56 ms",
            **dict(results.planned(finished.workspace.plan(), 7)),
        }
        assert {name: facts[name] for name in told} == told
        seconds = sum(shot["seconds"] for shot in finished.summaries)
        assert facts["seconds of all shots"].startswith(results.seconds_to_text(seconds))
        assert facts["this run"].startswith(results.seconds_to_text(finished.seconds))
        assert list(finished.phases) == ["model", "inputs", "devices", "shots", "sum", "image"]
        assert sum(finished.phases.values()) == pytest.approx(finished.seconds)
        assert facts["its phases"].startswith(f"model {results.seconds_to_text(finished.phases['model'])}, inputs ")
        assert sections["page"][3][:2] == ["", "Pictures"] and sections["page"][3][-2:] == ["The plan", "The job"]
        assert {"Memory over time, in shot 0", "What happened when, in shot 0", "Each shot"} <= set(sections)
        assert "Shots that are missing" not in sections and "What was damaged" not in sections

    def test_what_went_wrong_has_sections_of_its_own(self, finished, sections):
        shots = [{**shot, "ratio": None} for shot in finished.summaries]
        survey = replace(finished, failed={3: "no luck"}, aside={1: "too strong"}, damage=["a file"], summaries=shots)
        results.write_report(survey, None, [], "title", "lead")
        assert dict(sections[""][0].values)["shots"] == "3 of 4"
        assert sections["Shots that are missing"][0].rows == [["3", "no luck"]]
        assert sections["Shots that were set aside"][0].rows == [["1", "too strong"]]
        assert sections["What was damaged"][0] == results.Text("a file")


class TestOfFinishedShots:
    """A run that finds its shots finished: what it sums, and what an interruption leaves of the last one."""

    @pytest.mark.parametrize("included", [False, True])
    def test_shots_that_stand_out_are_summed_only_where_that_is_asked_for(self, job, monkeypatch, included):
        monkeypatch.setattr(run, "outliers", lambda strengths: {1: 50.0} if set(strengths) == {0, 1, 2, 3} else {})
        imaging = job.imaging.model_copy(update={"include_outliers": included})
        survey = run.run_job(job.model_copy(update={"imaging": imaging}))
        parts = [survey.workspace.part(shot).image for shot in range(4)]
        if included:
            assert survey.aside == {} and np.array_equal(
                survey.stack.image, (parts[0] + parts[1]) + (parts[2] + parts[3])
            )
        else:
            assert "50 times as strong" in survey.aside[1]
            assert np.array_equal(survey.stack.image, parts[0] + (parts[2] + parts[3]))
        assert survey.resumed == len(survey.summaries) == 4

    def test_a_job_is_the_same_in_whatever_order_its_keys_come(self, job):
        described = Workspace(job.output.directory).described
        other = replace(described, frozen=dict(reversed(described.frozen.items())))
        assert list(other.frozen) != list(described.frozen) and other.identity == described.identity

    def test_a_shot_that_was_interrupted_is_marked(self, job, monkeypatch):
        def interrupt(*about):
            raise KeyboardInterrupt

        monkeypatch.setattr(work, "_run", interrupt)
        shots = job.output.directory / "shots"
        (shots / "00003.npz").unlink()
        with pytest.raises(KeyboardInterrupt):
            run.run_job(job)
        assert "KeyboardInterrupt" in (shots / "00003.error").read_text()

    def test_a_shot_that_is_taken_is_on_the_disk(self, job, monkeypatch):
        synced = []
        monkeypatch.setattr(workspace, "sync", synced.append)
        prepared = Workspace(job.output.directory)
        with prepared.running() as begun:
            begun.damaged.add(2)
            begun.keep(2, begun.part(2).arrays, begun.summary(2))
            begun.fail(2, "why")
            begun.take(2)
            assert not list(begun.drafts.glob("0*"))
        assert synced == [prepared.root / "shots"] and not begun.damaged
        assert prepared.finished() == {0, 1, 2, 3} and not list(synced[0].glob("*.error"))

    def test_what_workers_had_begun_is_marked_where_the_run_is_interrupted(self, job, monkeypatch):
        pytest.importorskip("distributed")
        from forebay.wave.job.shots import cluster

        class Client:
            def subscribe_topic(self, topic, hear):
                self.topic, self.hear = topic, hear

            def unsubscribe_topic(self, topic):
                assert topic == self.topic
                self.topic = None

            def submit(self, *about, **how):
                for shot in (0, 2, 7):  # one that is finished, one of this run, and none of it
                    self.hear((0.0, (shot, 5)))
                raise KeyboardInterrupt

        monkeypatch.setattr(cluster, "ask_workers", lambda client, *about: {"one": True})
        told, client, prepared = [], Client(), Workspace(job.output.directory)
        bars = SimpleNamespace(steps=lambda shot, done: told.append((shot, done)))
        prepared.path(2).unlink()
        prepared.path(3).unlink()
        with prepared.running() as begun, pytest.raises(KeyboardInterrupt):
            cluster.ShotCluster(client, None, None).shots(begun, [2, 3], Budget(host=1), bars)
        assert told == [(0, 5), (2, 5), (7, 5)] and client.topic is None
        assert [path.name for path in (prepared.root / "shots").glob("*.error")] == ["00002.error"]
        assert "KeyboardInterrupt" in prepared.path(2).with_suffix(".error").read_text()


class TestOfAWorkersOutcomes:
    """Each shot is tried as often as the job says, and no more where it would fail again."""

    @pytest.fixture
    def outcomes(self, monkeypatch):
        """Tell what becomes of the attempts of each shot, in turn; return what is called."""
        pytest.importorskip("distributed")
        from forebay.wave.job.shots import cluster

        class Future:
            def __init__(self, end):
                self.status = "error" if isinstance(end, Exception) else "finished"
                self.exception = lambda: end if isinstance(end, Exception) else None
                self.result = lambda: {"seconds": end}

        class Waiting(list):
            def __iter__(self):
                while self:
                    yield self.pop(0)

            add = list.append

        monkeypatch.setattr(cluster, "distributed", SimpleNamespace(as_completed=Waiting))

        def run(attempts, retries=1, plan="a plan"):
            called, left = [], {shot: list(ends) for shot, ends in attempts.items()}

            def submit(call, root, run, work, topic, budget, shot, threads, *, pure, priority):
                assert (pure, priority, threads) == (False, -shot, 3)
                return Future(left[shot].pop(0))

            def take(shot):
                called.append(f"take {shot}")
                if attempts[shot][0] == "damaged":
                    attempts[shot].pop(0)
                    raise CorruptionError("damaged")

            workspace = SimpleNamespace(take=take, plan=lambda: plan)
            workspace.take_failure = lambda shot: called.append(f"take failure {shot}")
            bars = SimpleNamespace(
                finished=lambda *about: called.append(about), failed=lambda *about: called.append(about)
            )
            shots = cluster.ShotCluster(SimpleNamespace(submit=submit), SimpleNamespace(retries=retries), 3)
            return shots._all(workspace, ("root", "run", "work", "topic", "budget"), list(attempts), bars), called

        return run

    def test_what_is_finished_is_taken(self, outcomes):
        assert outcomes({4: [2.5], 7: [1.5]}) == ({}, ["take 4", (4, 2.5), "take 7", (7, 1.5)])

    def test_what_fails_is_tried_again_as_often_as_the_job_says(self, outcomes):
        failed, called = outcomes({4: [MemoryError("a"), 2.5]})
        assert not failed and called == ["take failure 4", (4, "MemoryError: a", True), "take 4", (4, 2.5)]
        failed, called = outcomes({4: [MemoryError("a"), MemoryError("b")], 5: [1.0]})
        assert failed == {4: "MemoryError: b"}
        assert called == [
            *("take failure 4", (4, "MemoryError: a", True), "take 5", (5, 1.0)),
            *("take failure 4", (4, "MemoryError: b", False)),
        ]
        assert outcomes({4: [MemoryError("a")]}, retries=0)[0] == {4: "MemoryError: a"}

    def test_what_would_fail_again_is_not_tried_again(self, outcomes):
        assert outcomes({4: [WaveError("no sense")]}) == (
            {4: "WaveError: no sense"},
            ["take failure 4", (4, "WaveError: no sense", False)],
        )

    def test_what_arrives_damaged_has_failed(self, outcomes):
        failed, called = outcomes({4: ["damaged"]}, retries=0)
        assert failed == {4: "CorruptionError: damaged"} and called[:2] == ["take 4", "take failure 4"]

    def test_a_budget_that_no_plan_fits_into_ends_the_run(self, outcomes):
        with pytest.raises(BudgetError, match="small"):
            outcomes({4: [BudgetError("small")]}, plan=None)
        assert outcomes({4: [BudgetError("small")]})[0] == {4: "BudgetError: small"}
