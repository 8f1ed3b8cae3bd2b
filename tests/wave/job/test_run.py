"""A run around its shots: its beginning, its pilot, what it says of them, and what a look at its directory says."""

import io
import warnings
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from tests.wave.job.inversions import inversion_text
from tests.wave.job.jobs import SHOTS, TEXT, job_text

from forebay.errors import CorruptionError, ForebayError, WaveError
from forebay.tier.capacity import Capacity
from forebay.units import Budget
from forebay.wave import WaveWarning
from forebay.wave.files.seal import sealed_text
from forebay.wave.inversion.ledger import EvaluationLedger
from forebay.wave.job import begin, parse, pilot, run
from forebay.wave.job.inversion.asked import FOLDER
from forebay.wave.job.pilot import ImageCheck
from forebay.wave.job.prepare import prepare
from forebay.wave.job.shots import summing
from forebay.wave.job.stack import PartialImage
from forebay.wave.job.verify import verify
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.description import read_description
from forebay.wave.job.workspace.pilot_files import PilotResult, TriedOnShot, keep_pilot, pilot_of, take_pilot
from forebay.wave.job.workspace.results_seal import reseal, sealed_results, sealing
from forebay.wave.pilot import LADDER, TriedBound


def console():
    return Console(file=io.StringIO(), width=400)


class TestOfTheBeginning:
    """Who computes shots, and by which plan."""

    @pytest.mark.parametrize(
        ("told", "made_for", "left", "why"),
        [
            (None, {"host": 10**6}, {"host": 10**6}, None),
            (None, {"host": 10**6}, {"host": 10**5}, "takes"),
            ({"host": 10**6}, {"host": 10**6}, {"host": 10**6}, None),
            ({"host": 10**6}, {"host": 10**6}, {"host": 10**5}, "takes"),
            ({"host": 2 * 10**6}, {"host": 10**6}, {"host": 10**6}, "was made for"),
            ({"host": 10**6}, {"device": 5 * 10**5, "host": 10**6}, {"host": 10**6}, None),  # half of what was free
            ({"device": 10**6, "host": 10**6}, {"device": 5 * 10**5, "host": 10**6}, {"host": 10**6}, "was made for"),
            ({"host": 10**6}, {"host": 10**6, "disk": 10**6}, {"host": 10**6}, "was made for"),
            ({"host": 10**6, "disk": 10**6}, {"host": 10**6}, {"host": 10**6}, "was made for"),
        ],
    )
    def test_a_plan_for_another_budget_is_dropped(self, told, made_for, left, why):
        plan = SimpleNamespace(budget=Budget(**made_for), peak_bytes={"host": 300_000})
        memory = SimpleNamespace(budget=None if told is None else Budget(**told))
        dropped, said = [], console()
        space = SimpleNamespace(
            plan=lambda: plan,
            described=SimpleNamespace(job=SimpleNamespace(memory=memory)),
            forget_plan=lambda: dropped.append(True),
        )
        begin._settle(space, Budget(**left), said)
        text = said.file.getvalue()
        assert bool(dropped) == (why is not None)
        assert text == "" if why is None else text.startswith(f"the plan of an earlier run {why} ")
        space.plan = lambda: None
        begin._settle(space, Budget(**left), said)
        assert len(dropped) == (why is not None)

    def test_shots_are_computed_here_or_by_a_cluster(self, monkeypatch):
        called, client = [], SimpleNamespace()
        monkeypatch.setattr(begin, "host_capacity", lambda: Capacity(10**12, 77))
        monkeypatch.setattr(begin, "_settle", lambda workspace, budget, console: called.append(budget))
        monkeypatch.setattr(begin, "shots_here", lambda workspace, todo, bars, taken: taken() or {1: "here"})
        client.budget, client.shots = (lambda space: Budget(host=5)), (lambda space, todo, budget, bars: {2: budget})
        assert begin.compute_shots("space", None, [], "bars", "console") == {} and called == []
        heard = []
        assert begin.compute_shots("space", None, [1], "bars", "console", lambda: heard.append(1)) == {1: "here"}
        assert heard == [1, 1]  # an earlier run may have left some
        assert begin.compute_shots("space", client, [1], "bars", "console") == {2: Budget(host=5)}
        assert called == [Budget(host=77), Budget(host=5)]

    @pytest.mark.parametrize("workers", [0, 3])
    def test_workers_of_its_own_are_started_where_the_job_says_so(self, tmp_path, monkeypatch, workers):
        pytest.importorskip("distributed")
        from forebay.wave.job.shots import cluster

        started = []

        @contextmanager
        def local(table, device, folder):
            started.append((table.workers, device, folder.parent))
            yield "a cluster"

        monkeypatch.setattr(cluster, "local", local)
        job = parse(job_text(wavelet="frequency = 2.5\ndelay = 0.1", run=f"workers = {workers}"), tmp_path)
        said, damage = console(), []
        with begin.begun(job, said, damage) as (workspace, client):
            assert client == ("a cluster" if workers else None) and workspace.drafts.is_dir()
        assert started == ([(3, "cpu", tmp_path / "out")] if workers else [])
        assert (
            "shots: 2, of 48 receivers on average, 126 samples of 8 ms; sources at depth 50 m" in said.file.getvalue()
        )
        assert damage == [] and not workspace.drafts.exists()

    def test_what_is_run_writes_while_it_holds_its_directory(self, tmp_path):
        job, wrote = parse(job_text(), tmp_path), []
        assert begin.run_held(job, lambda shown: shown.quiet, None, wrote.append) is True and wrote == [True]
        said = console()
        assert begin.run_held(job, lambda shown: shown is said, said, None) is True

    def test_notes_are_said_or_warned_of(self):
        said = console()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            begin.tell_notes(said, ["one", "two"])
        assert said.file.getvalue() == "one\ntwo\n"
        with pytest.warns(WaveWarning, match="one"):
            begin.tell_notes(Console(quiet=True), ["one"])


