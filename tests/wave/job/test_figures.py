"""Figures of a job, each against one worked out by hand: what is read, muted, faded, kept and left over."""

import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
from tests.wave.job.jobs import job_text

from forebay.errors import BudgetError, WaveError
from forebay.tier.capacity import Capacity
from forebay.units import Budget
from forebay.wave.earth.grid import Grid
from forebay.wave.job import changed, inputs, parse, place, stack, wavelets
from forebay.wave.job.checks import inspect
from forebay.wave.job.stack import PartialImage
from forebay.wave.job.work import _told, steps_of
from forebay.wave.survey.geometry import Geometry, part_of
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.traces import mute

GRID = Grid((48, 96), 50.0)


def text_in(folder, **tables):
    return parse(job_text(**tables), folder)


def test_inspection_tells_every_figure(tmp_path):
    job = text_in(
        tmp_path, geometry="shots = 3\nmax_offset = 600", imaging="aperture = 400.0", data="dt = 0.008\nlength = 1.2"
    )
    assert {
        "model     48 x 96 points, 50 x 50 m, 1500 to 3100 m/s",
        "shots     3, of 48 receivers on average, 151 samples of 8 ms, modelled",
        "wavelet   up to 6.829 Hz",
        "steps     151 of 8 ms, imaged every 7",
        "parts     each shot migrates in 48 x 42 points inside layers of 20, on the CPU",
    } <= set(inspect(job).splitlines())
    assert "inside layers of 20, on the CPU" in inspect(text_in(tmp_path, run="retries = 0"))  # no GPU is told of
    told = inspect(changed(job, scheduler="tcp://here:1"))
    assert "inside layers of 20, on what the cluster's workers have" in told


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes as Unix has them")
def test_inspection_does_not_wait_for_the_writer_of_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "v.npy")
    with pytest.raises(WaveError, match="neither a file nor a folder"):
        inspect(text_in(tmp_path, model='velocity = "v.npy"\nspacing = 10'))


class TestWhatIsRead:
    """The medium, the geometry and the wavelet that a job names, and what is taken where it says nothing."""

    def test_depths_and_distances_that_are_not_told(self, tmp_path):
        geometry = inputs.acquisition_of(text_in(tmp_path, geometry="shots = 2"), GRID).geometry
        assert set(geometry.sources[:, 0]) == set(geometry.receivers[:, 0]) == {20.0}
        assert np.diff(geometry.receivers_of(0)[:, 1]) == pytest.approx(25.0)
        told = text_in(
            tmp_path,
            geometry="shots = 2\nsource_depth = 0\nreceiver_depth = 30\nreceiver_spacing = 40\nmax_offset = 90",
        )
        geometry = inputs.acquisition_of(told, GRID).geometry
        assert set(geometry.sources[:, 0]) == {0.0} and set(geometry.receivers[:, 0]) == {30.0}
        assert np.diff(geometry.receivers_of(0)[:, 1]) == pytest.approx(40.0)
        assert np.linalg.norm(geometry.receivers_of(0) - geometry.sources[0], axis=1).max() <= 90

    @pytest.mark.parametrize(
        ("dt", "length", "samples"),
        [(0.5, 0.26, 2), (0.5, 0.24, None), (0.5, 0.5, 2), (0.5, 0.76, 3), (1.0, 1e8, 10**8 + 1), (1.0, 1.01e8, None)],
    )
    def test_samples_of_a_length(self, tmp_path, dt, length, samples):
        job = text_in(tmp_path, data=f"dt = {dt}\nlength = {length}")
        if samples is None:
            with pytest.raises(WaveError, match=r"data\.length: expected"):
                inputs.acquisition_of(job, GRID)
        else:
            assert inputs.acquisition_of(job, GRID).samples == samples

    @pytest.mark.parametrize(
        ("delay", "samples", "over"),
        [(None, 48, True), (None, 47, False), (0.05, 23, True), (0.05, 22, False), (1.5, 64, False)],
    )
    def test_a_wavelet_is_over_with_the_data(self, tmp_path, delay, samples, over):
        job = text_in(tmp_path, wavelet="frequency = 5.0" + (f"\ndelay = {delay}" if delay is not None else ""))
        acquisition = SimpleNamespace(dt=0.01, samples=samples)
        if over:
            sent = wavelets.wavelet_of(job, acquisition)
            assert sent.lead == (0 if delay is None else 25) and len(sent.values) == sent.lead + samples
            assert sent.values.argmax() == sent.lead + round((delay or 0.3) / 0.01) and abs(sent.values[-1]) <= 0.02
        else:
            with pytest.raises(WaveError, match="that is over with the data"):
                wavelets.wavelet_of(job, acquisition)

    def test_water_has_no_shear_and_rock_what_its_velocity_tells(self, tmp_path):
        velocity = np.array([[1500.0, 1510.0, 1510.5, 4096.0]] * 4, np.float32)
        np.save(tmp_path / "v.npy", velocity)
        job = text_in(tmp_path, model='velocity = "v.npy"\nspacing = 10', physics='kind = "elastic"')
        _, media = inputs.media_of(job)
        assert media["model"]["vs"][0] == pytest.approx([0, 0, 1510.5 / 3**0.5, 4096 / 3**0.5])
        assert media["model"]["density"][0] == pytest.approx([1000, 1000, 310 * 1510.5**0.25, 310 * 8])
        assert {values.dtype for values in media["true"].values()} == {np.dtype(np.float32)}

    @pytest.mark.parametrize(
        ("physics", "points"), [("", 20), ('kind = "elastic"', 20), ('kind = "elastic"\nabsorb = 3', 3)]
    )
    def test_layers_have_twenty_points_unless_told(self, tmp_path, physics, points):
        grid, _ = inputs.media_of(text_in(tmp_path, physics=physics))
        assert grid.absorb == points


