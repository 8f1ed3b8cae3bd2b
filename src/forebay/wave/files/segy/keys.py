"""The keys of a job that say how SEG-Y and SU are read, where files do not tell, or not rightly."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from forebay.wave.files.segy.dialect import SEGY, UNITS, WORDS


def _known_word(name: str) -> str:
    if name not in WORDS:
        close = get_close_matches(name, WORDS, 1)
        raise ValueError(close[0] if close else f"one of {', '.join(WORDS)}")
    return name


def _word(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value, None)


def _codes(value: Any) -> Any:
    return [value] if isinstance(value, int) else value


def _metres(value: Any) -> Any:
    if isinstance(value, str) and value not in UNITS:
        raise ValueError(f"{', '.join(map(repr, UNITS))}, or how many metres")
    return UNITS[value] if isinstance(value, str) else value


def _differing(line: Any) -> Any:
    if line is not None and line[0] == line[1]:
        raise ValueError("two positions that differ")
    return line


Byte = Annotated[int, Field(ge=0, le=240)]
Word = tuple[Byte, Literal["int16", "uint16", "int32", "float32", "float64"] | None]
Length = Annotated[float, Field(gt=0, lt=1e12)]
Coordinate = Annotated[float, Field(gt=-1e12, lt=1e12)]
Place = tuple[Coordinate, Coordinate]


class SegyKeys(BaseModel):
    """The keys beside any file of traces."""

    headers: dict[Annotated[str, AfterValidator(_known_word)], Annotated[Word, BeforeValidator(_word)]] | None = None
    """first bytes of words in trace headers, from 1, or 0 for none; with a type: [181, "float32"]"""
    byte_order: Literal["big", "little"] | None = None
    sample_format: Literal["ibm", "int32", "int16", "ieee", "float64", "int8"] | None = None

    def check_segy(self, path: Path | None) -> None:
        """Refuse keys that would do nothing, since there is no such file."""
        names = ("units", *ShotKeys.model_fields)
        keys = [name for name in names if getattr(self, name, None) is not None]
        if keys and (path is None or path.suffix.lower() not in SEGY):
            raise ValueError(f"no {', '.join(dict.fromkeys(keys))} without a file of SEG-Y or SU")


class ShotKeys(SegyKeys):
    """The keys beside a file of shots."""

    units: Annotated[Length | None, BeforeValidator(_metres)] = None
    """of lengths: "metres", "feet", or how many metres; unless told, the binary header's"""
    group: Literal["position", "field record"] | None = None
    """what the traces of a shot have in common; unless told, the position of its source"""
    tolerance: Length | None = None
    """metres within which sources are one; unless told, 0.5"""
    datum: Coordinate | None = None
    """elevation of depth 0, in metres; unless told, 0"""
    line: Annotated[tuple[Place, Place] | None, AfterValidator(_differing)] = None
    """positions (x, y), in metres, where the x of a section is 0, and of another point farther along"""
    identification: Annotated[tuple[int, ...], BeforeValidator(_codes)] | None = None
    """trace identification codes of what is migrated; unless told, all but those of dead and auxiliary traces"""
