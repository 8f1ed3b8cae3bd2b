"""A workspace is sealed: what is damaged, foreign or late is named and computed again, and never summed."""

import io
import json
import random
import re
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from secrets import token_hex
from zipfile import ZipFile

import numpy as np
import pytest
from rich.console import Console
from tests.faults import figures
from tests.wave.job.jobs import SAMPLING, SHOTS, TEXT, same_images
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.errors import ForebayError, WaveError
from forebay.files import remove
from forebay.wave import WaveWarning
from forebay.wave.files.seal import sealed_text
from forebay.wave.job import changed, parse, run_job, work
from forebay.wave.job.prepare import prepare
from forebay.wave.job.stack import finish, tree_sum
from forebay.wave.job.verify import verify
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.results_seal import sealing

OTHER = TEXT.replace("frequency = 2.5", "frequency = 2.4").replace("smooth = 80.0", "smooth = 80.0\nseed = 1")
OTHER = OTHER.replace("receiver_spacing = 100.0", "receiver_spacing = 110.0")

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")


@pytest.fixture(scope="module")
def runs(finished, tmp_path_factory):
    """Run another job than the finished one, and return both."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return finished, run_job(parse(OTHER, tmp_path_factory.mktemp("foreign")))


def swapped(path, others):
    """Exchange a file with one of its kind, or the next best."""
    other = others[path.name]
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def rewritten(path, change):
    """Write arrays again, changed, as NumPy does; of JSON nothing is left."""
    if path.suffix == ".npy":
        np.save(path, change(np.load(path)))
    elif path.suffix == ".npz":
        with np.load(path) as file:
            arrays = {name: change(file[name]) if file[name].dtype.kind == "f" else file[name] for name in file}
        np.savez(path, **arrays)
    else:
        path.write_text(json.dumps(change(np.zeros(2)).tolist()))


def of_another_type(values):
    return values.astype("f4" if values.itemsize == 8 else "f8")


def flipped(path, where):
    data = bytearray(path.read_bytes())
    data[int(where * (len(data) - 1))] ^= 4
    path.write_bytes(data)


def patched(path, change):
    path.write_bytes(change(path.read_bytes()))


KINDS = {
    "a bit at the start": lambda path, about: flipped(path, 0),
    "a bit in the middle": lambda path, about: flipped(path, 0.5),
    "a bit near the end": lambda path, about: flipped(path, 0.98),
    "the last bit": lambda path, about: flipped(path, 1),
    "half of it": lambda path, about: patched(path, lambda data: data[: len(data) // 2]),
    "all but a byte": lambda path, about: patched(path, lambda data: data[:-1]),
    "nothing": lambda path, about: patched(path, lambda data: b""),
    "zeros": lambda path, about: patched(path, lambda data: bytes(len(data))),
    "a byte more": lambda path, about: patched(path, lambda data: data + b"\n"),
    "another file": lambda path, about: swapped(path, about["others"]),
    "another job's": lambda path, about: shutil.copy(about["foreign"] / path.relative_to(about["root"]), path),
    "one element": lambda path, about: rewritten(path, lambda values: values.ravel()[:1]),
    "not a number": lambda path, about: rewritten(path, lambda values: values * np.nan),
    "another type": lambda path, about: rewritten(
        path, lambda values: values.astype("f8" if values.itemsize < 8 else "f4")
    ),
}
FILES = {
    "job.json": "plan.json",
    "plan.json": "timeline.json",
    "timeline.json": "plan.json",
    "geometry.npz": "shots/00002.npz",
    "wavelet.npy": "model/velocity.npy",
    "model/velocity.npy": "true/velocity.npy",
    "true/velocity.npy": "model/velocity.npy",
    "shots/00001.npz": "shots/00003.npz",
    "shots/00002.npz": "shots/00000.npz",
}
"""Each with one of its kind, or the next best."""
CORRUPTIONS = [(kind, name) for kind in KINDS for name in FILES]


def corrupt(root, kind, name, foreign):
    others = {Path(one).name: root / other for one, other in FILES.items()}
    others["velocity.npy"] = root / FILES[name]
    KINDS[kind](root / name, {"root": root, "foreign": foreign, "others": others})


def run_shown(job, **options):
    """Run a job and return what it makes and what it says."""
    console = Console(width=400, file=io.StringIO(), record=True)
    return run_job(job, console, **options), console.export_text()


def test_each_of_126_corruptions_is_named(runs, tmp_path):
    assert len(CORRUPTIONS) == 126
    silent = []
    for number, (kind, name) in enumerate(CORRUPTIONS):
        shutil.copytree(runs[0].workspace.root, tmp_path / str(number) / "out")
        corrupt(tmp_path / str(number) / "out", kind, name, runs[1].workspace.root)
        try:
            damage, _ = verify(parse(TEXT, tmp_path / str(number)))
        except WaveError as error:
            damage = [str(error)]
        refused = (kind, name) == ("another job's", "job.json") and "holds a job with other" in damage[0]
        if not refused and not any(f"{name} is damaged: " in sentence for sentence in damage):
            silent.append((kind, name, damage))
    assert not silent


def check_repaired(runs, folder, kind, name):
    """Damage a copy, and run the job again."""
    shutil.copytree(runs[0].workspace.root, folder / "out")
    corrupt(folder / "out", kind, name, runs[1].workspace.root)
    job = parse(TEXT, folder)
    if (kind, name) == ("another job's", "job.json"):
        with pytest.raises(WaveError, match=r"holds a job with other geometry\.receiver_spacing, model\.seed"):
            run_job(job)
        return
    survey, said = run_shown(job)
    assert f"{name} is damaged: " in said and survey.damage and not survey.failed
    assert same_images(survey, runs[0])
    assert verify(job)[0] == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("a bit in the middle", "shots/00001.npz"),
        ("another file", "shots/00002.npz"),
        ("half of it", "job.json"),
        ("not a number", "model/velocity.npy"),
        ("another job's", "plan.json"),
    ],
)
def test_what_is_damaged_is_computed_again(runs, tmp_path, kind, name):
    check_repaired(runs, tmp_path, kind, name)


@pytest.mark.slow
def test_whatever_is_damaged_is_computed_again(runs, tmp_path):
    begun = time.perf_counter()
    for number, (kind, name) in enumerate(CORRUPTIONS):
        check_repaired(runs, tmp_path / str(number), kind, name)
    counted = {"files damaged": len(CORRUPTIONS), "wrong": 0}
    figures.record("faults", "files of a job damaged between runs", counted, time.perf_counter() - begun)


def test_a_sealed_shot_is_read_by_numpy_as_ever(job):
    path = job.output.directory / "shots" / "00001.npz"
    with ZipFile(path) as archive:
        assert "checksum" in json.loads(archive.comment)  # all that comes behind the arrays
    with np.load(path) as file:
        assert sorted(file) == ["illumination", "image", "summary"] and file["image"].shape == (48, 96)


@pytest.mark.parametrize("name", ["00042.npz", "7.npz", "000001.npz"])
def test_a_stray_file_is_named_and_left_out(runs, job, name):
    stray = job.output.directory / "shots" / name
    shutil.copy(job.output.directory / "shots" / "00001.npz", stray)
    assert verify(job)[0] == [f"{stray} belongs to none of the job's {SHOTS} shots, and can be removed"]
    survey, said = run_shown(job)
    assert "belongs to none of the job's 4 shots, and can be removed: it is left out" in said
    assert survey.resumed == SHOTS and same_images(survey, runs[0])


def test_a_seal_that_was_made_again_over_wrong_arrays_helps_nobody(runs, job):
    """As whoever forges a checksum would: the arrays themselves are looked at too."""
    from forebay.wave.files.seal import seal_archive

    workspace = Workspace(job.output.directory)
    path, about = workspace.path(1), {"job": workspace.identity, "shot": 1, "run": ""}
    with np.load(path) as file:
        sound = dict(file)
    for change in (
        {"image": sound["image"][:1]},
        {"image": sound["image"].astype(float)},
        {"illumination": sound["illumination"] * np.float32(np.nan)},
        {"summary": np.frombuffer(b"[1, 2]", np.uint8)},
        {"summary": np.frombuffer(b'{"shot": 1}', np.uint8)},
    ):
        np.savez(path, **(sound | change))
        seal_archive(path, **about)
        assert any("00001.npz is damaged: " in sentence for sentence in verify(job)[0])
    np.savez(path, image=sound["image"])
    seal_archive(path, **about)
    assert "its arrays cannot be read" in verify(job)[0][0]


def command(folder, *options):
    result = CliRunner().invoke(app, ["rtm", str(folder / "job.toml"), *options])
    assert result.exception is None or isinstance(result.exception, SystemExit | ForebayError), result.output
    return result.exit_code, " ".join(result.output.split())


def test_verify_looks_and_repair_computes_what_is_damaged_and_nothing_else(runs, job, tmp_path):
    root = tmp_path / "out"
    for options in ([], ["--scheduler", "tcp://127.0.0.1:1"]):  # nobody is asked, and no device
        assert command(tmp_path, "--verify", *options) == (0, "4 of 4 shots are there and whole")
    flipped(root / "shots" / "00001.npz", 0.5)
    (root / "shots" / "00003.npz").unlink()
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    code, said = command(tmp_path, "--verify")
    assert code == 1 and "00001.npz is damaged: its checksum does not match 1 of 4 shots are missing" in said
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    survey = run_job(job, repair=True)
    assert survey.resumed == 2 and list(survey.failed) == [3] and "without --repair" in survey.failed[3]
    assert np.array_equal(survey.workspace.part(1).image, runs[0].workspace.part(1).image)
    assert same_images(run_job(job), runs[0])
    assert command(tmp_path, "--verify")[0] == 0


@pytest.mark.slow
def test_results_are_sealed_and_written_again(runs, job, tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.report.drawing.missing", lambda: ["matplotlib"])  # pictures take their time
    text = TEXT.replace('formats = ["npy"]', 'formats = ["npy", "zarr"]')
    (tmp_path / "job.toml").write_text(text)
    assert command(tmp_path)[0] == 0
    root = tmp_path / "out"
    assert command(tmp_path, "--verify") == (0, "4 of 4 shots are there and whole, and so are 5 of 5 results")
    image, chunk = root / "image.npy", next(path for path in (root / "image.zarr" / "c").rglob("*") if path.is_file())
    before = image.read_bytes()
    for damage, named in (
        (lambda: flipped(image, 0.5), "image.npy is damaged: its checksum does not match"),
        (lambda: image.unlink(), "image.npy is damaged: it is missing"),
        (lambda: flipped(chunk, 0.5), "image.zarr is damaged: its checksum does not match"),
        (lambda: flipped(root / "results.json", 0.5), "results.json is damaged"),
        (lambda: (root / "stack.npy").write_bytes(before), "stack.npy is damaged: its checksum does not match"),
    ):
        damage()
        code, said = command(tmp_path, "--verify")
        assert code == 1 and named in said and "run the job to write it again, or give --repair" in said
        assert command(tmp_path, "--repair")[0] == 0 and image.read_bytes() == before
        assert command(tmp_path, "--verify")[0] == 0


def test_a_seal_of_results_names_results_alone(job):
    workspace = Workspace(job.output.directory)
    for files in (["image.npy"], {"../../etc/passwd": "0"}, {"image.npy": 1}, {"image.npy": "0", "stack.npy": 1}, None):
        text = sealed_text({"files": files}, file="results", job=workspace.identity)
        (workspace.root / "results.json").write_text(text)
        assert "results.json is damaged: it tells of no results" in verify(job)[0][0]


def test_results_that_were_not_all_written_have_no_seal(runs, job):
    root = job.output.directory
    with sealing(root, "") as written:
        written.append(root / "wavelet.npy")
    assert (root / "results.json").exists()
    with pytest.raises(KeyboardInterrupt), sealing(root, ""):
        raise KeyboardInterrupt
    assert not (root / "results.json").exists()


def test_what_is_not_there_cannot_be_verified(tmp_path):
    with pytest.raises(WaveError, match="to verify: run the job first"):
        verify(parse(TEXT, tmp_path))
    (tmp_path / "out").mkdir()
    with pytest.raises(WaveError, match="holds no job to verify"):
        verify(parse(TEXT, tmp_path))


def test_shots_without_their_description_are_known_again(runs, job):
    (job.output.directory / "job.json").unlink()
    survey, said = run_shown(job)
    assert "job.json is missing, and shots are there: it is made again" in said
    assert survey.resumed == SHOTS and same_images(survey, runs[0])


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_the_shots_of_another_job_are_not_lost_with_its_description(runs, job, how):
    path, text = job.output.directory / "job.json", OTHER
    before = {shot: shot.read_bytes() for shot in path.parent.glob("shots/*.npz")}
    path.unlink() if how == "missing" else flipped(path, 0.5)
    with pytest.raises(WaveError, match="holds shots of another job, and no description of it: choose another"):
        run_job(parse(text, job.output.directory.parent))
    assert before == {shot: shot.read_bytes() for shot in path.parent.glob("shots/*.npz")}
    assert same_images(run_job(job), runs[0])


def damaging(monkeypatch, shot):
    """Have a shot damaged as soon as its run has taken it."""
    real = Workspace.take

    def take(workspace, number):
        real(workspace, number)
        if number == shot:
            flipped(workspace.path(shot), 0.3)

    monkeypatch.setattr(Workspace, "take", take)


@pytest.mark.parametrize("dask", [False, True])
def test_what_is_damaged_while_a_run_goes_on_is_not_summed(runs, job, monkeypatch, dask):
    for shot in (1, 2):
        (job.output.directory / "shots" / f"{shot:05d}.npz").unlink()
    damaging(monkeypatch, 2)
    if dask:
        distributed = pytest.importorskip("distributed")
        with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None, memory_limit=0) as cluster:
            survey = run_job(changed(job, scheduler=cluster.scheduler_address))
    else:
        survey = run_job(job)
    assert list(survey.failed) == [2] and "00002.npz is damaged: " in survey.failed[2]
    a, b, d = (runs[0].workspace.part(shot).image for shot in (0, 1, 3))
    assert np.array_equal(survey.stack.image, (a + b) + d)
    monkeypatch.undo()
    assert same_images(run_job(job), runs[0])


class TestWorkersOfADeadRun:
    """They write into the folder of their own run, which the next one removes."""

    def test_a_run_leaves_no_folder(self, runs):
        assert not list(runs[0].workspace.root.glob("run-*"))

    def begun(self, folder, text):
        """Have a run begin and die: its lock is free, its folder there, and its worker lives on."""
        workspace = Workspace(prepare(parse(text, folder)).root, token_hex(8))
        workspace.drafts.mkdir()
        assert workspace.described and workspace.geometry.count and len(workspace.wavelet)
        return workspace

    def test_a_reason_may_name_a_file_that_no_text_can(self, tmp_path):
        workspace = Workspace(tmp_path, token_hex(8))
        workspace.drafts.mkdir()
        workspace.fail(3, "no file \udcff, µ")
        assert "no file \\udcff, µ" in next(workspace.drafts.iterdir()).read_text(encoding="utf-8")

    @pytest.mark.parametrize("seed", range(2))
    def test_what_they_write_is_refused(self, runs, tmp_path, monkeypatch, seed):
        """At random moments of their successor, which is another job or the same."""
        chosen, (sound, foreign) = random.Random(seed), runs
        zombie = self.begun(tmp_path, chosen.choice((OTHER, TEXT)))
        refused, part = [], foreign.workspace.part(1)
        metrics = type("Metrics", (), {"timeline": []})
        deeds = (
            lambda: zombie.keep(chosen.randrange(SHOTS), part.arrays, foreign.summaries[0]),
            lambda: zombie.freeze(foreign.workspace.plan(), metrics, 0),
            lambda: zombie.fail(chosen.randrange(SHOTS), "late"),
            lambda: zombie.take(chosen.randrange(SHOTS)),
        )

        def act(*arguments):
            for deed in chosen.sample(deeds, chosen.randrange(1, 4)):
                try:
                    deed()
                except ForebayError as error:
                    refused.append(str(error))

        act()  # before its successor begins, nobody can know
        written, refused[:] = len(refused), []
        for name in ("job.json", "shots"):  # so that another job may begin there
            remove(tmp_path / "out" / name)
        for name in ("keep", "take", "finished"):
            real = getattr(Workspace, name)
            acting = lambda self, *about, real=real: (self is zombie or act(), real(self, *about))[1]  # noqa: E731
            monkeypatch.setattr(Workspace, name, acting)
        deeds = tuple(deeds)
        survey = run_job(parse(TEXT, tmp_path))
        assert (
            written < 4 and len(refused) > SHOTS and all("is over" in one or "cannot be read" in one for one in refused)
        )
        monkeypatch.undo()
        assert same_images(survey, sound) and not survey.failed
        assert not list((tmp_path / "out").glob("run-*")) and not list((tmp_path / "out" / "shots").glob("*.error"))

    WORKER = """
