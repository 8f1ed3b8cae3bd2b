"""An interrupted reversal does the same as ever, call by call and file by file.

`same_resume.json` holds what is known. `python -m tests.engine.test_same_resume` writes it anew, where that is meant to
change: the difference shows what is kept, and what is computed again.
"""

import json
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from xxhash import xxh3_64_hexdigest

from forebay.engine.resume import ledger, segments
from tests.engine.test_same_progress import CASES, StoppedError, Survivor
from tests.engine.test_same_spills import order

KNOWN = Path(__file__).with_name("same_resume.json")
STOPS = {
    "segments": (3, 45, 83, 112),
    "lossy segments": (60,),
    "whole": (1, 30, 41, 60, 79),
    "records": (35, 48),
    "functions": (39, 55),
    "disk": (20, 90, 115),
    "unlike": (25, 75),
}
DAMAGE = [
    ("segments", 70, "state-20"),
    ("whole", 62, "record-7"),
    ("disk", 95, "progress-23"),
    ("disk", 95, "state-12"),
]


class Unlike(Survivor):
    """A loop whose forward is not told what it recomputes, and that has no turn."""

    turn = None

    def forward(self, state, start, stop):
        return super().forward(state, start, stop, replay=False)


def digest(told):
    return xxh3_64_hexdigest(repr(told).encode())[:8]


def story(case, stop, damaged=""):
    """Stop a reversal at a call, hurt a file that it has kept, and go on; return what was done."""
    survivor, again = (Unlike() if case == "unlike" else Survivor() for _ in range(2))
    written, write, ticks = [], ledger.write_arrays, count(7000)

    def noted(path, header, arrays):
        named = {name: value if name != "probes" else sorted(value) for name, value in header.items()}
        kept = {name: named[name] for name in ("direction", "step", "probes") if name in named}
        written.append((path.name, kept, sorted(arrays)))
        write(path, header, arrays)

    with (
        TemporaryDirectory() as folder,
        patch.object(ledger, "write_arrays", noted),
        patch.object(segments, "perf_counter", lambda: next(ticks) / 1000),
        patch.dict(CASES, {"unlike": CASES["segments"]}),
    ):
        directory = Path(folder, "kept")
        with pytest.raises(StoppedError):
            survivor.run(directory, case, stop_at=stop)
        left = sorted(path.name for path in directory.iterdir())
        if damaged:
            assert damaged in left
            Path(directory, damaged).write_bytes(b"hurt")
        result = again.run(directory, case)
        note = result.note.replace(folder, "")
    metrics, numbers = result.metrics, (int(step) for _, step in again.calls)
    done = [metrics.hits, metrics.misses, metrics.advanced, metrics.recomputed, result.steps, result.plan.steps]
    return {
        "left": " ".join(left),
        "calls": [len(survivor.calls), digest(survivor.calls), len(again.calls), sum(numbers), digest(again.calls)],
        "written": [len(written), digest(written)],
        "did": [*done, round(metrics.seconds, 3), order(metrics.timeline)],
        "note": note,
    }


def cases():
    """Yield the name of each case, and what makes it anew."""
    for case, stops in STOPS.items():
        for stop in stops:
            yield f"{case}, stopped at {stop}", lambda case=case, stop=stop: story(case, stop)
    for case, stop, damaged in DAMAGE:
        yield f"{case}, stopped at {stop}, {damaged}", lambda a=(case, stop, damaged): story(*a)


@pytest.mark.parametrize(("name", "make"), list(cases()), ids=lambda value: value if isinstance(value, str) else "")
def test_what_was_interrupted_goes_on_as_ever(name, make):
    assert json.loads(json.dumps(make())) == json.loads(KNOWN.read_text())[name]


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(make())}" for name, make in cases())
    KNOWN.write_text(f"{{\n{lines}\n}}\n")
