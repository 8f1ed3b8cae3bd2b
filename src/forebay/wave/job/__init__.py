"""Jobs: the migration of many shots, from a `job.toml` to an image and its report."""

from forebay.wave.job.job import Job as Job
from forebay.wave.job.job import changed as changed
from forebay.wave.job.job import parse as parse
from forebay.wave.job.job import read_job as read_job
from forebay.wave.job.run import Survey as Survey
from forebay.wave.job.run import run_job as run_job