class TestOfWhatIsSaid:
    """Sentences about shots."""

    def test_of_images_that_are_too_far(self):
        check = ImageCheck({3: 0.02, 4: 0.01, 5: 0.0}, 0.1)
        (told,) = run._too_far(check, 0.01)
        assert told.startswith("the image of shot 3 is 2.00% from the exact one")
        assert run._too_far(check, None) == run._too_far(None, 0.01) == run._too_far(None, None) == []

    def test_of_traces_that_were_dropped(self):
        told = run._silenced({0: {"dropped": 0}, 2: {"dropped": 3}, 7: {"dropped": 1}})
        assert told == ["4 traces were dropped, which are not finite: of shots 2, 7"]
        assert run._silenced({0: {"dropped": 0}}) == []

    def test_of_shots_that_add_nothing(self):
        (told,) = run._empty({0: {"strength": 0.0}, 1: {"strength": 1e-30}, 2: {"strength": 0.0}})
        assert told.startswith("2 of 3 shots have an image of zeros: ") and told.endswith(": shots 0, 2")
        assert run._empty({1: {"strength": 1e-30}}) == []

    def test_of_shots_that_stand_out(self):
        strengths = {shot: {"strength": 1.0 + shot / 10} for shot in range(5)} | {5: {"strength": 1e9}}
        told = run._aside(strengths)
        assert list(told) == [5] and told[5].startswith("its image is 8.33e+08 times as strong as the median")

    @pytest.mark.parametrize(("count", "chosen"), [(0, ()), (1, (0,)), (4, (0, 2)), (11, range(11)), (11, ())])
    def test_images_come_in_the_order_of_their_shots(self, count, chosen):
        def part(shot):
            if shot == 2:
                raise CorruptionError("shot 2 is damaged")
            return f"image {shot}"

        failed = {}
        space = SimpleNamespace(part=part, geometry=SimpleNamespace(count=count))
        images = list(summing.RunningSum(space)._images(set(chosen), failed))
        assert images == [f"image {shot}" if shot in chosen and shot != 2 else None for shot in range(count)]
        assert failed == ({2: "shot 2 is damaged"} if 2 in chosen else {})

    @pytest.mark.parametrize(
        ("order", "which"),
        [([4], "shot 4,"), ([4, 1], "shot 4, and then shot 1,"), ([4, 2, 0], "shot 4, and then shot 0,")],
    )
    @pytest.mark.parametrize("dask", [False, True])
    def test_of_a_pilot(self, tmp_path, monkeypatch, order, which, dask):
        ran, found = [], [None]

        def ran_here(*about):
            ran.append(about)
            found[0] = SimpleNamespace(explain=lambda: ["as it is"])

        space = SimpleNamespace(
            root=tmp_path, run="token", geometry=SimpleNamespace(outwards=lambda: order), settled=lambda: None
        )
        monkeypatch.setattr(run, "run_pilot", ran_here)
        monkeypatch.setattr(run, "pilot_of", lambda workspace: found[0])
        monkeypatch.setattr(run, "take_pilot", lambda workspace: ran.append("taken"))
        said, client = console(), SimpleNamespace(pilot=ran_here) if dask else None
        run._lead(space, client, said)
        assert ran == [(space,) if dask else (tmp_path, "token"), "taken"]
        first, second = said.file.getvalue().splitlines()
        assert first.startswith(f"pilot: {which} with an exact history") and second == "pilot: as it is"
        run._lead(space, client, said)  # whose images are not there
        assert len(ran) == 4
        (tmp_path / "pilot.npz").write_text("")
        run._lead(space, client, said)
        assert len(ran) == 4 and said.file.getvalue().count("as it is") == 3


