"""Files of traces, SEG-Y of revisions 0 to 2 and SU: where what lies in them, and in which order of bytes.

What cannot be told safely is refused, with the key of the job that says it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.files.segy.dialect import Dialect

TEXT, BINARY, HEADER = 3200, 400, 240
"""bytes of a text header, the binary header and a trace header"""
IBM, IEEE = 1, 5
SAMPLES = {IBM: "u4", 2: "i4", 3: "i2", IEEE: "f4", 6: "f8", 8: "i1", 9: "i8", 10: "u4", 11: "u2", 12: "u8", 16: "u1"}
"""the types of samples by the standard's codes for them"""
NAMED = {"ibm": IBM, "int32": 2, "int16": 3, "ieee": IEEE, "float64": 6, "int8": 8}
"""the codes that a job names"""
ORDERS = {"big": ">", "little": "<"}
BLOCK = 1024
"""traces that are converted at once"""
LENGTH_AT = 114
"""Where in a trace header the number of its samples is."""
LOOKED_AT, TELLING = 64, 1024
"""traces by which formats of floats are told apart, and different values of which that takes"""
MOST_EXTENSIONS, MOST_TEXTS = 100, 1000
"""trace headers of one trace, and text headers of a file"""
END_OF_TEXT = "((SEG: EndText))"
SECOND_REVISION = 2
"""Before the first one, the bytes that tell the revision were anyone's, blanks for instance."""


@dataclass(frozen=True, eq=False)
class TraceFile:
    """The traces of a file: their headers and samples are read where they are used."""

    path: Path
    dialect: Dialect
    order: str
    """of bytes, as NumPy writes it: ">" or "<" """
    format: int
    """the standard's code for samples"""
    interval: float
    """between samples, in the thousandths or millionths of the binary header; 0 where it does not tell"""
    system: int
    """the standard's code for the unit of lengths: 1 for metres, 2 for feet, 0 where the file does not tell"""
    traces: NDArray[Any]
    """a header and the samples of each, as they lie in the file"""

    @property
    def count(self) -> int:
        """Number of traces."""
        return len(self.traces)

    @property
    def samples(self) -> int:
        """Samples of a trace."""
        return int(self.traces.dtype["samples"].shape[0])

    @property
    def is_su(self) -> bool:
        """Whether the file is one of Seismic Unix."""
        return _is_su(self.path)

    def numbers(self, which: Any = slice(None)) -> NDArray[np.int64]:
        """Return the numbers of all traces, or of some, as people count them: from 1."""
        return np.asarray(np.arange(1, self.count + 1)[which])

    def word(self, name: str, numbers: Any = slice(None)) -> NDArray[np.float64]:
        """Read a word of the headers of all traces, or of some; 0 where they have none."""
        byte, kind = self.dialect.word(name, self.is_su)
        if not byte:
            return np.asarray(np.zeros(self.count)[numbers])
        width = np.dtype(kind).itemsize
        if byte + width > HEADER + 1:
            raise WaveError(
                f"{self.dialect.key(f'headers.{name}')}: expected {width} bytes within {HEADER}, not {byte}"
            )
        raw = np.ascontiguousarray(self.traces["header"][numbers, byte - 1 : byte - 1 + width])
        stored = np.dtype(self.order + np.dtype(kind).str[1:])
        with np.errstate(invalid="ignore"):  # what is no number is seen where it is used
            return np.asarray(raw.view(stored)[:, 0], np.float64)

    def read(self, numbers: NDArray[Any]) -> NDArray[np.float32]:
        """Read the samples of some traces: one row per sample, one column per trace."""
        values = np.empty((self.samples, len(numbers)), np.float32)
        for start in range(0, len(numbers), BLOCK):
            raw = self.traces["samples"][numbers[start : start + BLOCK]]
            with np.errstate(over="ignore"):  # what float32 cannot hold is not finite, and seen as such
                values[:, start : start + BLOCK] = (_from_ibm(raw) if self.format == IBM else raw).T
        return values

    def check_lengths(self) -> None:
        """Refuse traces of different lengths whose bytes happen to be a whole number of equal ones."""
        told = np.ascontiguousarray(self.traces["header"][:, LENGTH_AT : LENGTH_AT + 2]).view(f"{self.order}u2")
        if (told == told[0]).all():
            return
        trace, start = self.traces.dtype, getattr(self.traces, "offset", 0)
        header, width = trace["header"].shape[0], trace["samples"].base.itemsize
        if _walks_to_the_end(self.path, start, header, width, self.order):
            raise WaveError(f"{self.dialect.key('file')}: {self.path}: its traces differ in length: cut or pad them")

    def check_floats(self, numbers: NDArray[Any]) -> None:
        """Refuse floats of some traces that are told as IBM's and are IEEE's, or the other way round.

        The first four bits of IBM's fractions are not all 0. Those of IEEE's floats are, once in sixteen times. Who
        names the format is believed.
        """
        if self.dialect.sample_format or self.format not in (IBM, IEEE):
            return
        some = numbers[np.linspace(0, len(numbers) - 1, min(len(numbers), LOOKED_AT)).astype(int)]
        bits = np.unique(self.traces["samples"][some].view(f"{self.order}u4"))
        bits = bits[bits & 0xFFFFFF != 0]
        small = np.count_nonzero(bits & 0xF00000 == 0)
        told, seen = ("IBM", "IEEE") if self.format == IBM else ("IEEE", "IBM")
        if len(bits) >= TELLING and (small > len(bits) / 64 if told == "IBM" else not small):
            raise WaveError(
                f"{self.dialect.key('sample_format')}: expected 'ibm' or 'ieee', since {self.path} tells samples as "
                f"floats of {told}, and their bits look like those of {seen}"
            )


