import json
import sys

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app, main
from forebay.footprint import FootprintError

MODULE = "import numpy as np\n\ndef double(x):\n    return x + x\n\nnumber = 3\n\ndef blur(x, sigma):\n    return x\n"
CUTS = "\n\nfrom numpy.fft import fftn\n\n\ndef rows(x):\n    return np.cumsum(x, axis=1)\n"
ARGUMENTS = ["footprint", "mine:double", "--shape", "200,300,100"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


@pytest.mark.slow
def test_it_prints_terms_estimate_bound_and_chunks_draws_and_keeps_a_model(folder, monkeypatch):
    more = ["--samples", "4", "--budget", "20MB", "--threads", "2", "--halo", "4,4,4"]
    more += ["--model", "double.json", "--picture", "out.png"]
    result = CliRunner().invoke(app, [*ARGUMENTS, *more], catch_exceptions=False)
    assert result.exit_code == 0
    assert "bytes x n0*n1*n2" in result.output and "at most" in result.output
    assert "chunks within 20MB: (" in result.output
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as where it is not installed
    again = CliRunner().invoke(app, [*ARGUMENTS, "--model", "double.json"], catch_exceptions=False)
    assert again.exit_code == 0 and again.output.splitlines()[:4] == result.output.splitlines()[:4]
    assert "no picture: a picture needs matplotlib" in again.output
    told = [*ARGUMENTS, "--model", "double.json", "--budget", "20MB", "--threads", "2", "--halo", "4,4,4", "--json"]
    plain = json.loads(CliRunner().invoke(app, told, catch_exceptions=False).stdout)
    assert plain["bytes"] <= plain["upper"] and f"chunks within 20MB: {tuple(plain['chunks'])}" in result.output
    # A model of something else is refused and left alone.
    before = (folder / "double.json").read_bytes()
    other = CliRunner().invoke(app, ["footprint", "mine:double", "--shape", "200,300", "--model", "double.json"])
    assert isinstance(other.exception, FootprintError) and "inputs of 3 axes, not 2" in str(other.exception)
    assert (folder / "double.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fftn", "no chunks: fftn looks at all of its input"),
        pytest.param("rows", "halo (0, 0), whole axes (1,): blocks of small arrays gave", marks=pytest.mark.slow),
    ],
)
def test_chunks_are_proposed_only_where_blocks_give_what_the_whole_gives(folder, name, says):
    (folder / "mine.py").write_text(MODULE + CUTS)
    asked = ["footprint", f"mine:{name}", "--shape", "200,300", "--samples", "3", "--budget", "20MB"]
    result = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert result.exit_code == 0 and says in " ".join(result.output.split())
    assert ("chunks within" in result.output) == (name == "rows")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["footprint", "mine", "--shape", "3,3"], "package.module:function"),
        (["footprint", "mine:triple", "--shape", "3,3"], "has no triple"),
        (["footprint", "mine:number", "--shape", "3,3"], "not a function"),
        (["footprint", "theirs:double", "--shape", "3,3"], "cannot import theirs"),
        (["footprint", "mine:blur", "--shape", "9,9"], "mine:blur needs sigma too: add --keyword sigma="),
        (["footprint", "mine:double", "--shape", "9,9", "--keyword", "sigma=1"], "mine:double takes no sigma"),
        (["footprint", "mine:double", "--shape", "3x3"], "651,951,462"),
        (["footprint", "mine:double", "--shape", "3,3", "--budget", "4parrots"], "4parrots"),
        (["footprint", "mine:double", "--shape", "3,3", "--halo", "a,b"], "--halo"),
        (["footprint", "mine:double", "--shape", "3,3", "--picture", "nowhere/out.png"], "there is no folder"),
        (["footprint", "mine:double", "--shape", "3,3", "--picture", "out.docx"], "ends in .png"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, arguments, says, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["forebay", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.startswith("forebay: ") and says in told and told.count("\n") == 1
