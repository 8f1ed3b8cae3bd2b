"""A reversal whose processes kill themselves at random moments: run as a script, it prints what became of it.

Moments are counted: steps forward and backward, and every call that brings something to the disk. Processes are forked
from one that has imported everything, so that many of them take no time.
"""

import json
import os
import random
import signal
import sys
import traceback
from pathlib import Path

import numpy as np

import forebay as fb

STEPS = 150
CASES = {
    "states": {"budget": "100kB", "schedule": "revolve:8"},
    "lossy states": {"budget": "100kB", "codec": "cast:float16", "schedule": "revolve:8"},
    "records": {"budget": "1MB", "record": ("u",), "every": 2, "schedule": "storeall"},
    "saved by the caller": {"budget": fb.Budget(host="30kB", disk="1MB")},
}
COSTS = fb.Costs(
    1.0, 1.0, 1e9, disk=fb.Link(1e9, 1e9), codecs={"cast:float16": fb.CodecCost(ratio=2, encode=1e9, decode=1e9)}
)


class Run:
    """A loop with an image, a trace that is recorded in the first sweep alone, and a residual that its turn forms."""

    def __init__(self, log, moments=None):
        self.image, self.trace, self.residual = np.zeros(400), np.zeros(STEPS), np.zeros(STEPS)
        self.log, self.moments = log, moments

    def tick(self):
        if self.moments is not None:
            self.moments -= 1
            if self.moments < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def forward(self, state, start, stop, replay):
        u, v = state["u"].copy(), state["v"].copy()
        for step in range(start, stop):
            self.tick()
            u, v = u + np.float32(0.1) * np.sin(v + step), np.float32(0.99) * u
            if not replay:
                self.trace[step] = u[7]
        os.write(self.log, f"f {start} {stop}\n".encode())
        return {"u": u, "v": v}

    def turn(self, state):
        self.residual[:] = self.trace - self.trace.mean()

    def backward(self, state, step):
        self.tick()
        self.image[:] += state["u"] * (step + 1) * self.residual[step]
        os.write(self.log, f"b {step}\n".encode())

    def save(self, file):
        np.savez(file, image=self.image, trace=self.trace, residual=self.residual)

    def load(self, file):
        for name, array in np.load(file).items():
            getattr(self, name)[:] = array

    def reverse(self, directory, case):
        adjoint = {"image": self.image, "trace": self.trace, "residual": self.residual}
        ramp = np.linspace(0, 1, 400, dtype=np.float32)
        return fb.reverse(
            self.forward,
            self.backward,
            {"u": ramp, "v": ramp[::-1].copy()},
            STEPS,
            turn=self.turn,
            costs=COSTS,
            resume=directory,
            adjoint=(self.save, self.load) if case == "saved by the caller" else adjoint,
            directory=directory.parent,
            **CASES[case],
        )


def in_child(directory, case, log, moments, ending):
    """Run in a child that dies after so many moments, or writes its image; return whether it came to its end."""
    child = os.fork()
    if child == 0:
        run = Run(log, moments)
        for name in ("fsync", "replace", "unlink"):
            setattr(os, name, counted(run, getattr(os, name)))
        try:
            run.reverse(directory, case)
            np.save(ending, run.image)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), "the child failed"
    return status == 0


def counted(run, call):
    def counting(*arguments, **keywords):
        run.tick()
        result = call(*arguments, **keywords)
        run.tick()
        return result

    return counting


def steps_in(path):
    """Count the steps forward and backward that a log tells of."""
    events = [line.split() for line in path.read_text().splitlines()]
    forward = sum(int(event[2]) - int(event[1]) for event in events if event[0] == "f")
    return forward, sum(event[0] == "b" for event in events)


def main(folder, case, kills, seed):
    """Kill it so many times, in as many reversals as that takes; compare with one that nothing disturbs.

    What is lost is told against a reversal that begins with progress, and so has nothing in memory: that of an
    undisturbed one may hold what would be run forward again.
    """
    moments, ending = random.Random(seed), folder / "image.npy"
    images, logs = [], [folder / "alone.log", folder / "again.log", folder / "killed.log"]
    alone, again, killed = (os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600) for log in logs)
    assert in_child(folder / "alone", case, alone, None, ending)
    expected = np.load(ending).tobytes()
    first = 0
    while not ((folder / "again/manifest").exists() and list((folder / "again").glob("progress-*"))):
        assert not in_child(folder / "again", case, again, first, ending)
        first += 12
    os.truncate(logs[1], 0)
    assert in_child(folder / "again", case, again, None, ending)
    left = kills
    while left:
        while not in_child(folder / "killed", case, killed, moments.randrange(250) if left else None, ending):
            left -= 1
        images.append(np.load(ending).tobytes())
        assert not list((folder / "killed").iterdir())
    undisturbed, once, all_steps = map(steps_in, logs)
    lost = [steps - len(images) * needed for steps, needed in zip(all_steps, once, strict=True)]
    more = [steps - len(images) * needed for steps, needed in zip(all_steps, undisturbed, strict=True)]
    print(json.dumps({"equal": {*images} == {expected}, "lost": lost, "more": more}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
