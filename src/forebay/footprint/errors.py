"""What can go wrong while a footprint is learned or loaded."""

from forebay.errors import ForebayError


class FootprintError(ForebayError, ValueError):
    """A footprint that cannot be learned, predicted or loaded; the message says why and what to do."""


class RunError(FootprintError):
    """A sample that failed by itself: the function raised, or the command said so."""


class CutError(FootprintError):
    """A function whose results on blocks of an array are not that on the whole."""


class FootprintWarning(UserWarning):
    """Something about a function that makes its footprint less certain than usual."""
