import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app, main
from forebay.errors import ForebayError

ARGUMENTS = ["plan", "--steps", "300", "--state", "1.13GB", "--device", "8GB", "--host", "64GB"]


def test_it_explains_the_plan():
    result = CliRunner().invoke(app, ARGUMENTS)
    assert result.exit_code == 0
    assert "assumed for h200" in result.output


@pytest.mark.slow
def test_it_prints_and_writes_json_and_draws(tmp_path):
    files = ["--output", str(tmp_path / "plan.json"), "--picture", str(tmp_path / "plan.png")]
    result = CliRunner().invoke(app, [*ARGUMENTS, "--json", *files])
    assert json.loads(result.stdout) == json.loads((tmp_path / "plan.json").read_text())
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_a_vector_picture_needs_no_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    small = ["plan", "--steps", "40", "--state", "1GB", "--host", "8GB", "--machine", "laptop"]
    result = CliRunner().invoke(app, [*small, "--picture", str(tmp_path / "plan.svg")], catch_exceptions=False)
    assert result.exit_code == 0 and "forward again" in (tmp_path / "plan.svg").read_text()


def machine_file(folder, **links):
    path = folder / "machine.json"
    path.write_text(json.dumps({"python": "3.12", "links": links or None}))
    return str(path)


def test_a_machine_that_was_measured_is_planned_for(tmp_path):
    links = {"host_copy": 8e9, "device_copy": 1e12, "pinned_up": 50e9, "pinned_down": 40e9, "pinned_both": 30e9}
    file = machine_file(tmp_path, **links, pin_seconds_per_byte=1e-10)
    costs = json.loads(CliRunner().invoke(app, [*ARGUMENTS, "--machine", file, "--json"]).stdout)["costs"]
    assert (costs["copy"], costs["pin"], costs["assumed"]) == (1e12, 1e-10, file)
    assert costs["host"] | {"up": 50e9, "down": 40e9, "both": 0.75} == costs["host"]
    assert costs["forward"] == costs["backward"] == pytest.approx(2 * 1.13e9 / 1.44e12)


@pytest.mark.slow
def test_a_budget_of_the_host_is_planned_for_a_machine_without_a_gpu(tmp_path):
    file = machine_file(tmp_path, host_copy=8e9, disk_read=3e9, disk_write=2e9)
    asked = ["plan", "--steps", "300", "--state", "1GB", "--host", "8GB", "--disk", "64GB", "--machine", file]
    costs = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["costs"]
    assert costs["copy"] == 8e9 and costs["host"] is None
    assert costs["disk"] | {"up": 3e9, "down": 2e9} == costs["disk"]


@pytest.mark.slow
def test_this_machine_can_be_measured_for_a_plan():
    asked = ["plan", "--steps", "300", "--state", "1GB", "--host", "8GB", "--machine", "here"]
    assert "costs assumed for this machine" in CliRunner().invoke(app, asked).stdout


@pytest.mark.parametrize(
    ("links", "says"), [({}, "without --quick"), ({"host_copy": 8e9}, "no GPU was measured"), ({"pin": 1}, "host_copy")]
)
def test_a_machine_file_that_says_too_little_is_refused(links, says, tmp_path):
    ended = CliRunner().invoke(app, [*ARGUMENTS, "--machine", machine_file(tmp_path, **links)])
    assert isinstance(ended.exception, ForebayError) and says in str(ended.exception)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"links": {"host_copy": 0}}', "links.host_copy is 0, which no link has"),
        ('{"links": {"host_copy": 8e9, "pinned_both": NaN}}', "links.pinned_both is nan, which no link has"),
        ('{"links": {"host_copy": "fast"}}', "links.host_copy: Input should be a valid number"),
        ('{"links": {}}', "links.host_copy: Field required"),
        ("[" * 100_000, "Invalid JSON"),
        ("", "Invalid JSON: EOF"),
    ],
)
def test_what_is_wrong_with_a_machine_file_is_told_in_one_line(content, says, tmp_path, monkeypatch, capsys):
    path = tmp_path / "machine.json"
    path.write_text(content)
    monkeypatch.setattr(sys, "argv", ["forebay", *ARGUMENTS, "--machine", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    message = capsys.readouterr().err
    assert ended.value.code == 2 and says in message and message.count("\n") == 1 and str(path) in message


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_a_file_without_an_end_is_not_read_whole(monkeypatch, capsys):
    for command in ([*ARGUMENTS, "--costs", "/dev/zero"], ["rtm", "/dev/zero"]):
        monkeypatch.setattr(sys, "argv", ["forebay", *command])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2 and "/dev/zero is longer than" in capsys.readouterr().err


@pytest.mark.slow
def test_who_names_no_machine_is_told_so():
    for more in ([], ["--json"]):
        told = CliRunner().invoke(app, [*ARGUMENTS, *more]).stderr
        assert "so h200 is assumed" in told and "--machine here" in told
    assert not CliRunner().invoke(app, [*ARGUMENTS, "--machine", "a100"]).stderr


@pytest.mark.slow
def test_codecs_and_costs_come_from_the_command_line(tmp_path):
    (tmp_path / "costs.json").write_text(
        '{"forward": 1e-3, "backward": 1e-3, "copy": 2e12, "host": {"up": 5e10, "down": 5e10}}'
    )
    given = ["--costs", str(tmp_path / "costs.json"), "--codec", "bounded:1e-4=8,1300,1500", "--json"]
    result = CliRunner().invoke(app, [*ARGUMENTS, "--steps", "90", *given])
    plan = json.loads(result.output)
    assert plan["costs"]["forward"] == 1e-3 and plan["codec"] == "bounded:1e-4"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--device", "8 apples"], "8GB"),
        (["--device", "1GB"], "needs 1.13GB"),
        (["--codec", "bounded"], "NAME=RATIO"),
        (["--costs", "missing.json"], "cannot read costs"),
        (["--machine", "missing.json"], "forebay doctor --save missing.json"),
        (["--machine", "abacus"], "rtx4090"),
        (["--picture", "plan.xyz"], ".png"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(more, says, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["forebay", *ARGUMENTS, *more])
    with pytest.raises(SystemExit) as ended:
        main()
    message = capsys.readouterr().err
    assert ended.value.code == 2
    assert message.startswith("forebay: ") and says in message and message.count("\n") <= 5
