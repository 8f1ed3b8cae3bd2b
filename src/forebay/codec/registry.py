"""What makes codecs, by name: those of Forebay, those that other packages bring as entry points, and those of users."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from forebay.errors import CodecError, needs

GROUP = "forebay.codecs"
"""The entry points that other packages name their codecs under."""

OURS = {
    "raw": "forebay.codec.raw:Raw",
    "bounded": "forebay.codec.bounded:Bounded",
    "dense": "forebay.codec.dense:Dense",
    "cast": "forebay.codec.cast:Cast",
    "zfp": "forebay.codec.zfp:Zfp",
    "lossless": "forebay.codec.lossless:Lossless",
    "bitcomp": "forebay.codec.nvcomp.bitcomp:Bitcomp",
}

_registered: dict[str, Callable[..., Any]] = {}


def register(name: str, make: Callable[..., Any]) -> None:
    """Let a codec be found by name.

    Parameters
    ----------
    name
        What stands before the colon.
    make
        Makes the codec from what follows it: parts between commas, those like ``key=value`` by keyword, all as text.
    """
    if not name.isidentifier():
        raise CodecError(f"a codec cannot be called {name!r}: take a plain word")
    _registered[name] = make


@cache
def _brought() -> dict[str, EntryPoint]:
    """Return what other packages bring, by name: looking through all packages takes long, and is done once."""
    return {point.name: point for point in entry_points(group=GROUP)}


def names() -> tuple[str, ...]:
    """List the codecs that can be asked for, installed or not."""
    return tuple(sorted({*OURS, *_registered, *_brought()}))


def make(name: str) -> Any:
    """Make a codec from its name and parameters."""
    if not isinstance(name, str):
        raise CodecError(f"a codec is named by a string, such as 'cast:float16', not by {name!r:.80}")
    kind, _, parameters = name.strip().partition(":")
    parts = [part.strip() for part in parameters.split(",") if part.strip()]
    values = [part for part in parts if "=" not in part]
    named = {key.strip(): value.strip() for key, value in (part.split("=", 1) for part in parts if "=" in part)}
    maker = _maker(kind)
    try:
        return maker(*values, **named)
    except TypeError as error:
        raise CodecError(f"codec {name!r}: {kind} does not take these parameters ({error})") from error


def _maker(kind: str) -> Callable[..., Any]:
    if kind in _registered:
        return _registered[kind]
    if kind in OURS:
        module, _, attribute = OURS[kind].partition(":")
        try:
            return getattr(import_module(module), attribute)  # type: ignore[no-any-return]
        except ImportError as error:
            raise CodecError(needs(f"codec {kind}", error.name or "a library", "codecs")) from error
    if kind in _brought():
        return _brought()[kind].load()  # type: ignore[no-any-return]
    raise CodecError(f"no codec is called {kind!r}: there are {', '.join(names())}")
