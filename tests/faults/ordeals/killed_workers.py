"""Dask workers of jobs that are killed at any moment: no shot is lost, and the image has the same bits."""

import io
import threading

import psutil
from rich.console import Console
from tests.faults.ordeals.jobs import JOB

from forebay.wave.job import parse, run_job

TEXT = JOB.replace("shots = 4", "shots = 12").replace("retries = 0", "retries = 2\nworkers = 2")


def workers():
    """List the processes that compute shots."""
    ours = psutil.Process().children(recursive=True)
    lines = {}
    for process in ours:
        try:
            lines[process] = " ".join(process.cmdline())
        except psutil.Error:
            continue
    return [process for process, line in lines.items() if "spawn_main" in line and "resource_tracker" not in line]


def kill_some(count, random, over, killed):
    """Kill workers, one now and then, as long as a job runs."""
    while len(killed) < count and not over.wait(random.uniform(0.1, 2.5)):
        if there := workers():
            process = random.choice(there)
            process.kill()
            killed.append(process.pid)


def undergo(folder, count, random):
    """Kill so many workers, in as many jobs as that takes."""
    alone = run_job(parse(TEXT.replace("workers = 2", "workers = 0"), folder / "alone"))
    killed, wrong, jobs, again = [], [], 0, 0
    while len(killed) < count and not wrong:
        before, over = len(killed), threading.Event()
        share = min(count, before + 4)
        killer = threading.Thread(target=kill_some, args=(share, random, over, killed))
        killer.start()
        job, jobs = parse(TEXT, folder / str(jobs)), jobs + 1
        try:
            survey = run_job(job, Console(file=io.StringIO()))
        finally:
            over.set()
            killer.join()
        if survey.failed:  # the same command tries them again
            again += 1
            survey = run_job(job, Console(file=io.StringIO()))
        if survey.failed or survey.image.tobytes() != alone.image.tobytes():
            wrong.append(f"job {jobs}: {survey.failed or 'another image'}")
        if len(workers()):
            wrong.append(f"left {workers()}")
    return {"kills": len(killed), "jobs": jobs, "jobs run twice": again, "wrong": wrong}
