"""A reversal that is interrupted and goes on: what is run for the first time, what again, and what is kept."""

import numpy as np
import pytest

import forebay as fb
from forebay.engine.resume.ledger import Ledger
from forebay.errors import DiskError

STEPS = 40
CODECS = {"cast:float16": fb.CodecCost(ratio=2, encode=1e9, decode=1e9)}
COSTS = fb.Costs(1.0, 1.0, 1e9, disk=fb.Link(1e9, 1e9), codecs=CODECS)
CASES = {
    "segments": {"budget": "60kB", "schedule": "revolve:4"},
    "lossy segments": {"budget": "60kB", "schedule": "revolve:4", "codec": "cast:float16"},
    "whole": {"budget": "1MB", "schedule": "storeall"},
    "records": {"budget": "1MB", "schedule": "storeall", "record": ("u",), "every": 3},
    "functions": {"budget": "1MB", "schedule": "storeall", "record": lambda state, step: (state["u"] + step,)},
    "disk": {"budget": fb.Budget(host="30kB", disk="1MB"), "schedule": "revolve:3", "adjoint": "saved by the caller"},
}


class StoppedError(Exception):
    """What stops a loop."""


class Survivor:
    """A loop that records a trace in its first sweep, forms a residual at its turn, and can be stopped at any call."""

    def __init__(self):
        self.image, self.trace, self.residual = np.zeros(20), np.zeros(STEPS), np.zeros(STEPS)
        self.calls = []

    def call(self, *about):
        self.calls.append(about)
        if len(self.calls) == self.stop_at:
            raise StoppedError

    def forward(self, state, start, stop, replay):
        u, v = state["u"].copy(), state["v"].copy()
        for step in range(start, stop):
            self.call("again" if replay else "first", step)
            u, v = u + 0.1 * np.sin(v + step), 0.99 * u
            if not replay:
                self.trace[step] = u[7]
        return {"u": u, "v": v}

    def turn(self, state):
        self.call("turn", STEPS)
        self.residual[:] += self.trace - state["v"].sum()

    def backward(self, seen, step):
        self.call("back", step)
        field = seen["u"] if isinstance(seen, dict) else seen[0]
        self.image[:] += field * (step + 1) * self.residual[step]

    def save(self, file):
        np.save(file, np.concatenate([self.image, self.trace, self.residual]))

    def load(self, file):
        whole = np.load(file)
        self.image[:], self.trace[:], self.residual[:] = np.split(whole, [20, 20 + STEPS])

    def run(self, directory, case, stop_at=None):
        """Reverse, or go on, and return what was called, in order."""
        self.stop_at, self.calls = stop_at, []
        options = {"adjoint": {"image": self.image, "trace": self.trace, "residual": self.residual}} | CASES[case]
        if options["adjoint"] == "saved by the caller":
            options["adjoint"] = (self.save, self.load)
        ramp = np.linspace(0, 1, 20)
        state = {"u": ramp, "v": ramp[::-1].copy()}
        options |= {"costs": COSTS, "resume": directory, "turn": self.turn, "progress": False}
        return fb.reverse(self.forward, self.backward, state, STEPS, **options)


def steps_of(survivor, kind):
    return [step for called, step in survivor.calls if called == kind]


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_interrupted_is_run_once_and_leaves_nothing(case, tmp_path):
    survivor, every = Survivor(), CASES[case].get("every", 1)
    result = survivor.run(tmp_path, case)
    assert steps_of(survivor, "first") == list(range(STEPS)) and steps_of(survivor, "turn") == [STEPS]
    assert steps_of(survivor, "back") == list(range(0, STEPS, every))[::-1]
    assert result.metrics.hits + result.metrics.misses == len(steps_of(survivor, "back"))
    assert result.steps == STEPS and "resumed" not in result.note and not list(tmp_path.iterdir())
    spans = [span for span in result.metrics.timeline if span.what == "backward"]
    assert len(spans) == len(steps_of(survivor, "back"))
    starts = [span.start for span in result.metrics.timeline if span.what == "backward"]
    assert starts == sorted(starts)


@pytest.mark.parametrize("share", [0.2, 0.7])
@pytest.mark.parametrize("case", ["lossy segments", "whole", "disk"])
def test_what_was_interrupted_goes_on_from_its_last_progress(case, share, tmp_path):
    whole, survivor = Survivor(), Survivor()
    whole.run(tmp_path / "whole", case)
    with pytest.raises(StoppedError):
        survivor.run(tmp_path / "parts", case, stop_at=max(2, int(share * len(whole.calls))))
    before, first = list(survivor.calls), steps_of(survivor, "first")
    kept = sorted(path.name.partition("-")[0] for path in (tmp_path / "parts").iterdir())
    again = Survivor()
    result = again.run(tmp_path / "parts", case)
    for name in ("image", "trace", "residual"):
        assert getattr(again, name).tobytes() == getattr(whole, name).tobytes(), name
    # Of the first sweep, what was kept is not run for the first time again; what was not, is, to the end.
    second = steps_of(again, "first")
    assert second == list(range(STEPS - len(second), STEPS)) and (not second or second[0] <= len(first))
    back = steps_of(again, "back")
    assert back == steps_of(whole, "back")[-len(back) :]
    assert ("turn", STEPS) in again.calls or ("turn", STEPS) in before
    assert ("resumed with" in result.note) == ("progress" in kept) and not list((tmp_path / "parts").iterdir())
    assert kept.count("progress") <= 2 and kept.count("manifest") <= 1


def test_the_last_two_progresses_are_kept_and_a_damaged_one_is_not_used(tmp_path):
    survivor = Survivor()
    with pytest.raises(StoppedError):
        survivor.run(tmp_path, "disk", stop_at=70)
    names = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(("progress", "adjoint")))
    numbers = sorted({int(name.partition("-")[2]) for name in names})
    assert len(numbers) == 2 and numbers[1] == numbers[0] + 1 and len(names) == 4
    ledger = Ledger(tmp_path)
    latest = ledger.latest()[0]
    (tmp_path / f"adjoint-{numbers[1]}").write_bytes(b"no")
    earlier = ledger.latest()[0]
    assert ledger.damaged and earlier != latest
    (tmp_path / f"progress-{numbers[0]}").write_bytes(b"no")
    assert ledger.latest()[0].step == 0 and "starting anew" in ledger.damaged[-1]
    ledger.close(finished=False)
    whole = Survivor()
    whole.run(tmp_path / "whole", "disk")
    again = Survivor()
    (tmp_path / "whole").rmdir()
    assert "starting anew" in again.run(tmp_path, "disk").note
    assert again.image.tobytes() == whole.image.tobytes()


def test_where_progress_cannot_be_kept_that_is_said(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DiskError, match=r"progress cannot be kept in .*file: File exists"):
        Ledger(tmp_path / "file")
    with pytest.raises(DiskError, match=r"progress cannot be kept in .*: Not a directory"):
        Ledger(tmp_path / "file" / "kept")
