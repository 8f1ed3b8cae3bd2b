"""The directory of a job: what is in it, whose each file is, and who may work there."""

from forebay.wave.job.workspace.workspace import Workspace as Workspace
from forebay.wave.job.workspace.workspace import locked as locked
