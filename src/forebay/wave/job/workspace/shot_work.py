"""What is done with each shot of a job, and where it is kept."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ShotWork:
    """Work on every shot: a migration, or a pass that an inversion makes over its shots."""

    kind: str
    """which work: see `job.shots.kinds`"""
    name: str = ""
    """of the folder below `shots` in which it is kept; that itself for a migration"""
    of: str = ""
    """a checksum of what it follows from beside the job: a model, say"""


MIGRATION = ShotWork("migration")
