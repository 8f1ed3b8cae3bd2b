"""Inversion: it finds what is hidden, keeps to what it was told, and goes on where it was interrupted."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from time import perf_counter

import numpy as np
import pytest
from tests.wave import inversion_setups
from tests.wave.elastic_setups import smooth_rock, surface_shot

from forebay.errors import WaveError
from forebay.wave import AcousticModel, Grid, gradient, invert, simulate
from forebay.wave.gradient import least_squares
from forebay.wave.inversion.unknowns import Unknowns, arrays_of, bounds_of

BOUNDS = (1700.0, inversion_setups.FASTEST)
OPTIONS = {"bounds": BOUNDS, "budget": "64MB", "progress": False}


@pytest.fixture(scope="module")
def shots():
    return inversion_setups.shots()


def hidden(found):
    """Return how much faster the box is found to be than what is around it."""
    velocity = found.model.velocity
    return float(velocity[9:14, 9:16].mean() - velocity[:, :5].mean())


def test_it_finds_what_is_hidden_and_tells_how_it_came_there(shots):
    seen = []
    watch = lambda model, iteration, misfit: seen.append((iteration, misfit))  # noqa: E731
    found = invert(shots, inversion_setups.start(), iterations=[3, 3], frequencies=(12.0, None), watch=watch, **OPTIONS)
    assert 75 < hidden(found) < 250 and all(stage[-1] < 0.4 * stage[0] for stage in found.misfits)
    assert seen == [(number, value) for number, value in enumerate(found.misfits[0][1:] + found.misfits[1][1:], 1)]
    assert all(later <= sooner for stage in found.misfits for sooner, later in pairwise(stage))
    last = sum(gradient(shot, replace(found.model, max_vel=BOUNDS[1]), budget="64MB").misfit for shot in shots)
    assert last == pytest.approx(found.misfits[-1][-1], rel=1e-3)
    assert found.evaluations < 12 and "6 iterations" in repr(found) and len(repr(found)) < 200
    assert found.model.max_vel is None and found.model.velocity.dtype == np.float64


@pytest.mark.slow
@pytest.mark.parametrize(
    "misfit", ["transport", *(pytest.param(name, marks=pytest.mark.slow) for name in ("correlation", "envelope"))]
)
def test_other_misfits_find_it_too(shots, misfit):
    found = invert(shots, inversion_setups.start(), iterations=4, misfit=misfit, **OPTIONS)
    assert found.misfits[0][-1] < 0.6 * found.misfits[0][0] and hidden(found) > 20


@pytest.mark.slow
def test_what_is_known_stays_as_it_is_and_nothing_leaves_its_bounds(shots):
    water = np.zeros(inversion_setups.GRID.shape, bool)
    water[:4] = True
    for smooth in (0.0, 15.0):
        options = OPTIONS | {"bounds": (1990.0, 2060.0)}
        found = invert(shots, inversion_setups.start(), iterations=4, fixed=water, smooth=smooth, **options)
        velocity = found.model.velocity
        assert (velocity[:4] == 2000.0).all() and (velocity[4:] != 2000.0).any()
        assert velocity.min() >= 1990.0 and velocity.max() == 2060.0
        assert found.misfits[0][-1] < 0.9 * found.misfits[0][0]


@pytest.mark.slow
def test_shots_that_advance_together_give_the_same_bits(shots):
    apart, together = (
        invert(shots[:2], inversion_setups.start(), iterations=1, together=count, **OPTIONS) for count in (1, 2)
    )
    assert np.array_equal(apart.model.velocity, together.model.velocity) and apart.misfits == together.misfits


@pytest.mark.slow
def test_sources_are_found_from_the_data(shots):
    late = np.roll(shots[0].wavelet, 4) * -0.5
    late[:4] = 0
    wrong = [replace(shot, wavelet=late) for shot in shots]
    lost = invert(wrong, inversion_setups.start(), iterations=1, **OPTIONS)
    found = invert(wrong, inversion_setups.start(), iterations=4, estimate_source=True, **OPTIONS)
    each = invert(wrong, inversion_setups.start(), iterations=1, estimate_source="each", **OPTIONS)
    assert found.misfits[0][0] < 0.1 * lost.misfits[0][0] and hidden(found) > 50
    for shot in (*found.shots, *each.shots):
        assert np.abs(shot.wavelet - shots[0].wavelet).max() < 0.15 * np.abs(shots[0].wavelet).max()
    assert each.misfits[0][0] < found.misfits[0][0]


@pytest.mark.slow
def test_all_three_arrays_of_an_elastic_model_are_found_and_fluids_stay_fluids():
    model = smooth_rock()
    water = np.where(np.arange(model.grid.shape[0])[:, None] < 4, 0.0, model.vs)
    model = replace(model, vs=water)
    shot = surface_shot(model, samples=120)
    fast = float(1.3 * model.vp.max())
    harder = replace(model, vp=1.03 * model.vp, vs=1.02 * model.vs, rho=1.01 * model.rho, max_vel=fast * (1 + 1e-6))
    shot = shot.with_data(simulate(shot, harder))
    found = invert(shot, model, iterations=2, budget="256MB", bounds={"vp": (1000.0, fast)}, progress=False)
    assert found.misfits[0][-1] < 0.7 * found.misfits[0][0]
    assert (found.model.vs[:4] == 0).all()
    assert all((getattr(found.model, name) != getattr(model, name)).any() for name in ("vp", "vs", "rho"))


@pytest.mark.parametrize("smooth", [0.0, 25.0])
def test_derivatives_with_respect_to_the_vector_are_exact(smooth):
    rng = np.random.default_rng(1)
    model = AcousticModel(2000.0 + 100.0 * rng.random((9, 11)), Grid((9, 11), 10.0), max_vel=2400.0)
    fixed, light = rng.random((9, 11)) < 0.2, rng.random((9, 11)) ** 4
    unknowns = Unknowns(model, {"velocity": (1990.0, 2150.0)}, fixed, smooth, light)
    towards = rng.standard_normal((9, 11))
    unknowns.scale({"velocity": towards})
    vector, change = rng.standard_normal(unknowns.size), rng.standard_normal(unknowns.size)

    def value(size):
        return float(np.vdot(unknowns.model_at(vector + size * change).velocity, towards))

    size = 1e-7
    slope = (value(size) - value(-size)) / (2 * size)
    assert np.vdot(unknowns.slope(vector, {"velocity": towards}), change) == pytest.approx(slope, rel=1e-5)
    limits = unknowns.bounds()
    if smooth:
        assert limits is None
    else:
        for limit, bound in zip(limits, (1990.0, 2150.0), strict=True):
            assert unknowns.model_at(limit).velocity[~fixed] == pytest.approx(bound, rel=1e-12)


def test_what_is_a_fluid_everywhere_is_no_unknown():
    rock = smooth_rock()
    model = replace(rock, vs=np.zeros_like(rock.vs), max_vel=4000.0)
    unknowns = Unknowns(model, bounds_of(model, None, 500.0), None, 0.0, None)
    owed = {name: np.ones(rock.grid.shape) for name in ("vp", "vs", "rho")}
    unit = unknowns.scale(owed)
    low, high = unknowns.bounds()
    changed = unknowns.model_at(np.clip(-unknowns.slope(np.zeros(unknowns.size), owed) / unit, low, high))
    assert (changed.vs == 0).all() and (changed.vp < model.vp).all() and np.isfinite([low, high]).all()


def test_the_first_step_changes_no_value_much():
    model = inversion_setups.start()
    unknowns = Unknowns(model, {"velocity": BOUNDS}, None, 0.0, None)
    owed = {"velocity": np.random.default_rng(0).standard_normal(model.grid.shape)}
    unit = unknowns.scale(owed)
    slope = unknowns.slope(np.zeros(unknowns.size), owed) / unit
    assert np.linalg.norm(slope) == pytest.approx(1)
    assert np.abs(unknowns.model_at(-slope).velocity / 2000.0 - 1).max() == pytest.approx(0.02)


def test_bounds_that_are_not_given_hold_the_model_and_what_the_grid_resolves():
    model = AcousticModel(np.linspace(1500.0, 3000.0, 22 * 26).reshape(22, 26), inversion_setups.GRID)
    assert bounds_of(model, None, 400.0) == {"velocity": (750.0, 4500.0)}
    assert bounds_of(model, None, 900.0) == {"velocity": (900.0, 4500.0)}
    assert bounds_of(model, (1000, 5000), 900.0) == {"velocity": (1000.0, 5000.0)}
    assert bounds_of(model, {"velocity": (1000, 5000)}, 900.0) == {"velocity": (1000.0, 5000.0)}


class StoppedError(Exception):
    pass


class Counted:
    """Least squares that give up, or not."""

    def __init__(self, until=None):
        self.calls, self.until = 0, until

    def __call__(self, data, observed):
        if self.calls == self.until:
            raise StoppedError
        self.calls += 1
        return least_squares(data, observed)


def resumed(shots, directory, until=None, **changed):
    misfit = Counted(until)
    options = OPTIONS | {"iterations": [1, 1], "frequencies": (15.0, None), "resume": directory} | changed
    return invert(shots[:2], inversion_setups.start(), misfit=misfit, **options), misfit.calls


def test_it_goes_on_where_it_was_interrupted_with_the_same_bits(shots, tmp_path):
    whole, calls = resumed(shots, None)
    lost = 0
    for until in (1, 2, 3):
        with pytest.raises(StoppedError):
            resumed(shots, tmp_path / "inversion", until)
        lost += until
    found, left = resumed(shots, tmp_path / "inversion", budget="8MB")
    assert lost + left == calls  # no shot was computed twice
    assert np.array_equal(found.model.velocity, whole.model.velocity) and found.misfits == whole.misfits
    again, none = resumed(shots, tmp_path / "inversion")
    assert none == 0 and np.array_equal(again.model.velocity, whole.model.velocity) and again.notes == ()
    assert sorted(path.name for path in (tmp_path / "inversion").glob("*.npz")) == [
        "inversion.npz",
        "stage-0.npz",
        "stage-1.npz",
    ]


def test_what_is_damaged_is_told_and_computed_again(shots, tmp_path):
    whole, _ = resumed(shots, tmp_path)
    path = tmp_path / "stage-1.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found, calls = resumed(shots, tmp_path)
    assert calls > 0 and np.array_equal(found.model.velocity, whole.model.velocity)
    assert len(found.notes) == 1 and "stage-1.npz is damaged: its checksum does not match" in found.notes[0]


@pytest.mark.parametrize("changed", [{"iterations": [1, 2]}, {"smooth": 5.0}, {"bounds": (1700.0, 2500.0)}])
def test_a_directory_of_another_inversion_is_refused(shots, tmp_path, changed):
    with pytest.raises(StoppedError):
        resumed(shots, tmp_path, 1)
    with pytest.raises(WaveError, match="does not hold this inversion"):
        resumed(shots, tmp_path, **changed)
    with pytest.raises(WaveError, match="does not hold this inversion"):
        resumed([shot.with_data(0.5 * shot.data) for shot in shots], tmp_path)


SURVIVOR = """
import sys
from pathlib import Path
import numpy as np
from tests.wave import inversion_setups
from forebay.wave import invert
found = invert(inversion_setups.shots(), inversion_setups.start(), iterations=4, bounds=(1700.0, 2600.0),
               budget="64MB", resume=sys.argv[1], progress=False)
