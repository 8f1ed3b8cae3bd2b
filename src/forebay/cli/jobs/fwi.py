"""`forebay fwi`: look for the model of a job's shots, resuming where an earlier run ended."""

from forebay.cli.jobs.options import AsJson, Check, JobFile, Output, Scheduler, Verify, Workers
from forebay.cli.jobs.searches import search


def fwi(
    file: JobFile,
    check: Check = False,
    verify: Verify = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Find the model in which many shots hear what they have heard; the same job again goes on where it ended."""
    search(file, "fwi", check, verify, {"workers": workers, "scheduler": scheduler, "directory": output}, as_json)
