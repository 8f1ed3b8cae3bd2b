"""How SEG-Y is to be read: where trace headers keep what, and what a file says wrongly or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from forebay.wave.survey.line import Line

SEGY = (".segy", ".sgy", ".su")
"""how the names of files end"""
FOOT = 0.3048
UNITS = {"metres": 1.0, "feet": FOOT}
"""metres of the units that a job names"""


class HeaderWord(NamedTuple):
    """A number in a trace header: its first byte, counted from 1, or 0 where there is none, and its type."""

    byte: int
    type: str


WORDS = {
    "field_record": HeaderWord(9, "int32"),
    "identification": HeaderWord(29, "int16"),
    "receiver_elevation": HeaderWord(41, "int32"),
    "source_elevation": HeaderWord(45, "int32"),
    "source_depth": HeaderWord(49, "int32"),
    "receiver_depth": HeaderWord(0, "int32"),
    "elevation_scalar": HeaderWord(69, "int16"),
    "coordinate_scalar": HeaderWord(71, "int16"),
    "source_x": HeaderWord(73, "int32"),
    "source_y": HeaderWord(77, "int32"),
    "receiver_x": HeaderWord(81, "int32"),
    "receiver_y": HeaderWord(85, "int32"),
    "coordinate_units": HeaderWord(89, "int16"),
    "delay": HeaderWord(109, "int16"),
    "interval": HeaderWord(117, "uint16"),
    "cdp_x": HeaderWord(181, "int32"),
    "cdp_y": HeaderWord(185, "int32"),
    "inline": HeaderWord(189, "int32"),
    "crossline": HeaderWord(193, "int32"),
    "time_scalar": HeaderWord(215, "int16"),
}
"""Where the standard puts them; the depth of receivers it tells by their elevation alone."""
LAST_OF_SU = 180
"""The last byte of a trace header that SU has as the standard does."""


@dataclass(frozen=True)
class Dialect:
    """How a file is read; each of the keys of a job that say it may be left out, and then headers tell.

    Examples
    --------
    >>> dialect = Dialect(headers={"source_x": HeaderWord(181, "int32")})
    >>> dialect.word("source_x").byte, dialect.word("source_y").byte, dialect.key("units")
    (181, 77, 'data.units')
    """

    table: str = "data"
    """of the job: messages name its keys"""
    headers: Mapping[str, HeaderWord] = field(default_factory=dict)
    """the words of trace headers that are not where the standard has them"""
    units: float | None = None
    """metres of what lengths are told in"""
    byte_order: str | None = None
    """"big" or "little" """
    sample_format: str | None = None
    """one of `forebay.wave.files.segy.layout.NAMED`"""
    dt: float | None = None
    """seconds between samples"""
    group: str = "position"
    """what the traces of a shot have in common: the "position" of its source, or the "field record" """
    tolerance: float = 0.5
    """metres within which a source is where it was"""
    datum: float = 0.0
    """elevation of depth 0, in metres"""
    line: Line | None = None
    """of the section, where the model is one"""
    identification: tuple[int, ...] | None = None
    """the trace identification codes of what is migrated"""

    def word(self, name: str, su: bool = False) -> HeaderWord:
        """Return where trace headers keep a number; SU has nothing of the standard after byte 180."""
        usual = WORDS[name]
        if su and usual.byte > LAST_OF_SU:
            usual = usual._replace(byte=0)
        return self.headers.get(name, usual)

    def key(self, *names: str) -> str:
        """Return keys of the job by their full names; the file of a model is its velocity."""
        own = {"file": "velocity"} if self.table == "model" else {}
        return ", ".join(f"{self.table}.{own.get(name, name)}" for name in names)