np.save(sys.argv[2], found.model.velocity)
"""


@pytest.mark.slow
def test_processes_that_are_killed_leave_the_same_bits(tmp_path):
    def begin(directory, saved):
        return subprocess.Popen([sys.executable, "-c", SURVIVOR, directory, saved])

    alone, killed = tmp_path / "alone.npy", tmp_path / "killed.npy"
    started = perf_counter()
    assert begin(tmp_path / "alone", alone).wait(300) == 0
    seconds, rng, kills = perf_counter() - started, np.random.default_rng(0), 0
    for _ in range(10):
        process = begin(tmp_path / "killed", killed)
        try:
            process.wait(float(rng.uniform(0.4, 0.95)) * seconds)
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    if not killed.exists():
        assert begin(tmp_path / "killed", killed).wait(300) == 0
    assert kills and np.array_equal(np.load(alone), np.load(killed))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"iterations": 0}, "iterations=0 for 1 stages: give a number above 0"),
        ({"iterations": [1, 2]}, r"iterations=\[1, 2\] for 1 stages"),
        ({"frequencies": ()}, "no frequencies"),
        ({"frequencies": (400.0,)}, "frequencies up to 400 Hz of samples every 0.0016 s"),
        ({"misfit": "cosine"}, "misfit='cosine': take one of 'least squares'"),
        ({"bounds": (2100.0, 2600.0)}, "where the model has 2000 to 2000: give bounds that hold the model"),
        ({"bounds": (100.0, 2600.0)}, "velocity of 100 m/s makes waves that are too short"),
        ({"bounds": {"vs": (100.0, 2600.0)}}, "bounds of 'vs': this model has 'velocity'"),
        ({"fixed": np.zeros((2, 3), bool)}, r"fixed of shape \(2, 3\) for a model of shape \(22, 26\)"),
        ({"smooth": -1.0}, "smooth=-1.0: give metres"),
        ({"together": 0}, "together=0"),
        ({"estimate_source": "all"}, "estimate_source='all': give True, False or 'each'"),
    ],
)
def test_what_no_inversion_can_go_by_is_refused_before_it_begins(shots, options, said):
    with pytest.raises(WaveError, match=said):
        invert(shots, inversion_setups.start(), **OPTIONS | options)


def test_shots_without_data_and_misfits_that_are_no_number_are_refused(shots):
    with pytest.raises(WaveError, match="without data"):
        invert([replace(shots[0], data=None)], inversion_setups.start(), **OPTIONS)
    with pytest.raises(WaveError, match="the misfit of shot 0 is nan: look at its data"):
        invert(shots, inversion_setups.start(), misfit=lambda data, observed: (float("nan"), data), **OPTIONS)


def test_arrays_of_a_model_are_copies_in_double_precision():
    model = AcousticModel(np.full((22, 26), 2000.0, np.float32), inversion_setups.GRID)
    values = arrays_of(model)["velocity"]
    assert values.dtype == np.float64 and not np.shares_memory(values, model.velocity)


@pytest.mark.slow
def test_mini_batches_are_drawn_and_drawn_again_alike(shots, tmp_path):
    options = OPTIONS | {"iterations": 5, "mini_batch": 2, "seed": 3}
    found = invert(shots, inversion_setups.start(), **options)
    assert [len(misfits) - 1 for misfits in found.misfits] == [3, 2] and hidden(found) > 20
    assert all(misfits[-1] < misfits[0] for misfits in found.misfits)
    kept = invert(shots, inversion_setups.start(), resume=tmp_path, **options)
    again = invert(shots, inversion_setups.start(), resume=tmp_path, **options)
    for other in (kept, again):
        assert np.array_equal(other.model.velocity, found.model.velocity) and other.misfits == found.misfits
    other = invert(shots, inversion_setups.start(), **options | {"seed": 4})
    assert not np.array_equal(other.model.velocity, found.model.velocity)
    with pytest.raises(WaveError, match="mini_batch=4 of 3 shots: give 1 to 3"):
        invert(shots, inversion_setups.start(), **options | {"mini_batch": 4})
