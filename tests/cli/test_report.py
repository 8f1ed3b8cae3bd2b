"""`forebay report`: the page of what has run, or was planned, without running it."""

import json

import pytest
from tests.wave.job.jobs import job_text
from typer.testing import CliRunner

import forebay as fb
from forebay.cli.main import app


def asked(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_a_plan_has_a_page(tmp_path):
    plan = fb.plan(100, 8192, fb.Budget(host=5 * 8192), machine="laptop")
    plan.to_json(tmp_path / "plan.json")
    result = asked(tmp_path / "plan.json")
    assert result.exit_code == 0 and "plan.html" in result.output.replace("\n", "")
    named = json.loads(asked(tmp_path / "plan.json", "--json").stdout)
    assert named == {"page": str(tmp_path / "plan.html")}
    text = (tmp_path / "plan.html").read_text()
    assert "not yet run" in text and "What else there was" in text and str(plan.schedule) in text


@pytest.mark.slow
def test_a_job_that_has_run_has_its_page_again(tmp_path):
    (tmp_path / "job.toml").write_text(job_text(shots=1))
    ran = CliRunner().invoke(app, ["rtm", str(tmp_path / "job.toml"), "--json"])
    told = json.loads(ran.stdout)
    assert ran.exit_code == 0 and len(told["shots"]) == 1 and told["shots"][0]["peak"]["host"] > 0
    assert str(tmp_path / "out" / "image.npy") in told["written"] and told["seconds"] > 0
    kept = (tmp_path / "out" / "image.npy").read_bytes()
    result = asked(tmp_path / "out", "--output", tmp_path / "again.html")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "again.html").read_text()
    assert "Memory over time" in text and "1 of 1" in text
    assert (tmp_path / "out" / "image.npy").read_bytes() == kept
    for _ in range(2):  # what was written in the place of the last page is no damage
        assert asked(tmp_path / "out").exit_code == 0


@pytest.mark.parametrize(
    ("name", "more", "says"),
    [
        ("folder", [], "is no directory of a job"),
        ("nothing.json", [], "no plan can be read"),
        ("nothing.json", ["--output", "page.txt"], "give a name that ends in .html"),
    ],
)
def test_what_is_no_run_is_refused_in_words(tmp_path, name, more, says):
    (tmp_path / "folder").mkdir()
    result = asked(tmp_path / name, *more)
    assert isinstance(result.exception, fb.ForebayError) and says in str(result.exception)
