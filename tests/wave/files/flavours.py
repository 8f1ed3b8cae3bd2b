"""One survey in the flavours in which SEG-Y comes, each written byte by byte: what migrates, and what is refused."""

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from forebay import wave
from forebay.wave.survey.geometry import spread

DT, SAMPLES, QUIET = 0.008, 251, 6
SHOTS, APART = 6, 50.0
SAME_BOTH_WAYS = 257
"""samples, in two equal bytes"""
FEET, DEAD, PRESSURE, VERTICAL = 2, 2, 11, 12
WORDS = {
    "record": (9, "i4"),
    "channel": (13, "i4"),
    "identification": (29, "i2"),
    "receiver_elevation": (41, "i4"),
    "source_elevation": (45, "i4"),
    "source_depth": (49, "i4"),
    "elevation_scalar": (69, "i2"),
    "coordinate_scalar": (71, "i2"),
    "source_x": (73, "i4"),
    "source_y": (77, "i4"),
    "receiver_x": (81, "i4"),
    "receiver_y": (85, "i4"),
    "coordinate_units": (89, "i2"),
    "delay": (109, "i2"),
    "samples": (115, "u2"),
    "interval": (117, "u2"),
    "time_scalar": (215, "i2"),
}
BINARY = {"interval": 17, "samples": 21, "format": 25, "system": 55, "texts": 305}


@cache
def reference():
    """Make the shots: their geometry, and samples by receivers of each, a direct wave and one from a flat floor."""
    grid = wave.Grid((48, 96), (50.0, 50.0))
    geometry = spread(grid, SHOTS, source_depth=50.0, receiver_depth=60.0, receiver_spacing=APART)
    time = np.arange(SAMPLES)[:, None] * DT
    fade = np.sin(np.pi / 2 * np.clip((time[-1] - time) / 0.4, 0, 1)) ** 2
    data = []
    for shot in range(SHOTS):
        offset = np.abs(geometry.receivers_of(shot)[:, 1] - geometry.sources[shot, 1])
        gather = np.zeros((SAMPLES, len(offset)))
        for depth, strength in ((10.0, 1.0), (700.0, 0.7)):
            squared = (np.pi * 2.5 * (time - 0.6 - np.hypot(2 * depth, offset) / 1600.0)) ** 2
            gather += strength * (1 - 2 * squared) * np.exp(-squared)
        data.append(gather * fade)
    gathers = np.array(data, np.float32)
    gathers[:, :QUIET] = 0
    return geometry, gathers


@dataclass
class Draft:
    """A file as it will be written: words of trace headers and samples, a row for each trace."""

    words: dict
    samples: np.ndarray
    binary: dict = field(default_factory=lambda: {"interval": round(DT * 1e6), "format": 5, "system": 1})
    raw: dict = field(default_factory=dict)
    """numbers of the binary header by their byte and type"""
    places: dict = field(default_factory=dict)
    """bytes and types of words that are elsewhere"""
    order: str = ">"
    suffix: str = ".sgy"
    texts: tuple = ()
    extensions: int = 0
    """trace headers of each trace beside the first"""
    cut: int = 0
    """bytes that are missing at the end"""
    longer: int = 0
    """traces of those at the end that are joined to one, whose header tells so"""

    def write(self, folder):
        """Write it, and return its path."""
        path = folder / f"shots{self.suffix}"
        with path.open("wb") as file:
            if self.suffix != ".su":
                file.write("C 1 A SURVEY".ljust(3200).encode("cp037") + self._binary() + b"".join(self.texts))
            file.write(self._traces())
        if self.cut:
            with path.open("rb+") as file:
                file.truncate(path.stat().st_size - self.cut)
        return path

    def _binary(self):
        header = np.zeros(400, np.uint8)
        numbers = {"samples": self.samples.shape[1], **self.binary}
        raw = {(BINARY[name], "u2"): number % 2**16 for name, number in numbers.items()} | self.raw
        for (byte, kind), number in raw.items():
            value = np.array([number], self.order + kind).view(np.uint8)
            header[byte - 1 : byte - 1 + len(value)] = value
        return header.tobytes()

    def _traces(self):
        count = len(self.samples)
        header = np.zeros((count, 240 * (1 + self.extensions)), np.uint8)
        for name, values in self.words.items():
            byte, kind = self.places.get(name, WORDS[name])
            stored = np.broadcast_to(values, count)
            stored = np.ascontiguousarray(stored if kind.startswith("f") else np.rint(stored), self.order + kind)
            header[:, byte - 1 : byte - 1 + stored.itemsize] = stored[:, None].view(np.uint8)
        traces = np.hstack([header, self._stored().view(np.uint8)])
        if self.longer:
            length = (self.longer * traces.shape[1] - 240) // 4
            traces[-self.longer, 114:116] = np.array([length], self.order + "u2").view(np.uint8)
            traces[1 - self.longer :, :240] = 7
        return traces.tobytes()

    def _stored(self):
        code = self.binary["format"]
        if code == 1:
            return np.ascontiguousarray(to_ibm(self.samples), f"{self.order}u4")
        kind = {0: "f4", 2: "i4", 3: "i2", 5: "f4", 6: "f8"}[code]
        return np.ascontiguousarray(self.samples, self.order + kind)

    def take(self, rows):
        """Keep or repeat some traces, in an order."""
        self.words = {
            name: np.broadcast_to(values, len(self.samples))[rows].copy() for name, values in self.words.items()
        }
        self.samples = self.samples[rows]


