"""What a job names, as it is read: every key of a model, of the geometry, of data in SEG-Y and of a wavelet."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.wave.emulator import GPP, Emulator
from tests.wave.job.jobs import job_text

from forebay.errors import WaveError
from forebay.wave.earth.builtin import make
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import AcousticModel, DensityModel, ElasticModel, VTIModel
from forebay.wave.earth.smoothing import smooth
from forebay.wave.earth.tilted import TTIModel
from forebay.wave.files.formats import write_field
from forebay.wave.files.segy.dialect import FOOT, Dialect, HeaderWord
from forebay.wave.job import inputs, parse, wavelets
from forebay.wave.survey.geometry import geometry_of
from forebay.wave.survey.line import Line
from forebay.wave.survey.wavelet import ricker
from forebay.wave.visco.model import ViscoModel

VELOCITY = np.linspace(1500, 3000, 48, dtype=np.float32).reshape(6, 8)
FILE = 'velocity = "v.npy"\nspacing = 10'
GRID = Grid((6, 8), 10.0)


@pytest.fixture
def job(tmp_path):
    """Return a job of tables, beside files of a velocity."""
    np.save(tmp_path / "v.npy", VELOCITY)
    return lambda **tables: parse(job_text(**{"model": FILE, "memory": "", **tables}), tmp_path)


class TestOfTheModel:
    """What waves travel through, built in or in files."""

    @pytest.mark.parametrize(
        ("keys", "options"),
        [
            ("dims = 2", {"dims": 2}),
            ("shape = [12, 16]", {"shape": (12, 16)}),
            ("shape = [12, 16]\nseed = 3", {"shape": (12, 16), "seed": 3}),
            ("shape = [6, 7, 8]", {"shape": (6, 7, 8)}),
        ],
    )
    def test_a_built_in_one_is_that_of_its_keys(self, job, keys, options):
        grid, media = inputs.media_of(job(model=f'name = "layers"\n{keys}'))
        made = make("layers", **options)
        assert np.array_equal(media["model"]["velocity"], made.values) and media["true"]["velocity"].any()
        assert (grid.shape, grid.spacing, grid.origin) == (made.values.shape, made.spacing, made.origin)
        assert not grid.free_surface and grid.absorb == 20

    def test_a_size_is_small_unless_told(self, job, monkeypatch):
        asked = []
        real = make
        monkeypatch.setattr(inputs, "make", lambda name, **how: asked.append(how) or real("layers", shape=(6, 8)))
        for keys in ("", 'size = "full"\nseed = 7\ndims = 3'):
            inputs.media_of(job(model=f'name = "salt"\n{keys}'))
        assert asked == [
            {"size": "small", "dims": None, "shape": None, "seed": 0},
            {"size": "full", "dims": 3, "shape": None, "seed": 7},
        ]

    @pytest.mark.parametrize(
        ("keys", "spacing", "origin"),
        [
            ("spacing = 10", (10.0, 10.0), (0.0, 0.0)),
            ("spacing = [10, 20]\norigin = [5, -3]", (10.0, 20.0), (5.0, -3.0)),
        ],
    )
    def test_a_file_lies_where_its_keys_say(self, job, keys, spacing, origin):
        physics = "free_surface = true\nabsorb = 7"
        grid, media = inputs.media_of(job(model=f'velocity = "v.npy"\n{keys}', physics=physics))
        assert (grid.shape, grid.spacing, grid.origin) == ((6, 8), spacing, origin)
        assert (grid.free_surface, grid.absorb) == (True, 7)
        assert media.keys() == {"model", "true"} and media["model"].keys() == {"velocity"}
        assert np.array_equal(media["model"]["velocity"], VELOCITY) and media["model"]["velocity"].dtype == np.float32

    @pytest.mark.parametrize(
        ("shape", "keys"),
        [
            ((6, 8), "spacing = [10, 10, 10]"),
            ((6, 8), "spacing = 10\norigin = [0, 0, 0]"),
            ((6, 8, 4), "spacing = [10, 10]"),
            ((6, 8, 4), "spacing = 10\norigin = [0, 0]"),
            ((48,), "spacing = 10"),
            ((2, 2, 2, 6), "spacing = 10"),
        ],
    )
    def test_each_axis_has_a_spacing_and_an_origin(self, job, tmp_path, shape, keys):
        told = job(model=f'velocity = "v.npy"\n{keys}')
        np.save(tmp_path / "v.npy", np.full(shape, 2000.0))
        with pytest.raises(WaveError, match=r"model\.spacing, model\.origin: expected a number for each axis"):
            inputs.media_of(told)

    @pytest.mark.parametrize(
        ("keys", "spacing", "origin"),
        [("", (5.0, 4.0), (1.0, 2.0)), ("spacing = 10\norigin = [3, 3]", (10.0, 10.0), (3.0, 3.0))],
    )
    def test_a_file_that_tells_where_it_lies_is_believed_unless_told(self, job, tmp_path, keys, spacing, origin):
        pytest.importorskip("zarr")
        write_field(tmp_path / "v.zarr", VELOCITY, (5.0, 4.0), (1.0, 2.0))
        grid, _ = inputs.media_of(job(model=f'velocity = "v.zarr"\n{keys}'))
        assert (grid.spacing, grid.origin) == (spacing, origin)

    @pytest.mark.parametrize("told", [None, (None, 4.0)])
    def test_a_file_that_tells_half_of_it_does_not_do(self, job, monkeypatch, told):
        monkeypatch.setattr(
            inputs, "read_field", lambda *about: SimpleNamespace(values=VELOCITY, spacing=told, origin=None)
        )
        with pytest.raises(
            WaveError, match=r"model\.spacing: expected metres along each axis, which .*v\.npy does not"
        ):
            inputs.media_of(job(model='velocity = "v.npy"'))

    def test_shots_are_modelled_in_a_true_model_that_is_not_smoothed(self, job, tmp_path):
        np.save(tmp_path / "t.npy", VELOCITY + 100)
        _, media = inputs.media_of(job(model=FILE + '\ntrue = "t.npy"\nsmooth = 25.0'))
        assert np.array_equal(media["true"]["velocity"], VELOCITY + 100)
        assert np.array_equal(media["model"]["velocity"], smooth(VELOCITY, (10.0, 10.0), 25.0, slowness=True))
        np.save(tmp_path / "d.npy", np.zeros((2, 126, 4)))
        _, media = inputs.media_of(job(data='file = "d.npy"\ndt = 0.008'))
        assert media.keys() == {"model"}

    def test_fields_of_an_elastic_model_are_taken_from_files(self, job, tmp_path):
        vs, density = np.full((6, 8), 900.0), np.full((6, 8), 2100.0)
        vs[0] = 0
        np.save(tmp_path / "s.npy", vs)
        np.save(tmp_path / "d.npy", density)
        elastic = 'kind = "elastic"\nvs = "s.npy"\ndensity = "d.npy"'
        grid, media = inputs.media_of(job(physics=elastic, model=FILE + "\nsmooth = 25.0"))
        assert np.array_equal(media["true"]["vs"], vs) and np.array_equal(media["true"]["density"], density)
        wanted = smooth(vs.astype(np.float32), (10.0, 10.0), 25.0, slowness=False)
        assert np.array_equal(media["model"]["vs"][1:], wanted[1:]) and not media["model"]["vs"][0].any()
        medium = inputs.medium_of(job(physics=elastic), media["true"], grid)
        assert isinstance(medium, ElasticModel) and np.array_equal(medium.vp, VELOCITY)
        assert np.array_equal(medium.rho, density)
        assert isinstance(inputs.medium_of(job(), media["true"], grid), AcousticModel)
        np.save(tmp_path / "s.npy", vs[:5])
        with pytest.raises(WaveError, match=r"vs: expected the shape \(6, 8\) of the velocity; .* has \(5, 8\)"):
            inputs.media_of(job(physics=elastic))

    def test_fields_of_other_media_are_taken_from_files(self, job, tmp_path):
        fields = {
            name: np.full((6, 8), value)
            for name, value in {"density": 2100.0, "epsilon": 0.2, "delta": 0.1, "tilt": 0.4}.items()
        }
        for name, values in fields.items():
            np.save(tmp_path / f"{name}.npy", values)
        fluid, shale = 'kind = "density"', 'kind = "vti"\nepsilon = "epsilon.npy"\ndelta = "delta.npy"'
        tilted = shale.replace("vti", "tti") + '\ntilt = "tilt.npy"'
        for physics, kind, names in (
            (fluid, DensityModel, []),
            (fluid + '\ndensity = "density.npy"', DensityModel, ["density"]),
            (shale, VTIModel, ["epsilon", "delta"]),
            (tilted, TTIModel, ["epsilon", "delta", "tilt"]),
        ):
            grid, media = inputs.media_of(job(physics=physics, model=FILE + "\nsmooth = 25.0"))
            medium = inputs.medium_of(job(physics=physics), media["true"], grid)
            assert isinstance(medium, kind) and np.array_equal(medium.velocity, VELOCITY)
            assert all(np.allclose(getattr(medium, name), fields[name]) for name in names)
            smoothed = inputs.medium_of(job(physics=physics), media["model"], grid)
            assert np.array_equal(smoothed.velocity, smooth(VELOCITY, (10.0, 10.0), 25.0, slowness=True))
        _, media = inputs.media_of(job(physics=fluid))
        water = VELOCITY <= 1510
        assert np.all(media["model"]["density"][water] == 1000) and "vs" not in media["model"]
        assert np.allclose(media["model"]["density"][~water], 310 * VELOCITY[~water] ** 0.25)

    def test_quality_factors_become_attenuation_and_infinite_ones_none(self, job, tmp_path):
        clay = 'kind = "visco"\nq = "q.npy"\nq_frequency = 12.0'
        q = np.linspace(20.0, 80.0, 48).reshape(6, 8)
        q[0] = np.inf
        np.save(tmp_path / "q.npy", q)
        grid, media = inputs.media_of(job(physics=clay, model=FILE))
        medium = inputs.medium_of(job(physics=clay), media["true"], grid)
        assert isinstance(medium, ViscoModel) and medium.frequency == 12.0
        assert np.allclose(medium.attenuation, 1 / q, rtol=1e-6) and not medium.attenuation[0].any()
        for wrong in (0.0, -40.0, np.nan, 1 + 1e-9):
            q[2, 3] = wrong
            np.save(tmp_path / "q.npy", q)
            with pytest.raises(WaveError, match="q: expected quality factors above 1, infinite where nothing is lost"):
                inputs.media_of(job(physics=clay, model=FILE))
        np.save(tmp_path / "q.npy", q[:0])
        with pytest.raises(WaveError, match=r"q: expected the shape \(6, 8\) of the velocity; .*q.npy has \(0, 8\)"):
            inputs.media_of(job(physics=clay, model=FILE))

    def test_feet_are_those_of_velocities_in_seg_y(self, job, tmp_path):
        read = inputs._in_metres
        feet = job(model='velocity = "v.segy"\nunits = "feet"')
        assert read(feet, tmp_path / "v.SEGY", VELOCITY) == pytest.approx(VELOCITY * FOOT)
        assert read(feet, tmp_path / "v.npy", VELOCITY) is VELOCITY
        assert read(job(model='velocity = "v.segy"'), tmp_path / "v.segy", VELOCITY) is VELOCITY


class TestOfTheDialect:
    """How SEG-Y is read, where the job says so and where it does not."""

    def test_of_data(self, job):
        assert inputs.data_dialect(job(data='file = "d.sgy"')) == Dialect("data", {})
        keys = 'byte_order = "little"\nsample_format = "ieee"\nunits = "feet"\nidentification = 7\ndt = 0.002\n'
        keys += 'group = "field record"\ntolerance = 3.0\ndatum = 12.0\nline = [[1, 2], [3, 4]]\n'
        keys += 'headers = {source_x = 181, source_y = [185, "float32"]}'
        told = job(data=f'file = "d.sgy"\n{keys}')
        wanted = Dialect(
            "data",
            {"source_x": HeaderWord(181, "int32"), "source_y": HeaderWord(185, "float32")},
            units=FOOT,
            byte_order="little",
            sample_format="ieee",
            dt=0.002,
            group="field record",
            tolerance=3.0,
            datum=12.0,
            line=Line((1.0, 2.0), (3.0, 4.0)),
            identification=(7,),
        )
        assert inputs.data_dialect(told) == wanted and inputs.data_dialect(told, 0.004).dt == 0.004

    def test_of_a_model(self, job):
        assert inputs.model_dialect(job(model='velocity = "v.sgy"')) == Dialect("model", {})
        keys = 'byte_order = "big"\nsample_format = "ibm"\nunits = "metres"\nspacing = [5, 10]\nheaders = {inline = 9}'
        assert inputs.model_dialect(job(model=f'velocity = "v.sgy"\n{keys}')) == Dialect(
            "model", {"inline": HeaderWord(9, "int32")}, 1.0, "big", "ibm", 5.0
        )

    @pytest.mark.parametrize(
        ("model", "ndim", "is_read"),
        [
            ('velocity = "v.sgy"', 2, True),
            ('velocity = "v.SU"', 2, True),
            ('velocity = "v.npy"\nspacing = 10', 2, False),
            ('velocity = "v.sgy"', 3, False),
            ('velocity = "v.sgy"\norigin = [0, 0]', 2, False),
            ('name = "layers"', 2, False),
        ],
    )
    def test_an_oblique_section_is_one_in_seg_y_that_is_placed_nowhere_else(
        self, job, monkeypatch, model, ndim, is_read
    ):
        monkeypatch.setattr(inputs, "read_line", lambda path, dialect: (path.stem, dialect.table))
        found = inputs._section(job(model=model), SimpleNamespace(ndim=ndim))
        assert found == (("v", "model") if is_read else None)


class TestOfTheGeometry:
    """Where shots are, as a file of data, files of positions or numbers tell."""

    RECEIVERS = tuple((10.0, 10.0 * number) for number in range(6))
    GEOMETRY = geometry_of([(10.0, 20.0), (10.0, 30.0)], RECEIVERS)

    @pytest.fixture
    def acquired(self, job, monkeypatch):
        """Return what is found of data whose file tells some of it."""

        def acquired(data="", geometry="", grid=GRID, **told):
            usual = {"geometry": self.GEOMETRY, "dt": 0.004, "samples": 101, "count": 2, "traces": 6, "notes": ["a"]}
            looked = []
            monkeypatch.setattr(
                inputs, "look_at_shots", lambda *about: looked.append(about) or SimpleNamespace(**usual | told)
            )
            wanted = job(data=f'file = "d.zarr"\n{data}', geometry=geometry)
            found = inputs.acquisition_of(wanted, grid)
            assert looked[0][:2] == (wanted.data.file, grid.ndim) and looked[0][3] is None
            return found

        return acquired

    def test_a_file_tells_all_of_it_unless_told(self, acquired):
        found = acquired()
        assert (found.dt, found.samples, found.notes) == (0.004, 101, ["a"])
        assert np.array_equal(found.geometry.receivers, self.GEOMETRY.receivers)
        assert acquired("dt = 0.002").dt == 0.002
        with pytest.raises(WaveError, match=r"data\.dt: expected seconds between samples, which .*d\.zarr does not"):
            acquired(dt=None)
        with pytest.raises(WaveError, match="tells where its shots are: leave them out"):
            acquired(geometry="shots = 2")

    def test_a_far_receiver_is_left_out(self, acquired):
        found = acquired(geometry="max_offset = 20.0").geometry
        assert [len(found.receivers_of(shot)) for shot in (0, 1)] == [5, 5]

    @pytest.mark.parametrize(("outside", "drawn"), [(0.09, True), (0.11, False)])
    def test_what_headers_have_rounded_out_of_the_model_is_drawn_into_it(self, job, monkeypatch, outside, drawn):
        places = geometry_of([(10.0, 20.0), (-outside, 30.0)], [(10.0, 70.0 + outside), *self.RECEIVERS])
        told = SimpleNamespace(geometry=places, dt=0.004, samples=11, count=2, traces=7, notes=[])
        monkeypatch.setattr(inputs, "look_at_shots", lambda *about: told)
        found = inputs.acquisition_of(job(data='file = "d.sgy"', geometry=""), GRID)
        assert found.geometry.sources[1, 0] == (0.0 if drawn else -outside)
        assert len(found.notes) == (0 if drawn else 1) and len(found.geometry.receivers) == (14 if drawn else 12)

    def test_receivers_beside_the_model_are_left_out_and_told(self, job, monkeypatch):
        far = geometry_of([(10.0, 20.0), (10.0, 30.0)], [*self.RECEIVERS, (10.0, 70.05), (10.0, 71.0), (10.0, 500.0)])
        told = SimpleNamespace(geometry=far, dt=0.004, samples=11, count=2, traces=9, notes=["a"])
        monkeypatch.setattr(inputs, "look_at_shots", lambda *about: told)
        found = inputs.acquisition_of(job(data='file = "d.sgy"', geometry=""), GRID)
        assert found.geometry.receivers_of(1)[:, 1].tolist() == [0, 10, 20, 30, 40, 50, 70]
        assert found.notes == ["a", "4 of 18 traces are dropped, whose receivers lie beside the model"]
        assert told.notes == ["a"]
        mostly = geometry_of([(10.0, 20.0)], [(10.0, 20.0), (10.0, 500.0), (10.0, 600.0)])
        told.geometry = mostly
        found = inputs.acquisition_of(job(data='file = "d.sgy"', geometry=""), GRID)
        assert len(found.geometry.receivers) == 3 and found.notes == ["a"]  # which is refused later
        volume = geometry_of([(10.0, 20.0, 5.0)], [(10.0, 20.0, 5.0), (10.0, 500.0, 5.0)])
        told.geometry = volume
        assert inputs.acquisition_of(job(data='file = "d.sgy"', geometry=""), GRID).geometry is volume

    @pytest.mark.parametrize(("count", "traces", "fits"), [(2, 6, True), (3, 6, False), (2, 5, False)])
    def test_files_of_positions_fit_the_data(self, job, tmp_path, monkeypatch, count, traces, fits):
        np.save(tmp_path / "s.npy", self.GEOMETRY.sources)
        np.save(tmp_path / "r.npy", self.RECEIVERS)
        told = SimpleNamespace(geometry=None, dt=0.004, samples=11, count=count, traces=traces, notes=[])
        monkeypatch.setattr(inputs, "look_at_shots", lambda *about: told)
        geometry = 'sources = "s.npy"\nreceivers = "r.npy"'
        wanted = job(data='file = "d.npy"', geometry=geometry)
        if fits:
            found = inputs.acquisition_of(wanted, GRID).geometry
            assert np.array_equal(found.sources, self.GEOMETRY.sources) and len(found.receivers) == 12
        else:
            with pytest.raises(
                WaveError, match=f"2 shots of 6 receivers, as geometry says; it has {count} of {traces}"
            ):
                inputs.acquisition_of(wanted, GRID)
        with pytest.raises(WaveError, match=r"geometry\.sources, geometry\.receivers: expected, since .* does not"):
            inputs.acquisition_of(job(data='file = "d.npy"', geometry=""), GRID)
        modelled = inputs.acquisition_of(job(geometry=geometry), GRID)
        assert (modelled.geometry.count, modelled.samples, modelled.dt) == (2, 126, 0.008)


class TestOfTheWavelet:
    """What the sources send: made or read, resampled, and with its time zero at that of the data."""

    ACQUISITION = SimpleNamespace(dt=0.5, samples=6, geometry=SimpleNamespace(count=2))

    @pytest.fixture
    def sent(self, job, tmp_path):
        """Return the wavelet of a file of rows, as data of six samples every half second have it."""

        def sent(rows, keys=""):
            np.save(tmp_path / "w.npy", np.asarray(rows))
            return wavelets.wavelet_of(job(wavelet=f'file = "w.npy"\n{keys}'), self.ACQUISITION)

        return sent

    def test_one_for_all_or_one_for_each(self, sent):
        values = [0.0, 1.0, 0.5, 0.0, 0.0, 0.0]
        found = sent(values)
        assert found.values == pytest.approx(values, abs=1e-12) and found.lead == 0
        each = sent([values, [0.0, 0.0, 2.0, 0.0, 0.0, 0.0]])
        assert each.values[:, 0] == pytest.approx(values, abs=1e-12) and each.values[2, 1] == pytest.approx(2.0)
        for wrong in ([values] * 3, [[values, values]]):
            with pytest.raises(WaveError, match="one value per sample, or a row of them for each of the 2 shots"):
                sent(wrong)

    def test_a_time_zero_for_each_shifts_each(self, sent):
        values = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        found = sent(values, "time_zero = [0.5, 1.0]")
        assert found.lead == 2 and found.values.shape == (8, 2)
        assert [int(column.argmax()) for column in found.values.T] == [3, 2]
        assert sent(values, "time_zero = 1.0").values.shape == (8,)

    @pytest.mark.parametrize(
        ("keys", "refused"),
        [
            ("time_zero = 3.5", None),
            ("time_zero = 4.0", "less than the wavelet's 4 s, not 4"),
            ("time_zero = [0.5, 4.0]", "less than the wavelet's 4 s, not 4"),
            ("dt = 0.0625", None),
            ("dt = 0.05", "as long as a sample of the data, 0.5 s, or longer, not 0.4 s"),
            ("dt = 8\ntime_zero = 29.5", None),
            ("dt = 8\ntime_zero = 30", "less than 10 times the data's length, 30 s, not 30"),
            ("time_zero = [1.0]", None),
            ("time_zero = [1.0, 1.0, 1.0]", "a number, or one for each of the 2 shots, not 3"),
        ],
    )
    def test_times_lie_within_the_wavelet_and_ten_times_the_data(self, sent, monkeypatch, keys, refused):
        monkeypatch.setattr(wavelets, "Resampler", lambda *about, start: lambda row: np.eye(8, 1))
        if refused is None:
            assert sent(np.ones(8), keys).values[0].any()
        else:
            with pytest.raises(WaveError, match=refused):
                sent(np.ones(8), keys)

    @pytest.mark.parametrize(
        ("rows", "refused"),
        [
            ([0.0, 1.0, 0.0, 0.0, 0.0, 0.0], None),
            ([0.0] * 6, "sends something; this one is zero"),
            ([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 6], "sends something; that of shot 1 is zero"),
            ([0.0, 1.0, 0.0, 0.0, 0.0, 0.0999], None),
            ([0.0, 1.0, 0.0, 0.0, 0.0, 0.2], r"this one still has 20\.0% of its largest value there"),
            ([0.0, -4.0, 0.0, 0.0, 0.0, 1.0], r"this one still has 25\.0% of its largest value there"),
            ([[0.0, 9.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0, -0.5]], r"that of shot 1 still has 50\.0%"),
        ],
    )
    def test_it_sends_something_and_is_over_with_the_data(self, sent, rows, refused):
        if refused is None:
            assert np.abs(sent(rows).values).max() == pytest.approx(1.0)
        else:
            with pytest.raises(WaveError, match=refused):
                sent(rows)

    @pytest.mark.parametrize(
        ("delay", "middle", "lead"), [("", 0.3, 0), ("delay = 0.1", 0.1, 20), ("delay = 0.5", 0.5, 0)]
    )
    def test_a_made_one_has_its_middle_where_it_is_told(self, job, delay, middle, lead):
        acquisition = SimpleNamespace(dt=0.01, samples=100)
        found = wavelets.wavelet_of(job(wavelet=f"frequency = 5.0\n{delay}"), acquisition)
        assert found.lead == lead
        assert np.array_equal(found.values, ricker(5.0, 0.01, lead + 100, middle + lead * 0.01))


def no_room(shape, dtype):
    """Make no array."""
    raise MemoryError


class Full(Emulator):
    """A GPU without any room."""

    arrays = SimpleNamespace(asarray=np.asarray, ascontiguousarray=np.ascontiguousarray, empty=no_room)


@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
@pytest.mark.parametrize("physics", ["", 'kind = "elastic"'])
def test_a_device_makes_and_smooths_what_the_host_would(job, physics):
    told = job(model='name = "salt"\nshape = [24, 40, 40]\nsmooth = 900.0', physics=physics)
    _, expected = inputs.media_of(told)
    device = Emulator()
    for lent, tolerance in ((device, 1e-7), (Full(), 0.0)):
        _, media = inputs.media_of(told, lent)
        for medium, fields in expected.items():
            assert list(media[medium]) == list(fields)
            for name, values in fields.items():
                assert type(media[medium][name]) is np.ndarray and media[medium][name].dtype == values.dtype
                assert np.abs(media[medium][name] - values).max() <= tolerance * np.abs(values).max()
    assert device.launches[:6] == ["fill", "widen", *["average"] * 3, "narrow"]
