"""`forebay lsrtm`: explain the echoes of a job's shots, resuming where an earlier run ended."""

from forebay.cli.jobs.options import AsJson, Check, JobFile, Output, Scheduler, Verify, Workers
from forebay.cli.jobs.searches import search


def lsrtm(
    file: JobFile,
    check: Check = False,
    verify: Verify = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Find the change of a model that explains the echoes of many shots; the same job again goes on where it ended."""
    search(file, "lsrtm", check, verify, {"workers": workers, "scheduler": scheduler, "directory": output}, as_json)
