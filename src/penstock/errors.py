"""What can go wrong; every message says what to do about it."""


class PenstockError(Exception):
    """Any error that Penstock raises on purpose."""


class UnitError(PenstockError, ValueError):
    """An amount of bytes that cannot be read."""


class ScheduleError(PenstockError, ValueError):
    """A schedule that cannot reverse the loop it was asked for."""


class BudgetError(PenstockError, ValueError):
    """A budget in which nothing works; the message names the smallest that does."""


class PlanError(PenstockError, ValueError):
    """A plan that contradicts itself or the problem it is used for."""


class SlowerError(PlanError):
    """No plan is as fast as was asked for."""


class DeviceError(PenstockError, RuntimeError):
    """No GPU, or a call that its driver refused."""


class DiskError(PenstockError, OSError):
    """A directory that cannot hold snapshots."""


class DiskFullError(DiskError):
    """A disk with no room left for a snapshot; those written before are whole."""


class CorruptionError(DiskError):
    """A snapshot that came back from the disk other than it was written."""


class CodecError(PenstockError, ValueError):
    """A codec that does not exist, or an array or room that it cannot work with."""


class EncodingError(PenstockError, ValueError):
    """Bytes that are not an encoding, or no longer the one that was written."""


class StateError(PenstockError, TypeError):
    """A state, or what a callback returned as one, that cannot be kept."""


class EngineError(PenstockError, RuntimeError):
    """An engine that was about to read a snapshot that is not where its plan says."""


class WaveError(PenstockError, ValueError):
    """A model, a geometry or a time step with which no wave can be computed; the message names what works."""
