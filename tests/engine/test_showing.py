"""Progress where there is no terminal: lines below the cell of a notebook, and nothing elsewhere."""

import sys
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest

import forebay as fb
from forebay.engine import showing
from forebay.engine.showing import progress_bar


class ZMQInteractiveShell:
    """What a notebook's kernel calls its shell."""


def reverse(**options):
    costs = fb.Costs(forward=1.0, backward=1.0, copy=1e9)  # so long that progress is shown
    state = (np.zeros(8),)
    return fb.reverse(lambda s, a, b: (s[0] + 1,), lambda s, t: None, state, 30, budget="50kB", costs=costs, **options)


def test_a_notebook_sees_a_line_that_is_written_over(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=ZMQInteractiveShell))
    with progress_bar("reversal", 3, seconds=60.0, wanted=None, done=1) as advance:
        advance()
        advance()
    assert capsys.readouterr().err.endswith("\rreversal: 3 of 3, 100%\n")
    reverse()
    assert "30 of 30, 100%" in capsys.readouterr().err


def test_elsewhere_nothing_is_written_unless_it_is_asked_for(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    reverse()
    assert capsys.readouterr().err == ""


def test_a_terminal_is_left_as_it_was(monkeypatch, capsys):
    """Where it is asked for, something is shown, and wiped away at the end."""
    shown = []

    class Bar:
        def __init__(self, console, transient):
            shown.append((console.stderr, transient))

        def __enter__(self):
            return self

        def __exit__(self, *error):
            shown.append("end")

        def add_task(self, title, total, completed):
            shown.append((title, total, completed))
            return "task"

        def advance(self, task):
            shown.append(task)

    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr("rich.progress.Progress", Bar)
    with progress_bar("reversal", 3, seconds=0.0, wanted=True, done=1) as advance:
        advance()
    assert shown == [(True, True), ("reversal", 3, 1), "task", "end"]
    with progress_bar("reversal", 3, seconds=60.0, wanted=False) as advance:
        advance()
    assert len(shown) == 4


def test_a_notebook_is_written_to_at_most_twice_a_second(monkeypatch, capsys):
    times = iter([0.0, 0.5, 0.75, 0.75, 1.25, 1.5, 1.5])
    monkeypatch.setattr(showing, "perf_counter", lambda: next(times))
    advance = showing._line("laps", 9, 0)
    for _ in range(4):
        advance()
    assert capsys.readouterr().err == "\rlaps: 2 of 9, 22%\rlaps: 4 of 9, 44%"


class Written(StringIO):
    """Where lines are written, which counts how often they are brought out."""

    flushed = 0

    def flush(self):
        self.flushed += 1


@pytest.mark.parametrize(("seconds", "shown"), [(5.0, 0), (5.5, 2)])
def test_what_is_predicted_to_take_long_is_shown_at_once(seconds, shown, monkeypatch):
    written = Written()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=ZMQInteractiveShell))
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(showing, "APART", -1.0)
    with progress_bar("laps", 2, seconds, wanted=None) as advance:
        advance()
        advance()
    assert written.getvalue().count("laps") == written.flushed == shown
