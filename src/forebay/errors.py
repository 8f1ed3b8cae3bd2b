"""What can go wrong; every message says what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager


class ForebayError(Exception):
    """Any error that Forebay raises on purpose."""


class UnitError(ForebayError, ValueError):
    """An amount of bytes that cannot be read."""


class ScheduleError(ForebayError, ValueError):
    """A schedule that cannot reverse the loop it was asked for."""


class BudgetError(ForebayError, ValueError):
    """A budget in which nothing works; the message names the smallest that does."""


class PlanError(ForebayError, ValueError):
    """A plan that contradicts itself or the problem it is used for."""


class SlowerError(PlanError):
    """No plan is as fast as was asked for."""


class DeviceError(ForebayError, RuntimeError):
    """No GPU, or a call that its driver refused."""


class DiskError(ForebayError, OSError):
    """A directory that cannot hold snapshots."""


class DiskFullError(DiskError):
    """A disk with no room left for a snapshot; those written before are whole."""


class CorruptionError(DiskError):
    """A snapshot that came back from the disk other than it was written."""


class CodecError(ForebayError, ValueError):
    """A codec that does not exist, or an array or room that it cannot work with."""


class EncodingError(ForebayError, ValueError):
    """Bytes that are not an encoding, or no longer the one that was written."""


class StateError(ForebayError, TypeError):
    """A state, or what a callback returned as one, that cannot be kept."""


class EngineError(ForebayError, RuntimeError):
    """An engine that was about to read a snapshot that is not where its plan says."""


class WaveError(ForebayError, ValueError):
    """A model, a geometry or a time step with which no wave can be computed; the message names what works."""


@contextmanager
def reading(source: object, kind: str, raised: type[ForebayError]) -> Iterator[None]:
    """Raise an error of ours for whatever is raised over a file or a text that was damaged or made by others.

    Parameters
    ----------
    source
        The path of the file, or what else the message begins with.
    kind
        What it was read as.
    raised
        The class of the error.

    Examples
    --------
    >>> with reading("plan.json", "JSON", PlanError):
    ...     [][3]
    Traceback (most recent call last):
        ...
    forebay.errors.PlanError: plan.json cannot be read as JSON: list index out of range (IndexError)
    """
    try:
        yield
    except ForebayError:
        raise
    except MemoryError as error:
        raise raised(f"{source} cannot be read as {kind}: it does not fit into memory, or is damaged") from error
    except OSError as error:
        raise raised(f"{source} cannot be read as {kind}: {error.strerror or error}") from error
    except Exception as error:
        why = " ".join(str(error).split())[:300]
        raise raised(f"{source} cannot be read as {kind}: {why} ({type(error).__name__})") from error


def needs(what: str, library: str, extra: str) -> str:
    """Return the message of an error for what cannot work without a library that an extra brings.

    Examples
    --------
    >>> needs("zfp on a CPU", "zfpy", "codecs")
    'zfp on a CPU needs zfpy: install Forebay with its extra codecs'
    """
    return f"{what} needs {library}: install Forebay with its extra {extra}"
