"""What can go wrong; every message says what to do about it."""


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


def needs(what: str, library: str, extra: str) -> str:
    """Return the message of an error for what cannot work without a library that an extra brings.

    Examples
    --------
    >>> needs("zfp on a CPU", "zfpy", "codecs")
    'zfp on a CPU needs zfpy: install Forebay with its extra codecs'
    """
    return f"{what} needs {library}: install Forebay with its extra {extra}"
