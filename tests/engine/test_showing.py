"""Progress where there is no terminal: lines below the cell of a notebook, and nothing elsewhere."""

import sys
from types import SimpleNamespace

import numpy as np

import forebay as fb
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