import json, sys, time
from forebay.wave.job.shots import attempt
from forebay.wave.job.workspace import Workspace
keep, delay = Workspace.keep, [0.0]
def late(self, *about):
    self.described, self.geometry, self.wavelet
    print("computed", flush=True)
    time.sleep(delay[0])
    keep(self, *about)
Workspace.keep = late
for line in sys.stdin:
    root, shot, run, delay[0] = json.loads(line)
    try:
        attempt.try_shot(root, shot, run)
        print("kept", flush=True)
    except Exception as error:
        print("refused:", error, flush=True)
"""

    @pytest.mark.slow
    def test_50_random_schedules_leave_the_successor_as_it_is(self, runs, tmp_path):
        """A real worker, in a process of its own, whose shot of a dead job is late by any time."""
        chosen, ends = random.Random(0), []
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, "-c", self.WORKER], **pipes) as worker:
            for schedule in range(50):
                folder = tmp_path / str(schedule)
                dead = self.begun(folder, chosen.choice((OTHER, TEXT)))
                about = [str(dead.root), chosen.randrange(SHOTS), dead.run, chosen.uniform(0, 1.5)]
                worker.stdin.write(json.dumps(about) + "\n")
                worker.stdin.flush()
                assert worker.stdout.readline() == "computed\n"
                (dead.root / "job.json").unlink()  # so that another job may begin there
                survey = run_job(parse(TEXT, folder))
                assert same_images(survey, runs[0]) and not survey.failed
                ends.append(worker.stdout.readline().partition(":")[0].strip())
                assert same_images(run_job(parse(TEXT, folder)), runs[0])  # and when it is over too
            worker.stdin.close()
        assert ends.count("refused") > 10


@pytest.mark.slow
def test_a_cluster_outlives_its_run_and_serves_the_next(runs, tmp_path):
    """A run is killed while workers of a cluster compute its shots; another job begins in its directory meanwhile."""
    distributed = pytest.importorskip("distributed")
    (tmp_path / "dead.toml").write_text(OTHER)
    begin = "import sys; from pathlib import Path; from forebay.wave.job import changed, read_job, run_job; "
    begin += "run_job(changed(read_job(Path(sys.argv[1])), scheduler=sys.argv[2]))"
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        for delay in (0.0, 0.2, 0.4):
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
            command = [sys.executable, "-c", begin, str(tmp_path / "dead.toml"), cluster.scheduler_address]
            with subprocess.Popen(command) as process:
                while not (tmp_path / "out" / "plan.json").exists() and process.poll() is None:
                    time.sleep(0.01)
                time.sleep(delay)
                process.kill()
            for name in ("job.json", "shots"):
                remove(tmp_path / "out" / name)
            survey = run_job(changed(parse(TEXT, tmp_path), scheduler=cluster.scheduler_address))
            assert same_images(survey, runs[0]) and not survey.failed
            assert same_images(run_job(parse(TEXT, tmp_path)), runs[0])


def test_shots_that_are_not_finite_or_stand_out_are_set_aside(runs, tmp_path, monkeypatch):
    """One wrong sample in each of two shots: the image is that of the others."""
    monkeypatch.setattr("forebay.report.drawing.missing", lambda: ["matplotlib"])  # pictures take their time
    workspace = runs[0].workspace
    data = np.stack([work.data_of(workspace, shot, work.shot_of(workspace, shot)) for shot in range(SHOTS)])
    data[1, 110, 20], data[2, 110, 20] = 1e6 * np.abs(data[1]).max(), 1e37
    np.save(tmp_path / "data.npy", data)
    text = TEXT.replace(SAMPLING, 'file = "data.npy"\ndt = 0.008')
    (tmp_path / "job.toml").write_text(text)
    code, said = command(tmp_path)
    assert code == 1 and re.search(r"shot 1 is set aside: its image is [0-9.e+]+ times as strong", said)
    assert "shot 2 is missing: WaveError: its image is not finite" in said and "largest sample is 1e+37" in said
    image = np.load(tmp_path / "out" / "image.npy")
    others = tree_sum(workspace.part(shot) if shot in (0, 3) else None for shot in range(SHOTS))
    assert np.array_equal(image, finish(others.spread(image.shape), workspace.described.grid, 0.0))
    survey = run_job(parse(text + "[imaging]\ninclude_outliers = true\n", tmp_path))
    assert survey.resumed == 3 and not survey.aside and list(survey.failed) == [2]
    assert np.isfinite(survey.image).all() and not np.array_equal(survey.image, image)


@pytest.mark.parametrize("memory", ['host = "300kB"\ndisk = "20MB"', 'host = "9MB"', ""])
def test_another_budget_goes_on_and_gives_the_same_bits(runs, job, memory):
    for shot in range(1, SHOTS):
        (job.output.directory / "shots" / f"{shot:05d}.npz").unlink()
    other = parse(TEXT.replace('host = "4MB"', memory), job.output.directory.parent)
    survey = run_job(other)
    assert survey.resumed == 1 and same_images(survey, runs[0])
    if memory:
        assert survey.workspace.plan().budget == other.memory.budget


def test_where_a_codec_loses_something_the_budget_stays(tmp_path):
    lossy = TEXT.replace('host = "4MB"', 'host = "4MB"\ncodec = "bounded:1e-4"')
    prepare(parse(lossy, tmp_path))
    with pytest.raises(WaveError, match=r"a job with other memory\.host"):
        prepare(parse(lossy.replace("4MB", "9MB"), tmp_path))


def test_a_folder_of_shots_that_is_gone_is_made_again(runs, job):
    shutil.rmtree(job.output.directory / "shots")
    survey = run_job(job)
    assert survey.resumed == 0 and not survey.failed and same_images(survey, runs[0])


def test_without_a_console_damage_is_a_warning(job):
    flipped(job.output.directory / "plan.json", 0.5)
    with pytest.warns(WaveWarning, match=r"plan\.json is damaged: "):
        survey = run_job(job)
    assert survey.workspace.plan() is None and not survey.failed