def to_ibm(values):
    """Encode as IBM's floats."""
    sizes = np.abs(values.astype(float))
    power = np.ceil(np.log2(np.maximum(sizes, 1e-70)) / 4 + 1e-9).astype(int)
    fraction = np.rint(sizes * 2.0 ** (24 - 4 * power)).astype(np.int64)
    bits = (np.signbit(values).astype(np.int64) << 31) | ((power + 64) << 24) | fraction
    return np.where(values == 0, 0, bits)


def plain():
    """Draft the reference survey as the standard says: centimetres, big-endian, shot after shot."""
    geometry, data = reference()
    shot = np.repeat(np.arange(SHOTS), np.diff(geometry.starts))
    source, receiver = geometry.sources[shot], geometry.receivers
    words = {
        "record": shot + 101,
        "channel": np.arange(len(shot)) - geometry.starts[shot] + 1,
        "identification": 1,
        "receiver_elevation": -100 * receiver[:, 0],
        "source_elevation": 0,
        "source_depth": 100 * source[:, 0],
        "elevation_scalar": -100,
        "coordinate_scalar": -100,
        "source_x": 100 * source[:, 1],
        "source_y": 0,
        "receiver_x": 100 * receiver[:, 1],
        "receiver_y": 0,
        "coordinate_units": 1,
        "delay": 0,
        "samples": SAMPLES,
        "interval": round(DT * 1e6),
        "time_scalar": 0,
    }
    return Draft(words, np.concatenate([gather.T for gather in data]))


COORDINATES = ("source_x", "source_y", "receiver_x", "receiver_y")
DEPTHS = ("source_depth", "receiver_elevation", "source_elevation")


def scale(draft, factor, names=COORDINATES):
    """Multiply lengths of headers."""
    for name in names:
        draft.words[name] = np.asarray(draft.words[name]) * factor


def jitter(draft, metres):
    """Tell sources in each trace a little elsewhere."""
    rng = np.random.default_rng(5)
    draft.words["source_x"] = draft.words["source_x"] + 100 * rng.uniform(-metres, metres, len(draft.samples))


def later(draft, samples):
    """Cut the first samples of traces off."""
    draft.samples = draft.samples[:, samples:]
    draft.words["samples"] = draft.samples.shape[1]


def turn(draft, begin, end):
    """Lay the line obliquely."""
    length = np.hypot(end[0] - begin[0], end[1] - begin[1])
    for what in ("source", "receiver"):
        along = draft.words[f"{what}_x"] / 100
        for axis, start, stop in zip("xy", begin, end, strict=True):
            draft.words[f"{what}_{axis}"] = np.rint(100 * (start + along * (stop - start) / length))


def ibm(draft):
    draft.binary["format"] = 1


def whole_numbers(draft, code, largest):
    draft.binary["format"] = code
    draft.samples = np.rint(draft.samples * (largest / np.abs(draft.samples).max()))


def int32(draft):
    whole_numbers(draft, 2, 2e9)


def int16(draft):
    whole_numbers(draft, 3, 32767)


def little_endian(draft):
    draft.order = "<"


def su(draft):
    draft.suffix = ".su"


def su_of_another_machine(draft):
    draft.suffix, draft.order = ".su", "<"


def feet(draft):
    draft.binary["system"] = FEET
    scale(draft, 1 / 0.3048, (*COORDINATES, *DEPTHS))


def decimetres_without_a_scalar(draft):
    scale(draft, 0.1, (*COORDINATES, *DEPTHS))
    draft.words |= {"coordinate_scalar": 1, "elevation_scalar": 0}


def other_bytes(draft):
    draft.places = {name: (181 + 4 * n, "i4") for n, name in enumerate(COORDINATES)}


def floats_in_headers(draft):
    draft.places = {name: (197 + 4 * n, "f4") for n, name in enumerate(COORDINATES)}
    del draft.words["time_scalar"]
    scale(draft, 0.01)


def centimetres_of_jitter(draft):
    jitter(draft, 0.03)


