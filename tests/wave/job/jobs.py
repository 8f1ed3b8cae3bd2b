"""A small job, as the text of its `job.toml`: two-dimensional, of a few shots, and run in a second."""

from functools import wraps

import numpy as np

from forebay.wave.loop import Adjoint, Loop

MODEL = 'name = "layers"\nshape = [48, 96]\nsmooth = 80.0'
SAMPLING = "dt = 0.008\nlength = 1.0"


def job_text(*, shots=2, **tables):
    """Write a job; a table that is given by name replaces the usual one, and None leaves it out."""
    usual = {
        "model": MODEL,
        "geometry": f"shots = {shots}\nsource_depth = 50.0\nreceiver_depth = 50.0\nreceiver_spacing = 100.0",
        "data": SAMPLING,
        "wavelet": "frequency = 2.5",
        "memory": 'host = "4MB"',
        "run": 'device = "cpu"\nretries = 0',
        "output": 'directory = "out"\nformats = ["npy"]',
    }
    given = usual | tables
    return "".join(f"[{name}]\n{lines}\n" for name, lines in given.items() if lines is not None)


SHOTS = 4
TEXT = job_text(shots=SHOTS, physics="absorb = 10")
"""The job that the fixture `finished` has run, and `job` has copied."""


def same_images(one, other):
    """Tell whether two surveys have the same bits, summed and filtered."""
    return np.array_equal(one.stack.image, other.stack.image) and np.array_equal(one.image, other.image)


def count_steps(count, patch=setattr):
    """Have ``count(steps)`` hear of all steps, forward and back, before they are taken."""
    forward, back_to = Loop.forward, Adjoint.back_to

    @wraps(forward)
    def counted_forward(self, state, start, stop, replay=False):
        count(stop - start)
        return forward(self, state, start, stop, replay)

    def counted_back(self, step, image=None):
        count(self.step - min(step, self.step))
        return back_to(self, step, image)

    patch(Loop, "forward", counted_forward)
    patch(Adjoint, "back_to", counted_back)
