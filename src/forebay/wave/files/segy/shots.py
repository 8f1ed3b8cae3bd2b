"""Shots in SEG-Y and SU: which traces there are, where their sources and receivers were, and when they begin."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError, reading
from forebay.wave.files.segy.dialect import Dialect
from forebay.wave.files.segy.layout import TraceFile, open_traces
from forebay.wave.files.segy.lengths import TIME_SCALARS, factors, interval_of, metres_of_unit, scaled
from forebay.wave.files.segy.sections import on_section
from forebay.wave.survey.gathers import in_order, near_each_other, spreads
from forebay.wave.survey.geometry import Geometry
from forebay.wave.survey.line import Line

DEAD = 2
AUXILIARY = (*range(3, 11), *range(18, 23))
"""Identification codes of what is no record of the ground: time breaks, sweeps, signatures and the like."""
COMPONENTS = range(11, 18)
"""Identification codes that tell what a receiver measures."""
COORDINATES = {"source_x", "source_y", "receiver_x", "receiver_y"}
LONGEST = 100.0
"""seconds that a record may begin after its shot, or before it"""
WHOLE = 1e-3
"""of a sample: what is not told from a whole one"""

Positions = list[NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class SegyShots:
    """The shots of a file."""

    geometry: Geometry
    dt: float
    """seconds between samples"""
    samples: int
    """of a trace, from the moment of the shot on"""
    notes: list[str]
    """what of the file was left out or moved"""


def read_shots(path: Path, ndim: int, dialect: Dialect, section: Line | None = None) -> SegyShots:
    """Read where shots and receivers are, and how traces are sampled.

    The traces of a shot may be anywhere in the file. Depths are those below `Dialect.datum`: of a source its depth
    below the surface, less the surface's elevation; of a receiver its elevation alone, turned round.

    Parameters
    ----------
    path, dialect
        The file, and how it is read.
    ndim
        Of the model.
    section
        Where the model runs, if it is a section that tells, and the dialect does not.
    """
    with reading(path, "SEG-Y", WaveError):
        file = open_traces(path, dialect)
        file.check_lengths()
        kept, notes = _kept(file)
        file.check_floats(kept)
        dt = dialect.dt or interval_of(file, "dt", kept) / 1e6
        sources, receivers = _positions(file, kept)
        _check_told(file, kept, sources, receivers)
        delays = _delays(file, kept) / dt
        samples = file.samples + int(np.ceil(delays.max() - WHOLE))
        if samples < 2:
            raise WaveError(
                f"{dialect.key('file', 'headers.delay')}: {path}: its traces of {file.samples} samples, which begin "
                f"{delays.max() * dt:.6g} s after their shots, leave no record: name the byte that tells the delay"
            )
        if delays.any():
            first, last = delays.min() * dt, delays.max() * dt
            notes.append(f"records begin {_range(first, last, 's')} after their shots: what is before is zero")
        if ndim == 2:
            sources, receivers, moved = on_section(sources, receivers, file, section)
            notes += moved
        geometry = _geometry(file, kept, sources, receivers)
        return SegyShots(geometry, dt, samples, [*notes, *_repeated(geometry)])


def read_traces(path: Path, traces: NDArray[np.int64], dialect: Dialect, samples: int | None) -> NDArray[np.float32]:
    """Read traces by their numbers, from the moment of the shot on: one row per sample, one column per trace."""
    with reading(path, "SEG-Y", WaveError):
        file = open_traces(path, dialect)
        data, delays = file.read(traces), _delays(file, traces)
        if not delays.any() and samples in (None, len(data)):
            return data
        delays /= dialect.dt or interval_of(file, "dt", traces) / 1e6
        return _from_zero(data, delays, samples or file.samples + int(np.ceil(delays.max() - WHOLE)))


def _from_zero(data: NDArray[np.float32], delays: NDArray[np.float64], samples: int) -> NDArray[np.float32]:
    """Put traces that begin some samples after their shot, or before it, where they belong among zeros."""
    moved = np.zeros((samples, data.shape[1]), np.float32)
    for delay in np.unique(delays):
        columns, whole = delays == delay, int(np.floor(delay + WHOLE))
        part = data[:, columns]
        if delay - whole > WHOLE:
            part = _later(part, delay - whole)
        part = part[max(-whole, 0) :][: samples - max(whole, 0)]
        moved[max(whole, 0) : max(whole, 0) + len(part), columns] = part
    return moved


def _later(traces: NDArray[np.float32], fraction: float) -> NDArray[np.float32]:
    """Move traces by a fraction of a sample, within their band; they get one sample more."""
    length = 2 * len(traces)
    turned = np.exp(-2j * np.pi * fraction * np.fft.rfftfreq(length))
    moved = np.fft.irfft(turned[:, None] * np.fft.rfft(traces, length, axis=0), length, axis=0)
    return np.asarray(moved[: len(traces) + 1], np.float32)


def _kept(file: TraceFile) -> tuple[NDArray[np.int64], list[str]]:
    """Return the numbers of the traces that are migrated, and say which are not."""
    codes, dialect = file.word("identification"), file.dialect
    asked = dialect.identification
    notes = []
    if asked is not None:
        kept = np.isin(codes, asked)
        if not kept.all():
            notes.append(f"{(~kept).sum()} of {file.count} traces are dropped, whose identification is another")
    else:
        kept = ~np.isin(codes, (DEAD, *AUXILIARY))
        for what, those in (("dead", codes == DEAD), ("auxiliary", np.isin(codes, AUXILIARY))):
            if those.any():
                notes.append(f"{those.sum()} of {file.count} traces are dropped, which are {what} by their headers")
        if len(several := np.unique(codes[kept & np.isin(codes, COMPONENTS)])) > 1:
            raise WaveError(
                f"{dialect.key('identification')}: expected, since {file.path} has traces of several components: one "
                f"of {', '.join(f'{code:.0f}' for code in several)}"
            )
    if not kept.any():
        found = ", ".join(f"{code:.0f}" for code in np.unique(codes)[:10])
        raise WaveError(
            f"{dialect.key('identification', 'headers.identification')}: {file.path} has no trace to migrate: their "
            f"codes are {found}"
        )
    return np.flatnonzero(kept), notes


def _positions(file: TraceFile, kept: NDArray[np.int64]) -> tuple[Positions, Positions]:
    """Return depth, y and x of sources and receivers, in metres."""
    unit, datum = metres_of_unit(file, kept), file.dialect.datum

    def length(name: str, scalar: str = "coordinate_scalar") -> NDArray[np.float64]:
        values = unit * scaled(file, name, scalar)[kept]
        if not np.isfinite(values).all():
            raise WaveError(
                f"{file.dialect.key(f'headers.{name}')}: {file.path} has values there that are not finite: name the "
                "byte and the type of this word"
            )
        return values

    def height(name: str) -> NDArray[np.float64]:
        return length(name, "elevation_scalar")

    source = [datum + height("source_depth") - height("source_elevation"), length("source_y"), length("source_x")]
    depth = datum + height("receiver_depth") - height("receiver_elevation")
    return source, [depth, length("receiver_y"), length("receiver_x")]


def _check_told(file: TraceFile, kept: NDArray[np.int64], sources: Positions, receivers: Positions) -> None:
    """Refuse a file whose headers do not tell where sources or receivers were; who names their bytes is believed."""
    dialect = file.dialect
    if len(kept) == 1:
        return
    places = np.unique(np.stack(receivers[1:], axis=1), axis=0)
    record = file.word("field_record")[kept]
    records, untold = len(np.unique(record)), []
    if not {"receiver_x", "receiver_y"} & dialect.headers.keys() and not places.any():
        untold.append("receiver")
    # One shot may be at the origin. Several are not, nor does one have several traces at a place.
    alone = records == 1 and len(places) == len(kept)
    if not {"source_x", "source_y"} & dialect.headers.keys() and not np.any(sources[1:]) and not alone:
        untold.insert(0, "source")
    if untold:
        words = [f"headers.{what}_{axis}" for what in untold for axis in "xy"]
        raise WaveError(
            f"{dialect.key(*words)}: expected the bytes that tell them, since {file.path} has {' and '.join(untold)} "
            f"coordinates of 0 in all {len(kept)} traces"
        )
    # A record may have one trace with both at the origin, and in a borehole one for each depth.
    nowhere = ~np.any([*sources[1:], *receivers[1:]], axis=0)
    alike = np.unique(np.stack([record, sources[0], receivers[0]], axis=1)[nowhere], axis=0)
    if not COORDINATES & dialect.headers.keys() and len(alike) < nowhere.sum():
        raise WaveError(
            f"{dialect.key('headers', 'identification')}: {nowhere.sum()} of the {len(kept)} traces of {file.path} "
            f"have no coordinates, the first of them trace {kept[np.argmax(nowhere)] + 1}: mark them as dead there, or "
            "name the bytes that tell source_x, source_y, receiver_x and receiver_y"
        )
    codes = file.word("identification")[kept]
    for what, missing in (
        ("source", _sources_missing(record, sources, dialect.tolerance)),
        ("receiver", _receivers_missing(np.stack([record, codes, *sources, *receivers], axis=1))),
    ):
        words = [f"headers.{what}_{axis}" for axis in "xy"]
        if missing.any() and not {f"{what}_x", f"{what}_y"} & dialect.headers.keys():
            raise WaveError(
                f"{dialect.key(*words)}: {missing.sum()} of the {len(kept)} traces of {file.path} have {what} "
                f"coordinates of 0, the first of them trace {kept[np.argmax(missing)] + 1}, and others of their shot "
                "do not: correct them, mark these traces as dead, or name the bytes that tell them"
            )


def _sources_missing(record: NDArray[np.float64], sources: Positions, tolerance: float) -> NDArray[np.bool_]:
    """Return which traces have sources at the origin, while most others of their field record share one elsewhere.

    Where numbers of records begin anew each day, a record may have a whole shot at the origin and another one.
    """
    places = np.stack(sources[1:], axis=1)
    nowhere, missing = ~places.any(axis=1), np.zeros(len(record), bool)
    if (record == record[0]).all():  # as of files that do not tell it
        return missing
    for number in np.unique(record[nowhere & (record != 0)]):
        there = record == number
        elsewhere, few = places[there & ~nowhere], (there & nowhere).sum()
        if 3 * few < len(elsewhere) and np.ptp(elsewhere, axis=0).max() <= tolerance < np.abs(elsewhere).max():
            missing |= there & nowhere
    return missing


def _receivers_missing(words: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which traces have receivers at the origin, more of them at one place and shot than there are elsewhere.

    Parameters
    ----------
    words
        Of each trace its field record, identification, source and receiver; the last two are x and y of the latter.
    """
    nowhere = np.asarray(~np.any(words[:, -2:], axis=1))
    if not nowhere.any():
        return nowhere
    _, which, counts = np.unique(words, axis=0, return_inverse=True, return_counts=True)
    times = counts[which.ravel()]
    return np.asarray(nowhere & (times > times[~nowhere].max(initial=1)))