class TestOfThePilot:
    """What a pilot looks at, what it may keep, and how far the images of the job are from its own."""

    def searching(self, finished, budget=None, **memory):
        workspace = finished.workspace
        memory = workspace.described.job.memory.model_copy(update=memory)
        job = workspace.described.job.model_copy(update={"memory": memory})
        space = Workspace(workspace.root)
        vars(space)["described"] = replace(workspace.described, job=job)
        return pilot._Pilot(space, budget)

    def test_bounds_leave_less_of_what_a_worker_has(self, finished):
        box = (slice(2, 5), slice(0, 7))
        taken = 4 * (2 * len(LADDER) + 2) * 21
        left = self.searching(finished, Budget(host=taken + 9, disk=5), host=None)._left(box)
        assert left == Budget(host=9, disk=5)
        assert self.searching(finished, Budget(host=taken - 1), host=None)._left(box) == Budget(host=1)
        assert self.searching(finished, None, host=None)._left(box) is None
        assert self.searching(finished, Budget(host=10**9), host=7)._left(box) is None

    @pytest.mark.parametrize(
        ("image", "errors", "is_taken"),
        [(1.0, [0.1, 0.2], True), (0.0, [0.1, 0.2], False), (np.nan, [0.1, 0.2], False), (1.0, [0.1, np.inf], False)],
    )
    def test_a_shot_whose_picture_tells_something_is_taken(self, finished, monkeypatch, image, errors, is_taken):
        searching, seen = self.searching(finished), []

        def try_bounds(shot, model, bounds, picture, **options):
            values = np.full((48, 96), image, np.float32)
            seen.append((picture(np.ones((48, 96)), np.ones((48, 96))), options))
            rows = [TriedBound(bound, error, 5.0) for bound, error in zip(bounds, errors, strict=True)]
            return SimpleNamespace(image=values, illumination=np.ones_like(values)), rows

        monkeypatch.setattr(pilot, "try_bounds", try_bounds)
        monkeypatch.setattr(pilot, "picture_of", lambda part, workspace: ("a picture of", part.box))
        shot = SimpleNamespace(data=np.ones(3))
        rows = searching._try(2, shot, [1e-3, 1e-4])
        assert [row.bound for row in rows] == ([1e-3, 1e-4] if is_taken else [])
        told = [TriedOnShot(2, 1e-3, 0.1, 5.0), TriedOnShot(2, 1e-4, 0.2, 5.0)]
        assert searching.tried == (told if is_taken else []) and list(searching.parts) == ([2] if is_taken else [])
        assert seen[0][0] == ("a picture of", searching.workspace.boxes[2])
        assert seen[0][1]["budget"] == Budget(host=4_000_000) and "encode_states" not in seen[0][1]

    def test_a_shot_without_data_is_passed_over(self, finished, monkeypatch):
        searching = self.searching(finished)
        for data, is_there in ((np.zeros((126, 48)), False), (np.ones((126, 48)), True), (None, False)):

            def data_of(workspace, number, shot, data=data):
                if data is None:
                    raise WaveError("it cannot be read")
                return data

            monkeypatch.setattr(pilot, "data_of", data_of)
            found = searching._with_data(1)
            assert (found is not None) is is_there
            assert found is None or np.array_equal(found.data, data)

    def test_images_are_compared_by_what_a_change_makes_of_the_sum(self, monkeypatch):
        box = (slice(0, 2), slice(0, 2))

        def part(value, light):
            return PartialImage(np.full((2, 2), value), np.full((2, 2), light), box)

        ours, exact = {0: part(3.0, 1.0), 1: part(5.0, 2.0)}, {7: part(0, 0), 0: part(1.0, 1.5), 1: part(9.0, 4.0)}
        monkeypatch.setattr(pilot, "exact_parts", lambda workspace, shots: exact)
        monkeypatch.setattr(pilot, "finish", lambda sums, grid, mute: (sums.image[0, 0], sums.illumination[0, 0]))
        monkeypatch.setattr(pilot, "picture_of", lambda part, workspace: (part.image[0, 0], part.illumination[0, 0]))
        compared = []
        monkeypatch.setattr(
            pilot, "picture_error", lambda one, other: compared.append((one, other)) or 0.25 * len(compared)
        )
        described = SimpleNamespace(grid="grid", job=SimpleNamespace(imaging=SimpleNamespace(mute=0.0)))
        space, found = SimpleNamespace(described=described, part=ours.get), SimpleNamespace(shots=[7, 0, 1])
        check = pilot.check_images(space, found, part(100.0, 50.0), {0, 1, 2})
        assert compared == [
            *(((3.0, 1.0), (1.0, 1.5)), ((100.0, 50.0), (98.0, 50.5))),
            *(((5.0, 2.0), (9.0, 4.0)), ((100.0, 50.0), (104.0, 52.0))),
        ]
        assert check == ImageCheck({0: 0.25, 1: 0.75}, 3 * 1.0)
        assert pilot.check_images(space, found, part(100.0, 50.0), {2}) is None

    def test_what_it_found_is_written_taken_and_read(self, finished, tmp_path):
        workspace = prepare(parse(TEXT, tmp_path))
        found = PilotResult("bounded:2e-05", [TriedOnShot(SHOTS - 1, 2e-5, 0.005, 6.0)])
        part = finished.workspace.part(0)
        with workspace.running() as begun:
            assert pilot_of(begun) is None
            keep_pilot(begun, found, {SHOTS - 1: part})
            assert pilot_of(begun) is None
            take_pilot(begun)
            assert pilot_of(begun) == found
            for name in ("pilot.npz", "pilot.json"):
                assert not (begun.drafts / name).exists()
            told = {"codec": None, "tried": [[SHOTS, 2e-5, 0.005, 6.0]]}
            text = sealed_text(told, file="pilot", job=begun.identity)
            (begun.root / "pilot.json").write_text(text)
            with pytest.raises(CorruptionError, match="it tells of shots that the job has not"):
                pilot_of(begun)

    def test_it_is_explained_shot_by_shot(self):
        tried = [TriedOnShot(2, 1e-4, 0.01, 5.0), TriedOnShot(2, 2e-5, 0.001, 4.0), TriedOnShot(0, 2e-5, 0.002, 4.0)]
        assert PilotResult("bounded:2e-05", tried).explain() == [
            "the image of shot 2 is off by 1.00% with 0.0001, 0.10% with 2e-05 of the range as a bound",
            "the image of shot 0 is off by 0.20% with 2e-05 of the range as a bound",
            "bounded:2e-05 keeps the image for all shots",
        ]
        assert PilotResult(None, tried).explain()[-1].startswith("no bound that is of use keeps images so close")
        assert PilotResult(None, tried).shots == [2, 0]


