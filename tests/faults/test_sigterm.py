"""SIGTERM, as clusters send it before they take a machine away: all is put in order, and the job goes on later."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from tests.spills import spills
from tests.wave.job.jobs import job_text
from typer.testing import CliRunner

from forebay.cli.main import app

SCRIPT = """
import sys, time
from forebay.cli.main import main
from forebay.wave.job import work

real = work.migrate


def migrate(*arguments, turn, **options):
    def slow(state):
        turn(state)
        if len(started) == 2:
            print("in the second shot", flush=True)
            time.sleep(60)

    started.append(1)
    return real(*arguments, turn=slow, **options)


started = []
work.migrate = migrate
main()
"""

JOB = job_text(
    data="dt = 0.008\nlength = 1.4",
    memory='host = "400kB"\ndisk = "40MB"',
    run='device = "cpu"',
    output='directory = "elsewhere"\nformats = ["npy"]',
)


def test_a_job_that_is_told_to_end_leaves_nothing_and_says_how_to_go_on(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "job.toml").write_text(JOB)
    command = [sys.executable, "-c", SCRIPT, "rtm", str(tmp_path / "job.toml"), "--output", str(tmp_path / "out")]
    stopped = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = []
    while "in the second shot\n" not in lines:
        lines.append(stopped.stdout.readline())
        assert lines[-1], stopped.stderr.read()
    assert spills(tmp_path, stopped.pid)
    stopped.send_signal(signal.SIGTERM)
    said, complained = stopped.communicate(timeout=60)
    assert stopped.returncode == 128 + signal.SIGTERM == 143
    advice = f"to go on, give the same command: forebay rtm {tmp_path}/job.toml --output {tmp_path}/out"
    assert advice in " ".join(said.split())
    assert "Traceback" not in complained
    assert "SystemExit: 143" in (tmp_path / "out" / "shots" / "00001.error").read_text()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()], "nothing unfinished is left"
    again = CliRunner().invoke(app, command[3:])
    assert again.exit_code == 0 and "1 of 2 shots were finished before" in " ".join(again.stdout.split()), again.output
    assert not (tmp_path / "out" / "shots" / "00001.error").exists()
    assert np.load(tmp_path / "out" / "image.npy").any()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no signals as of Unix here")
def test_a_second_signal_changes_nothing():
    script = """
import os, signal, sys
from forebay.cli import main
signal.signal(signal.SIGTERM, main._terminate)
try:
    os.kill(os.getpid(), signal.SIGTERM)
finally:
    os.kill(os.getpid(), signal.SIGTERM)
    print("closed")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (143, "closed\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no signals as of Unix here")
def test_a_signal_that_somebody_swallows_leaves_the_process_open_to_the_next():
    script = """
import os, signal, sys
from forebay.cli import main

def close():
    try:
        [][1]
    except IndexError:
        os.kill(os.getpid(), signal.SIGTERM)  # on the way out: changes nothing
    print("closed")

def app():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException:
        print("swallowed")
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        close()

main.app = app
main.main()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "swallowed\nclosed\n", "")


def test_a_signal_in_the_middle_of_a_finalizer_is_not_lost():
    script = """
import os, signal, sys, time
from forebay.cli import main

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)

def app():
    Dying()
    time.sleep(60)

main.app = app
main.main()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stderr) == (143, "")
