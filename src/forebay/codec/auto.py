"""`auto:1e-4`: all codecs that keep a relative error, for the planner to choose from by what each does to real data."""

from collections.abc import Sequence

from forebay.codec.codec import Codec, get
from forebay.errors import CodecError


def choices(asked: "str | Codec | Sequence[str | Codec] | None") -> tuple[list[Codec], float | None]:
    """Return the codecs that were asked for, and, where `auto` is, the error that all must keep.

    Examples
    --------
    >>> choices("cast:float16")
    ([forebay.codec.get('cast:float16')], None)
    """
    if asked is None:
        return [], None
    if isinstance(asked, str) and asked.strip().partition(":")[0] == "auto":
        return _keeping(asked)
    many = [asked] if isinstance(asked, str | Codec) else asked
    if not isinstance(many, Sequence) or not all(isinstance(codec, str | Codec) for codec in many):
        raise CodecError(f"codec={asked!r}: give the name of a codec, a codec, or a list of them")
    return [get(codec) if isinstance(codec, str) else codec for codec in many], None


def _keeping(asked: str) -> tuple[list[Codec], float]:
    text = asked.partition(":")[2].strip()
    try:
        error = float(text)
    except ValueError:
        error = -1.0
    if not 0 < error < 1:
        raise CodecError(f"codec {asked!r}: say the error relative to the range, as in auto:1e-4")
    codecs = []
    for name in (f"bounded:{text}", f"dense:{text}", f"bitcomp:rel={text}", "lossless"):
        try:
            codecs.append(get(name))
        except CodecError:
            continue  # its library is not installed
    return codecs, error
