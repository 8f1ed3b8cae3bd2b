"""Codecs by name: those of Forebay, those that other packages bring as entry points, and those registered here."""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from forebay.errors import CodecError

if TYPE_CHECKING:
    from forebay.codec.codec import Codec

GROUP = "forebay.codecs"
"""The entry points that other packages name their codecs under."""

OURS = {
    "raw": "forebay.codec.raw:Raw",
    "bounded": "forebay.codec.bounded:Bounded",
    "cast": "forebay.codec.cast:Cast",
    "zfp": "forebay.codec.zfp:Zfp",
    "lossless": "forebay.codec.lossless:Lossless",
    "bitcomp": "forebay.codec.bitcomp:Bitcomp",
}

_registered: dict[str, Callable[..., Any]] = {}


def register(name: str, make: Callable[..., "Codec"]) -> None:
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


def names() -> tuple[str, ...]:
    """List the codecs that can be asked for, installed or not."""
    return tuple(sorted({*OURS, *_registered, *(point.name for point in entry_points(group=GROUP))}))


def get(name: str) -> "Codec":
    """Find a codec by its name and parameters.

    Examples
    --------
    >>> get("cast:bfloat16").name
    'cast:bfloat16'
    """
    if not isinstance(name, str):
        raise CodecError(f"a codec is named by a string, such as 'cast:float16', not by {name!r:.80}")
    kind, _, parameters = name.strip().partition(":")
    parts = [part.strip() for part in parameters.split(",") if part.strip()]
    values = [part for part in parts if "=" not in part]
    named = {key.strip(): value.strip() for key, value in (part.split("=", 1) for part in parts if "=" in part)}
    make = _maker(kind)
    try:
        return make(*values, **named)  # type: ignore[no-any-return]
    except TypeError as error:
        raise CodecError(f"codec {name!r}: {kind} does not take these parameters ({error})") from error


def canonical(name: str) -> str:
    """Give the one spelling of a codec's name; a name that nobody knows is left as it is."""
    try:
        return get(name).name
    except CodecError:
        return name


def _maker(kind: str) -> Callable[..., Any]:
    if kind in _registered:
        return _registered[kind]
    if kind in OURS:
        module, _, attribute = OURS[kind].partition(":")
        try:
            return getattr(import_module(module), attribute)  # type: ignore[no-any-return]
        except ImportError as error:
            raise CodecError(f"codec {kind} needs {error.name}: pip install 'forebay[codecs]'") from error
    for point in entry_points(group=GROUP, name=kind):
        return point.load()  # type: ignore[no-any-return]
    raise CodecError(f"no codec is called {kind!r}: there are {', '.join(names())}")
