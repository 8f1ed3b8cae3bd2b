"""The command line as a whole: its version, its completion, and that help comes quickly."""

import subprocess
import sys

from typer.testing import CliRunner

import forebay
from forebay.cli.main import app

HEAVY = ("cupy", "jax", "matplotlib", "numba", "packaging", "pydantic", "scipy", "torch")


def test_the_version_is_shown():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0 and result.output.strip() == f"forebay {forebay.__version__}"


def test_a_shell_completes_commands_and_options():
    for typed, completed in (("do", "doctor"), ("fw", "fwi"), ("lsrtm --ver", "--verify"), ("plan --pol", "--policy")):
        words = {"COMP_WORDS": f"forebay {typed}", "COMP_CWORD": str(len(typed.split()))}
        result = CliRunner().invoke(app, [], prog_name="forebay", env={"_FOREBAY_COMPLETE": "complete_bash"} | words)
        assert completed in result.output.split()


def test_help_loads_no_library_that_it_does_not_need():
    code = (
        "import sys, forebay; before = set(sys.modules)\n"
        "from forebay.cli.main import app\n"
        "app(['--help'], standalone_mode=False)\n"
        f"print(*set({HEAVY!r}) & (set(sys.modules) - before), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "doctor" in run.stdout and not run.stderr.split()


def test_python_m_forebay_is_the_command_line_and_an_error_of_ours_is_no_traceback():
    arguments = ["plan", "--steps", "300", "--state", "1.13GB", "--device", "1GB"]
    run = subprocess.run([sys.executable, "-m", "forebay", *arguments], capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr.startswith("forebay: ") and "needs 1.13GB" in run.stderr and "Traceback" not in run.stderr
