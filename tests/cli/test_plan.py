import json
import sys

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app, main

ARGUMENTS = ["plan", "--steps", "300", "--state", "1.13GB", "--device", "8GB", "--host", "64GB"]


def test_it_explains_the_plan():
    result = CliRunner().invoke(app, ARGUMENTS)
    assert result.exit_code == 0
    assert "assumed for h200" in result.output


def test_it_prints_and_writes_json_and_draws(tmp_path):
    files = ["--output", str(tmp_path / "plan.json"), "--picture", str(tmp_path / "plan.png")]
    result = CliRunner().invoke(app, [*ARGUMENTS, "--json", *files])
    assert json.loads(result.output) == json.loads((tmp_path / "plan.json").read_text())
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_codecs_and_costs_come_from_the_command_line(tmp_path):
    (tmp_path / "costs.json").write_text(
        '{"forward": 1e-3, "backward": 1e-3, "copy": 2e12, "host": {"up": 5e10, "down": 5e10}}'
    )
    result = CliRunner().invoke(
        app, [*ARGUMENTS, "--costs", str(tmp_path / "costs.json"), "--codec", "bounded:1e-4=8,1300,1500", "--json"]
    )
    plan = json.loads(result.output)
    assert plan["costs"]["forward"] == 1e-3 and plan["codec"] == "bounded:1e-4"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--device", "8 apples"], "8GB"),
        (["--device", "1GB"], "needs 1.13GB"),
        (["--codec", "bounded"], "NAME=RATIO"),
        (["--costs", "missing.json"], "cannot read costs"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(more, says, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["forebay", *ARGUMENTS, *more])
    with pytest.raises(SystemExit) as ended:
        main()
    message = capsys.readouterr().err
    assert ended.value.code == 2
    assert message.startswith("forebay: ") and says in message and message.count("\n") <= 5