class TestWhatIsMuted:
    """Traces are silent until the direct wave has passed, and rise in half as long as that takes."""

    SHOT = Shot((30, 40), [(30, 40), (330, 440)], np.array([0, 0, 1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), 0.1)

    def test_with_a_delay(self):
        heard = mute(np.ones((14, 2), np.float32), self.SHOT, 1000.0, 0.4)
        assert heard.dtype == np.float32
        assert heard[:, 0] == pytest.approx([0] * 5 + [0.5] + [1] * 8, abs=1e-6)
        assert heard[:, 1] == pytest.approx([0] * 10 + [0.5] + [1] * 3, abs=1e-6)

    def test_from_a_time_zero_on(self):
        heard = mute(np.ones((14, 2)), self.SHOT, 1000.0, 0.4, time_zero=0.2)
        assert heard[:, 0] == pytest.approx([0] * 7 + [0.5] + [1] * 6)

    def test_without_one_as_long_as_the_wavelet_lasts(self):
        heard = mute(np.ones((14, 2)), self.SHOT, 500.0)
        assert heard[:, 0] == pytest.approx([0] * 3 + [1] * 11) and heard[:, 1] == pytest.approx([0] * 13 + [1])

    def test_at_once_it_rises_within_a_sample(self):
        assert mute(np.ones((14, 2)), self.SHOT, 1e9, 0.0)[:3, 0] == pytest.approx([0, 1, 1])

    def test_the_end_of_a_wavelet_is_where_hardly_any_energy_is_left(self):
        shot = Shot((0, 0), [(0, 0)], np.array([10.0, 0, 0.2, 0, 0.3]), 0.1)
        assert mute(np.ones((5, 1)), shot, 1000.0)[:, 0] == pytest.approx([0, 0, 0, 0.5, 1])
        shot = Shot((0, 0), [(0, 0)], np.array([10.0, 0, 0.2, 0, 0.1]), 0.1)
        assert mute(np.ones((5, 1)), shot, 1000.0)[:, 0] == pytest.approx([0, 1, 1, 1, 1])


def test_parts_fade_out_towards_the_inside_of_a_model():
    whole = PartialImage(np.ones((6, 5)), np.full((6, 5), 2.0), (slice(2, 8), slice(0, 5)))
    rise = [math.sin(math.pi / 8) ** 2, math.sin(3 * math.pi / 8) ** 2]
    faded = whole.faded([2, 3], (10, 5))
    assert faded.image[:, 0] == pytest.approx([*rise, 1, 1, *rise[::-1]])
    assert np.array_equal(faded.illumination, 2 * faded.image) and (faded.image == faded.image[:, :1]).all()
    assert whole.faded([2, 3], (8, 5)).image[:, 0] == pytest.approx([*rise, 1, 1, 1, 1])
    thirds = [math.sin(math.pi / 2 * (k + 0.5) / 3) ** 2 for k in range(3)]
    side = PartialImage(np.ones((6, 5)), np.ones((6, 5)), (slice(0, 6), slice(1, 6)))
    assert side.faded([0, 3], (6, 9)).image[2] == pytest.approx(
        [thirds[0], thirds[1], thirds[2] ** 2, thirds[1], thirds[0]]
    )
    assert side.faded([9, 9], (6, 6)).image.shape == (6, 5)  # wider than the part is


def test_sums_cover_both_parts_and_what_is_between():
    one = PartialImage(np.ones((2, 3)), np.full((2, 3), 2.0), (slice(1, 3), slice(0, 3)))
    other = PartialImage(np.full((3, 1), 4.0), np.full((3, 1), 8.0), (slice(0, 3), slice(4, 5)))
    whole = np.array([[0, 0, 0, 0, 4], [1, 1, 1, 0, 4], [1, 1, 1, 0, 4]])
    for total in (one + other, other + one):
        assert total.box == (slice(0, 3), slice(0, 5))
        assert np.array_equal(total.image, whole) and np.array_equal(total.illumination, 2 * whole)
    spread = other.spread((4, 6))
    assert spread.image.shape == (4, 6) and spread.image.sum() == 12 and (spread.image[:3, 4] == 4).all()
    assert one.strength == 1.0 and other.strength == 4.0


@pytest.mark.parametrize("depth", [0.0, 200.0])
def test_the_top_of_an_image_is_faded_out(depth, monkeypatch):
    monkeypatch.setattr(stack, "laplacian_filter", lambda image, grid: image)
    image = stack.finish(PartialImage(np.ones((7, 3)), np.ones((7, 3)), ()), Grid((7, 3), 50.0), depth)
    fade = [0, 0, 0, 0.5, 1, 1, 1] if depth else [1] * 7
    assert image[:, 1] / image[-1, 1] == pytest.approx(fade)


@pytest.mark.parametrize(("samples", "step", "steps"), [(10, 0.5, 20), (10, 0.3, 34), (3, 0.1, 30), (7, 1.0, 7)])
@pytest.mark.parametrize(("file", "ways"), [(None, 3), ("data.npy", 2)])
def test_steps_of_a_shot(samples, step, steps, file, ways):
    described = SimpleNamespace(sampling=1.0, step=step, job=SimpleNamespace(data=SimpleNamespace(file=file)))
    told = steps_of(SimpleNamespace(described=described, wavelet=np.zeros(samples)))
    assert told == (steps, ways * steps)


def test_a_shot_tells_of_codecs_only_where_there_was_one():
    metrics = SimpleNamespace(seconds=2.5, phases={"forward": 1.0}, peak={"host": 7}, moved={"up 1": 9}, ratios=None)
    metrics.samples, metrics.advanced = [], 20
    result = SimpleNamespace(metrics=metrics, plan=SimpleNamespace(schedule=SimpleNamespace(steps=8)), note="so")
    told = _told(SimpleNamespace(result=result, every=4), True)
    assert told["phases"] == {"forward": 1.0, "modelled": 0.4}  # 8 of the 20 steps that were run, some of them again
    assert told["ratio"] is told["worst"] is told["error"] is None
    metrics.ratios, metrics.mean_ratio = SimpleNamespace(worst=2.0), 3.0
    metrics.samples = [SimpleNamespace(relative=each) for each in (0.25, 0.5, 0.125)]
    told = _told(SimpleNamespace(result=result, every=4), False)
    assert (told["reversal"], told["every"], told["note"]) == (2.5, 4, "so")
    assert (told["phases"], told["peak"], told["moved"]) == ({"forward": 1.0}, {"host": 7}, {"up 1": 9})
    assert (told["ratio"], told["worst"], told["error"]) == (3.0, 2.0, 0.5)


@pytest.mark.parametrize(
    ("peak", "made_for", "left", "needed"),
    [(100, 1000, 150, 0), (100, 1000, 149, 150), (100, 120, 120, 0), (100, 120, 119, 120), (1, 9, 0, 1)],
)
def test_a_plan_needs_half_as_much_again_as_it_expects_or_its_budget(peak, made_for, left, needed):
    plan = SimpleNamespace(peak_bytes={"host": peak, "disk": 10**9}, budget=Budget(host=made_for, disk="1GB"))
    told = place.too_much(plan, Budget(host=left))
    assert told == (f"{needed}B of the host, where {left}B are left" if needed else "")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_half_of_a_gpu_is_planned_with_where_nothing_is_said_of_it(tmp_path, monkeypatch, device):
    monkeypatch.setattr(place, "device_capacity", lambda: Capacity(900, 301))
    silent, told, all_told = (text_in(tmp_path, memory=lines) for lines in ("", "host = 70", "device = 5\nhost = 70"))
    half = {"device": 150} if device == "gpu" else {}
    assert place.budget_of(silent, device, None) is None
    assert place.budget_of(silent, device, Budget(host=40)) == Budget(host=40, **half)
    assert place.budget_of(told, device, Budget(host=40)) == Budget(host=70, **half)
    assert place.budget_of(all_told, device, None) == Budget(device=5, host=70)
    monkeypatch.setattr(place, "device_capacity", lambda: None)
    assert place.budget_of(told, device, None) == Budget(host=70)


FIELDS = {("acoustic", 2): 12, ("acoustic", 3): 12, ("elastic", 2): 30, ("elastic", 3): 44, ("density", 3): 44}


@pytest.mark.parametrize(("kind", "ndim"), FIELDS)
def test_a_worker_has_what_a_shot_does_not_work_with(kind, ndim, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    from forebay.wave.job.shots import cluster

    grid = Grid((30, 40, 50)[:ndim], 10.0)
    box = tuple(slice(2, 20) for _ in range(ndim))
    described = SimpleNamespace(grid=grid, job=text_in(tmp_path, memory="", physics=f'kind = "{kind}"\norder = 6'))
    described.sampling, described.step = 0.008, 0.004
    geometry = Geometry(np.zeros((3, 2)), np.zeros((45, 2)), np.array([0, 10, 40, 45]), np.arange(45))
    workspace = SimpleNamespace(described=described, boxes=[box], geometry=geometry, wavelet=np.zeros(25))
    working = 4 * (FIELDS[kind, ndim] * math.prod(part_of(grid, box).fields(3)) + 5 * 30 * 50)
    shots = cluster.ShotCluster(None, None, None)
    monkeypatch.setattr(cluster, "limits_of", lambda *about: SimpleNamespace(budget=working + 1))
    assert shots.budget(workspace) == Budget(host=1)
    monkeypatch.setattr(cluster, "limits_of", lambda *about: SimpleNamespace(budget=working))
    with pytest.raises(BudgetError, match="start fewer workers with more memory"):
        shots.budget(workspace)
    described.job = text_in(tmp_path, memory="host = 7")
    assert shots.budget(workspace) == Budget(host=7)
