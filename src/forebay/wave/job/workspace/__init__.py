"""The directory of a job: what is in it, whose each file is, and who may work there."""

from forebay.wave.job.workspace.lock import locked as locked
from forebay.wave.job.workspace.shot_work import MIGRATION as MIGRATION
from forebay.wave.job.workspace.shot_work import ShotWork as ShotWork
from forebay.wave.job.workspace.workspace import Workspace as Workspace