def _delays(file: TraceFile, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the seconds from the shot to the first sample of traces."""
    delays = file.word("delay", numbers) / 1000
    if delays.any():
        scalar = file.word("time_scalar", numbers)
        delays *= factors(np.where(np.isin(scalar, TIME_SCALARS), scalar, 1))
        if (wrong := np.abs(delays) > LONGEST).any():
            first = int(np.argmax(wrong))
            raise WaveError(
                f"{file.dialect.key('headers.delay')}: {file.path}: DelayRecordingTime of trace {numbers[first] + 1} "
                f"is {delays[first]:.6g} s: name the byte that tells it, or 0 where none does"
            )
    return np.asarray(delays)


def _geometry(file: TraceFile, kept: NDArray[np.int64], sources: Positions, receivers: Positions) -> Geometry:
    """Sort traces by their shots, which are numbered as they come in the file."""
    dialect, places = file.dialect, np.stack(sources, axis=1)
    by_record = dialect.group == "field record"
    if by_record:
        records = file.word("field_record")[kept]
        shot = in_order(records)
    else:
        shot = near_each_other(places, dialect.tolerance)
    centres, farthest = spreads(places, shot)
    if farthest.max() > dialect.tolerance:
        worst = int(np.argmax(farthest))
        which = f"field record {records[shot == worst][0]:.0f}" if by_record else f"shot {worst}"
        raise WaveError(
            f"{dialect.key('tolerance', 'group', 'headers.field_record')}: the sources of {which} in {file.path} lie "
            f"up to {farthest[worst]:.4g} m from their middle, and {dialect.tolerance:.4g} m are allowed: give another "
            f"tolerance, or group = '{'position' if by_record else 'field record'}'"
        )
    traces = np.argsort(shot, kind="stable")
    starts = np.searchsorted(shot[traces], np.arange(len(centres) + 1))
    return Geometry(centres, np.stack(receivers, axis=1)[traces], starts, kept[traces])


def _repeated(geometry: Geometry) -> list[str]:
    """Say how many traces of a shot lie where another one of it does, to the centimetre."""
    shot = np.repeat(np.arange(geometry.count), np.diff(geometry.starts))
    places = np.column_stack([shot, np.rint(100 * geometry.receivers)])
    in_order_of_place = places[np.lexsort(places.T)]
    again = int((~np.diff(in_order_of_place, axis=0).any(axis=1)).sum())
    note = f"{again} of {len(places)} traces have source and receiver of another one, and all of them are migrated"
    return [f"{note}: data.identification chooses among components"] if again else []


def _range(low: float, high: float, unit: str) -> str:
    return f"{low:.6g} {unit}" if low == high else f"{low:.6g} to {high:.6g} {unit}"