def metres_of_jitter(draft):
    jitter(draft, 2.0)


def delay(draft):
    later(draft, 5)
    draft.words["delay"] = 5 * DT * 1000


def delay_of_each_shot(draft):
    shot = np.unique(draft.words["record"], return_inverse=True)[1]
    draft.samples = np.stack(
        [np.concatenate([trace[skip:], np.zeros(skip)]) for trace, skip in zip(draft.samples, shot, strict=True)]
    )
    draft.words["delay"] = shot * DT * 1000


def delay_of_half_a_sample(draft):
    spectrum = np.fft.rfft(draft.samples, 2 * SAMPLES)
    moved = np.fft.irfft(spectrum * np.exp(2j * np.pi * 2.5 * np.fft.rfftfreq(2 * SAMPLES)), 2 * SAMPLES)
    draft.samples = moved[:, :SAMPLES]
    draft.words |= {"delay": 200, "time_scalar": -10}


def recorded_before_the_shot(draft):
    draft.samples = np.hstack([np.full((len(draft.samples), 4), 0.0), draft.samples])
    draft.words |= {"delay": -4 * DT * 1000, "samples": SAMPLES + 4}


def oblique(draft):
    turn(draft, (450000.0, 6700000.0), (453000.0, 6704000.0))


def along_y(draft):
    turn(draft, (700.0, 0.0), (700.0, 1000.0))


def crooked(draft):
    draft.words["receiver_y"] = 2000 * np.sin(np.arange(len(draft.samples)))


def dead_traces(draft):
    rows = [7, 110]
    draft.take(np.arange(len(draft.samples)))
    draft.words["interval"][7] = 1
    draft.words["identification"][rows] = DEAD
    draft.samples[rows] = 1e6


def auxiliary_traces(draft):
    draft.take(np.concatenate([np.arange(len(draft.samples)), [0, 1, 2]]))
    draft.words["identification"][-3:] = [4, 6, 9]
    draft.words["coordinate_units"][-3:], draft.words["interval"][-3:] = 77, 4000
    draft.words["receiver_x"][-3:] = 0
    draft.samples[-3:] = 1e6


def not_finite(draft):
    draft.samples[[7, 110], 50] = np.nan, np.inf


def elevation(draft):
    draft.words["source_elevation"] = 100 * 812.0
    draft.words["receiver_elevation"] = draft.words["receiver_elevation"] + 100 * 812.0


def extended_texts(draft):
    draft.texts, draft.binary["texts"] = (b"\x40" * 3200,) * 3, 3


def texts_of_unknown_number(draft):
    draft.texts, draft.binary["texts"] = (b"\x40" * 3200, b"((SEG: EndText))".ljust(3200)), -1


def receiver_gathers(draft):
    draft.take(np.lexsort((draft.words["record"], draft.words["channel"])))


def interval_in_traces_alone(draft):
    draft.binary["interval"] = 0


def samples_in_traces_alone(draft):
    draft.binary["samples"] = 0


def samples_told_wrongly_in_traces(draft):
    draft.words["samples"] = 1500


def degrees(draft):
    draft.words["coordinate_units"] = 3


def second_revision(draft):
    draft.extensions, draft.texts, draft.binary["format"] = 1, (b"\x40" * 3200,), 6
    draft.raw = {(69, "i4"): SAMPLES, (73, "f8"): DT * 1e6, (301, "u1"): 2, (307, "i4"): 1, (321, "u8"): 6800}
    draft.binary |= {"interval": 0, "samples": 0}


def fractions_of_the_interval(draft):
    draft.raw = {(73, "f8"): DT * 1e6 + 0.25, (301, "u1"): 2}


def blanks_before_the_first_revision(draft):
    draft.raw = {(byte, "u1"): 0x40 for byte in range(61, 401)}


def ieee_told_as_ibm(draft):
    draft.raw = {(25, "u2"): 1}


def ibm_told_as_ieee(draft):
    draft.binary["format"], draft.raw = 1, {(25, "u2"): 5}


def depths_in_place_of_elevations(draft):
    draft.words["receiver_elevation"] = -draft.words["receiver_elevation"]


def no_format(draft):
    draft.binary["format"] = 0


def two_intervals(draft):
    draft.binary["interval"] = 4000


def interval_in_milliseconds(draft):
    draft.binary["interval"] = draft.words["interval"] = 8


def no_coordinates(draft):
    for name in COORDINATES:
        draft.words[name] = 0


def coordinates_of_few_traces_missing(draft):
    draft.take(np.arange(len(draft.samples)))
    for name in COORDINATES:
        draft.words[name][100:110] = 0


def receivers_of_few_traces_missing(draft):
    draft.take(np.arange(len(draft.samples)))
    draft.words["receiver_x"][100:110] = 0


