"""Jobs that are killed at any moment, by KILL or TERM, and go on until they are finished, to the same bits."""

import os
import signal
from time import perf_counter

from tests.faults.ordeals.jobs import complaint, ended, image, litter, prepared, run, started


def undergo(folder, count, random):
    """Kill so many processes, in as many jobs as that takes."""
    path, said = prepared(folder), folder / "said"
    run(path, "--output", folder / "first", said=said)
    begun = perf_counter()
    code, text = run(path, "--output", folder / "alone", said=said)
    duration, expected = perf_counter() - begun, image(folder / "alone")
    wrong, kills, jobs = [complaint(code, text)] if code else [], 0, 0
    while kills < count and not wrong:
        out, jobs = folder / f"job{jobs}", jobs + 1
        while True:
            child = started(path, "--output", out, said=said)
            code = ended(child, random.uniform(0, 1.2 * duration)) if kills < count else ended(child)
            if code is None:
                os.kill(child, random.choice([signal.SIGKILL, signal.SIGTERM]))
                code = ended(child)
                kills += 1
                if code not in (-signal.SIGKILL, -signal.SIGTERM, 0, 143):  # TERM before the command began, or after it
                    wrong.append(complaint(code, said.read_text()))
            elif code:
                wrong.append(complaint(code, said.read_text()) or f"refused: {said.read_text()[-300:]}")
            if code == 0 or wrong:
                break
        if not wrong and image(out) != expected:
            wrong.append(f"another image in {out}")
        if not wrong and litter(out):
            wrong.append(f"left {litter(out)}")
    code, text = run(path, "--verify", "--output", out, said=said)
    return {"kills": kills, "jobs": jobs, "wrong": wrong + ([text] if code else [])}
