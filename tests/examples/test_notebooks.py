"""The notebooks of the examples: each runs from its first cell to its last, and finds what it shows."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.ipynb"))}
SHOWN = """
import ast, sys
names = {"__name__": "__main__"}
for cell in map(ast.literal_eval, sys.stdin):
    *statements, last = ast.parse(cell).body
    if not isinstance(last, ast.Expr):
        statements, last = [*statements, last], None
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)
    value = last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    print(value._repr_html_() if hasattr(value, "_repr_html_") else "" if value is None else repr(value))
"""
"""Runs cells as a notebook does, and prints what it would show."""


def cells(notebook):
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_is_one_for_each_path():
    assert set(NOTEBOOKS) == {"reversal", "migration", "inversion", "training", "jax_loop", "chunks"}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_kept_with_what_it_shows_and_no_error(name):
    outputs = [output for cell in NOTEBOOKS[name]["cells"] for output in cell.get("outputs", [])]
    assert len(outputs) >= 2
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert all(ast.parse(cell) for cell in cells(NOTEBOOKS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs_and_finds_what_it_shows(name, tmp_path):
    shown = subprocess.run(
        [sys.executable, "-c", SHOWN],
        input="\n".join(map(repr, cells(NOTEBOOKS[name]))),
        env=os.environ | {"MPLBACKEND": "agg"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    texts = [output.get("text", []) for cell in NOTEBOOKS[name]["cells"] for output in cell.get("outputs", [])]
    found = [line.strip() for text in texts for line in "".join(text).splitlines() if line.strip().endswith("True")]
    assert [line for line in found if line not in shown.stdout] == []