def sources_of_few_traces_missing(draft):
    draft.take(np.arange(len(draft.samples)))
    draft.words["source_x"][100:110] = 0


def no_traces(draft):
    draft.take(np.arange(0))


def cut_off(draft):
    draft.cut = 100


def one_longer_trace(draft):
    draft.longer = 3


def components(draft):
    draft.take(np.repeat(np.arange(len(draft.samples)), 2))
    draft.words["identification"] = np.tile([PRESSURE, VERTICAL], len(draft.samples) // 2)
    draft.samples[1::2] *= -3


def records_of_two_days(draft):
    draft.words["record"] = draft.words["record"] % 2


def repeated_shots(draft):
    draft.take(np.tile(np.arange(len(draft.samples)), 2))
    draft.words["record"][len(draft.samples) // 2 :] += 1000


def absurd_delay(draft):
    draft.words |= {"delay": 30000, "time_scalar": 10}


def in_either_order(draft):
    draft.suffix, draft.words["samples"] = ".su", SAME_BOTH_WAYS
    draft.samples = np.hstack([draft.samples, np.zeros((len(draft.samples), SAME_BOTH_WAYS - SAMPLES))])


HEADERS = "headers = {{source_x = {}, source_y = {}, receiver_x = {}, receiver_y = {}}}"
LINE = "line = [[450000.0, 6700000.0], [453000.0, 6704000.0]]"
FLAVOURS = {
    plain: "",
    ibm: "",
    int32: "",
    int16: "",
    little_endian: "",
    su: "",
    su_of_another_machine: "",
    feet: "",
    decimetres_without_a_scalar: "units = 0.1",
    other_bytes: HEADERS.format(181, 185, 189, 193),
    floats_in_headers: HEADERS.format(*(f'[{197 + 4 * n}, "float32"]' for n in range(4))),
    centimetres_of_jitter: "",
    metres_of_jitter: 'group = "field record"\ntolerance = 3.0',
    delay: "",
    delay_of_each_shot: "",
    delay_of_half_a_sample: "",
    recorded_before_the_shot: "",
    oblique: LINE,
    along_y: "",
    crooked: "",
    dead_traces: "",
    auxiliary_traces: "",
    not_finite: "",
    elevation: "datum = 812.0",
    extended_texts: "",
    texts_of_unknown_number: "",
    receiver_gathers: "",
    interval_in_traces_alone: "",
    samples_in_traces_alone: "",
    samples_told_wrongly_in_traces: "",
    degrees: 'units = "metres"',
    second_revision: "",
    fractions_of_the_interval: "",
    blanks_before_the_first_revision: "",
    ieee_told_as_ibm: 'sample_format = "ieee"',
    ibm_told_as_ieee: 'sample_format = "ibm"',
    depths_in_place_of_elevations: "headers = {receiver_elevation = 0, receiver_depth = 41}",
    no_format: 'sample_format = "ieee"',
    two_intervals: "dt = 0.008",
    interval_in_milliseconds: "dt = 0.008",
    components: "identification = 11",
    absurd_delay: "headers = {delay = 0}",
    in_either_order: 'byte_order = "big"',
}
"""What migrates, and the keys that it needs in the table `data`."""
REFUSED = {
    decimetres_without_a_scalar: "data.headers, data.units",
    other_bytes: "data.headers.source_x",
    metres_of_jitter: "data.tolerance, data.group",
    oblique: "data.line",
    elevation: "data.datum",
    degrees: "data.units",
    ieee_told_as_ibm: "data.sample_format",
    ibm_told_as_ieee: "data.sample_format",
    depths_in_place_of_elevations: "data.headers = {receiver_elevation = 0, receiver_depth = 41}",
    no_format: "data.sample_format",
    two_intervals: "data.dt",
    interval_in_milliseconds: "data.dt",
    components: "data.identification",
    absurd_delay: "data.headers.delay",
    in_either_order: "data.byte_order",
    no_coordinates: "data.headers.source_x, data.headers.source_y",
    coordinates_of_few_traces_missing: "data.headers, data.identification: 10 of the 576 traces",
    receivers_of_few_traces_missing: "data.headers.receiver_x",
    sources_of_few_traces_missing: "data.headers.source_x",
    no_traces: "data.file",
    cut_off: "data.file, data.sample_format",
    one_longer_trace: "data.file: ",
}
"""What is refused without such keys, and what the refusal names."""


def name_of(flavour):
    """Return how a flavour is called in the names of tests."""
    return getattr(flavour, "__name__", "")


def drafted(flavour):
    """Draft the survey in a flavour."""
    draft = plain()
    if flavour is not plain:
        flavour(draft)
    return draft