def _from_ibm(raw: NDArray[Any]) -> NDArray[np.float64]:
    """Convert IBM's floats: a sign, seven bits of a power of 16 and a fraction of 24 bits."""
    bits = raw.astype(np.int64)
    sign, power, fraction = 1 - 2 * (bits >> 31), (bits >> 24) & 0x7F, bits & 0xFFFFFF
    return np.asarray(np.ldexp((sign * fraction).astype(np.float64), 4 * (power - 64) - 24))


def open_traces(path: Path, dialect: Dialect) -> TraceFile:
    """Find the traces of a file."""
    size = path.stat().st_size
    if _is_su(path):
        return _open_su(path, dialect, size)
    with path.open("rb") as file:
        file.seek(TEXT)
        binary = _Binary(file.read(BINARY), ">")
    if size < TEXT + BINARY:
        raise WaveError(f"{dialect.key('file')}: {path} cannot be read as SEG-Y: its {size} bytes hold no headers")
    binary = _Binary(binary.bytes, _order(binary.bytes, path, dialect))
    code = NAMED[dialect.sample_format] if dialect.sample_format else binary.number(25, "i2")
    if code not in SAMPLES:
        raise WaveError(
            f"{dialect.key('sample_format')}: expected, since {path} tells the format {code} for its samples, which is "
            f"none that is read: one of {', '.join(NAMED)}"
        )
    modern = binary.number(301, "u1") == SECOND_REVISION
    start = _first_trace(path, binary, modern, size)
    more = binary.number(307, "i4") if modern else 0
    header = HEADER * (1 + (more if 0 < more <= MOST_EXTENSIONS else 0))
    if size <= start:
        raise WaveError(f"{dialect.key('file')}: {path} has headers and no traces: name the file that has them")
    lengths = [binary.number(69, "i4") if modern else 0, binary.number(21, "u2")]
    lengths.append(_samples_of_first(path, start, binary.order))
    kind = binary.order + SAMPLES[code]
    width = np.dtype(kind).itemsize
    fitting = [samples for samples in lengths if samples > 0 and (size - start) % (header + samples * width) == 0]
    if not fitting:
        told = " or ".join(str(samples) for samples in dict.fromkeys(lengths) if samples > 0) or "no"
        raise WaveError(
            f"{dialect.key('file', 'sample_format')}: {path} has {size - start} bytes of traces, which are not a whole "
            f"number of traces of {told} samples of {width} bytes: it was cut off, copy it again, or its traces differ "
            "in length, cut or pad them, or its samples have another format"
        )
    samples = fitting[0]
    interval = binary.number(73, "f8") if modern else 0.0
    if not 0 < interval < np.inf:
        interval = binary.number(17, "u2")
    traces = _mapped(path, start, (size - start) // (header + samples * width), header, samples, kind)
    return TraceFile(path, dialect, binary.order, code, interval, binary.number(55, "i2"), traces)


def _open_su(path: Path, dialect: Dialect, size: int) -> TraceFile:
    """Find the traces of a file of Seismic Unix: headers and floats, in the order of bytes of some machine."""
    fitting = {}
    for name, order in ORDERS.items():
        samples = _samples_of_first(path, 0, order)
        if samples > 0 and size % (HEADER + 4 * samples) == 0 and dialect.byte_order in (None, name):
            fitting[order] = samples
    if not fitting:
        raise WaveError(
            f"{dialect.key('file', 'byte_order')}: {path} cannot be read as SU: its {size} bytes are not a whole "
            "number of traces as long as the first header tells"
        )
    if len(fitting) > 1:
        raise WaveError(
            f"{dialect.key('byte_order')}: expected 'big' or 'little', since {path} can be read in both orders"
        )
    ((order, samples),) = fitting.items()
    traces = _mapped(path, 0, size // (HEADER + 4 * samples), HEADER, samples, f"{order}f4")
    return TraceFile(path, dialect, order, IEEE, 0.0, 0, traces)


def _mapped(path: Path, start: int, count: int, header: int, samples: int, kind: str) -> NDArray[Any]:
    trace = np.dtype([("header", "u1", (header,)), ("samples", kind, (samples,))])
    return np.memmap(path, trace, "r", start, (count,))


def _is_su(path: Path) -> bool:
    return path.suffix.lower() == ".su"


def _samples_of_first(path: Path, start: int, order: str) -> int:
    """Return how many samples the first trace header tells; 0 where there is none."""
    with path.open("rb") as file:
        file.seek(start)
        header = file.read(HEADER)
    return int(np.frombuffer(header, f"{order}u2", 1, LENGTH_AT)[0]) if len(header) == HEADER else 0


def _walks_to_the_end(path: Path, start: int, header: int, width: int, order: str) -> bool:
    """Tell whether traces as long as their own headers say fill a file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while start < size:
            file.seek(start + LENGTH_AT)
            samples = int.from_bytes(file.read(2), "big" if order == ">" else "little")
            if not samples:
                return False
            start += header + samples * width
    return start == size


@dataclass(frozen=True)
class _Binary:
    """The binary header: its numbers by their first byte, counted from 1."""

    bytes: bytes
    order: str

    def number(self, byte: int, kind: str) -> Any:
        return np.frombuffer(self.bytes, self.order + kind, 1, byte - 1)[0].item()


def _order(binary: bytes, path: Path, dialect: Dialect) -> str:
    """Return the order of bytes: the one in which the format of samples is a code of the standard."""
    if dialect.byte_order:
        return ORDERS[dialect.byte_order]
    for order in ORDERS.values():
        if _Binary(binary, order).number(25, "i2") in range(1, 17):
            return order
    if dialect.sample_format is None:
        raise WaveError(
            f"{dialect.key('sample_format', 'byte_order')}: expected, since the binary header of {path} tells no "
            "format of samples, unless it is no SEG-Y at all"
        )
    return ORDERS["big"]


def _first_trace(path: Path, binary: _Binary, modern: bool, size: int) -> int:
    """Return the byte at which the first trace begins, behind all text headers that a file of a size can have."""
    told = binary.number(321, "u8") if modern else 0
    if told > TEXT + BINARY:
        return int(told)
    extended = binary.number(305, "i2")
    if extended >= 0:
        start = int(TEXT + BINARY + TEXT * extended)
        return start if start <= size else TEXT + BINARY
    ends = [END_OF_TEXT.encode(code) for code in ("ascii", "cp037")]
    with path.open("rb") as file:
        file.seek(TEXT + BINARY)
        for _ in range(MOST_TEXTS):
            text = file.read(TEXT)
            if any(end in text for end in ends):
                return file.tell()
    return TEXT + BINARY