class TestOfADirectory:
    """What a run writes first, and what a look at it says."""

    def test_its_folders_are_its_owners(self, tmp_path):
        for _ in range(2):
            root = prepare(parse(job_text(), tmp_path)).root
        for name in ("model", "true", "shots"):
            assert (root / name).stat().st_mode & 0o777 == 0o700
        with Workspace(root).running() as begun:
            over = begun.doing(replace(begun.work, name="below"))
            assert over.folder == root / "shots" / "below" and over.folder.stat().st_mode & 0o777 == 0o700
            assert begun.drafts.stat().st_mode & 0o777 == 0o700 and begun.doing(over.work) == over

    def test_what_is_whole_is_counted(self, job):
        assert verify(job) == ([], "4 of 4 shots are there and whole")
        root = job.output.directory
        with sealing(root, Workspace(root).identity) as written:
            for name in ("image.npy", "stack.npy"):
                np.save(root / name, np.zeros(3))
                written.append(root / name)
        assert verify(job) == ([], "4 of 4 shots are there and whole, and so are 2 of 2 results")
        np.save(root / "stack.npy", np.ones(3))
        damage, told = verify(job)
        assert told == "4 of 4 shots are there and whole, and so are 1 of 2 results"
        assert damage[0].endswith("run the job to write it again, or give --repair") and len(damage) == 1
        identity = Workspace(root).identity
        reseal(root, identity, root / "stack.npy")
        assert verify(job)[0] == [] and len(sealed_results(root, identity)) == 2
        np.save(root / "other.npy", np.ones(3))
        before = (root / "results.json").read_bytes()
        reseal(root, identity, root / "other.npy")
        assert (root / "results.json").read_bytes() == before
        (root / "shots" / "00002.npz").unlink()
        damage, told = verify(job)
        assert told.startswith("3 of 4 shots are there") and damage == [
            "1 of 4 shots are missing: run the job to compute them"
        ]

    def test_without_what_describes_it_shots_are_not_looked_at(self, job):
        root = job.output.directory
        geometry = (root / "geometry.npz").read_bytes()
        (root / "geometry.npz").write_bytes(geometry[:-1])
        damage, told = verify(job)
        assert len(damage) == 1 and told == "without its geometry.npz, shots are not looked at"
        (root / "geometry.npz").write_bytes(geometry)
        (root / "job.json").unlink()
        damage, told = verify(job)
        assert "job.json is missing, and shots are there" in damage[0]
        assert told == "without its job.json, shots are not looked at"

    def test_passes_of_a_search_are_counted_file_by_file(self, tmp_path):
        job = parse(inversion_text("iterations = 1"), tmp_path, command="fwi")
        workspace = prepare(job)
        with workspace.running() as begun:
            over = begun.doing(replace(begun.work, kind="data", name="data"))
            over.keep(0, {"data": np.zeros(3)}, {"shot": 0})
            over.take(0)
        ledger = EvaluationLedger(workspace.root / FOLDER, workspace.identity)
        ledger.keep("stage-0", {"velocity": np.zeros(3)}, "")
        ledger.close()
        assert verify(job) == ([], "3 of 3 files of its passes are there and whole")
        path = workspace.root / FOLDER / "stage-0.npz"
        path.write_bytes(path.read_bytes()[:-1])
        damage, told = verify(job)
        assert len(damage) == 1 and "stage-0.npz is damaged" in damage[0]
        assert told == "2 of 3 files of its passes are there and whole"
        with sealing(workspace.root, workspace.identity) as written:
            np.save(workspace.root / "velocity.npy", np.zeros(3))
            written.append(workspace.root / "velocity.npy")
        assert verify(job)[1].endswith("there and whole, and so are 1 of 1 results")
        (workspace.root / "velocity.npy").unlink()
        damage, told = verify(job)
        assert told.endswith("and so are 0 of 1 results") and damage[-1].endswith(
            "it is missing: run the job to write it again"
        )

    @pytest.mark.parametrize("text", ["[1, 2]", "{", "\xff", '{"job": 1}'])
    def test_a_description_without_a_seal_is_of_another_version_only_beside_shots(self, tmp_path, text):
        path = tmp_path / "job.json"
        path.write_text(text, encoding="latin-1")
        for shots in (False, True):
            if shots:
                (tmp_path / "shots").mkdir()
                (tmp_path / "shots" / "00000.npz").write_text("")
            another = shots and text.startswith('{"')
            with pytest.raises(ForebayError, match="another version of Forebay" if another else "is damaged"):
                read_description(path)
