"""Every error that a user can cause: what was given, and the message. No traceback, and an exit code, always."""

import os
import subprocess
import sys

import numpy as np
import pytest

import forebay as fb
from forebay.cli import main as cli
from forebay.codec import Encoded, get
from forebay.errors import CodecError, ForebayError, PlanError, reading

STATE = (np.ones(4),)


def run(**options):
    """Reverse a loop of ten steps that does nothing."""
    return fb.reverse(lambda s, a, b: s, lambda s, t: None, STATE, **{"steps": 10, "budget": "64kB"} | options)


def planned(**options):
    return fb.plan(**{"steps": 10, "state_bytes": "1MB", "budget": "20MB"} | options)


CAUSED = [
    (lambda: fb.Budget(), "BudgetError", "an empty budget: name the bytes of at least one tier"),
    (lambda: fb.Budget("8GB")["host"], "BudgetError", "the budget has no tier 'host'; it has device"),
    (lambda: fb.Budget("8XB"), "UnitError", "cannot read '8XB' as bytes: write a number and one of"),
    (lambda: fb.Budget([8]), "UnitError", "cannot read [8] as bytes: give a string like '8GB'"),
    (lambda: fb.Budget("1e999999"), "UnitError", "'1e999999' is no amount that a computer has: give 9223PB at most"),
    (lambda: fb.Budget("1e400GB"), "UnitError", "'1e400GB' is no amount that a computer has"),
    (lambda: fb.Budget(10**5000), "UnitError", "a number of hundreds of digits is not an amount of bytes"),
    (lambda: fb.Budget(-1), "UnitError", "-1 is not an amount of bytes: it must be finite, not negative"),
    (lambda: fb.Budget(float("nan")), "UnitError", "nan is not an amount of bytes"),
    (lambda: planned(steps=0), "ScheduleError", "a reversal needs at least one step, not 0"),
    (lambda: planned(steps=1.5), "ScheduleError", "steps must be a whole number, not 1.5"),
    (lambda: planned(steps=10**18), "PlanError", "a plan is made for up to 1e+09 calls"),
    (lambda: planned(every=0), "PlanError", "every=0: it must be at least 1"),
    (lambda: planned(overhead=-1), "PlanError", "overhead=-1: it must be at least 0"),
    (lambda: planned(below="soon"), "PlanError", "below='soon': give a number"),
    (lambda: planned(machine=["h200"]), "PlanError", "no machine is called ['h200']: use one of h200"),
    (lambda: planned(machine=np.ones(2)), "PlanError", "no machine is called array([1., 1.]): use one of h200"),
    (lambda: planned(policy=np.ones(2)), "PlanError", "no policy is called array([1., 1.]): use one of min, lru"),
    (lambda: planned(hurry=np.ones(2)), "PlanError", "hurry=array([1., 1.]): give True or False"),
    (lambda: planned(encode_states="no"), "PlanError", "encode_states='no': give True or False"),
    (lambda: planned(codec=3), "PlanError", "codec=3: give the name of a codec, or a list of names"),
    (lambda: planned(codec=[3]), "PlanError", "nothing is known of codec 3"),
    (lambda: planned(policy="fifo"), "PlanError", "no policy is called 'fifo': use one of min, lru"),
    (lambda: planned(schedule="revolv:3"), "ScheduleError", "no schedule is called 'revolv:3': use one of storeall"),
    (lambda: planned(schedule="revolve:x"), "ScheduleError", "revolve takes one number, as in 'revolve:20'"),
    (lambda: planned(schedule="revolve:99"), "ScheduleError", "99 snapshots are more than the 10 states there are"),
    (lambda: planned(budget="1kB"), "BudgetError", "device has 1kB and needs 1MB (1000000 bytes) at least"),
    (lambda: planned(step_costs=[1, 2]), "PlanError", "step_costs has 2 numbers, but the loop has 10 steps"),
    (lambda: planned(budget="20MB", record_bytes=0), "PlanError", "a state and a record have at least one byte"),
    (lambda: fb.Costs(-1.0, 1.0, 1e9), "PlanError", "Costs: forward must be positive, not -1.0"),
    (lambda: fb.Costs(10**5000, 1, 1), "PlanError", "forward must be positive, not a number of hundreds of digits"),
    (lambda: fb.Costs(1, 10**400, 1), "PlanError", "backward is in seconds and must not be negative, not a number of"),
    (lambda: fb.Link(10**400, 1), "PlanError", "Link: up must be positive, not a number of hundreds of digits"),
    (lambda: fb.Costs(1, 1, 1, steps=3), "PlanError", "Costs: steps must be finite numbers, not negative, and not"),
    (lambda: fb.Costs(1, 1, 1, codecs={"raw": 3}), "PlanError", "Costs: codecs must be a dict of CodecCost by name"),
    (lambda: fb.Costs(1, 1, 1, codecs={3: 3}), "PlanError", "Costs: codecs must be a dict of CodecCost by name"),
    (lambda: fb.Costs(1, 1, 1, operations=3), "PlanError", "Costs: operations must be a HostCost, not 3"),
    (lambda: planned(costs=3), "PlanError", "costs=3: give Costs(...), or leave it out"),
    (lambda: planned(below=-(10**400)), "PlanError", "below=a number of hundreds of digits: give a number"),
    (lambda: fb.Plan.from_json("{"), "PlanError", "this is not a plan that Forebay wrote"),
    (lambda: fb.Plan.from_json('{"a":' + "[" * 9999), "PlanError", "this is not a plan that Forebay wrote"),
    (lambda: fb.Plan.from_json("/nowhere/plan.json"), "PlanError", "no plan can be read from '/nowhere/plan.json'"),
    (lambda: run(budget="10B"), "BudgetError", "the budget does not hold"),
    (lambda: run(budget=fb.Budget(device="8GB")), "BudgetError", "the arrays are kept on the host"),
    (lambda: run(schedule="zcut:3"), "ScheduleError", "zcut"),
    (lambda: run(codec="zip"), "CodecError", "no codec is called 'zip': there are"),
    (lambda: run(plan=planned()), "PlanError", "plan"),
    (lambda: run(plan="x"), "PlanError", "plan='x': give what plan(...) or Plan.from_json(...) returned"),
    (lambda: run(costs={}), "PlanError", "costs={}: give Costs(...), or leave it out"),
    (lambda: run(directory=3), "DiskError", "directory=3: give the path of a folder"),
    (lambda: run(turn=3), "PlanError", "turn=3: give a function"),
    (lambda: run(rehearse=3), "PlanError", "rehearse=3: give a function"),
    (lambda: fb.reverse(lambda s, a, b: s, 3, STATE, 10), "PlanError", "backward=3: give a function"),
    (lambda: fb.reverse(3, lambda s, t: None, STATE, 10), "PlanError", "forward=3: give a function"),
    (lambda: run(adjoint={}), "PlanError", "name its directory with resume=, or leave it out"),
    (lambda: fb.reverse(lambda s, a, b: 3, lambda s, t: None, STATE, 10, budget="64kB"), "StateError", "forward"),
    (lambda: fb.reverse(lambda s, a, b: s, lambda s, t: None, 3, 10), "StateError", "state"),
    (lambda: run(directory="/nowhere", budget=fb.Budget(host="100B", disk="1MB")), "DiskError", "/nowhere"),
    (lambda: get("zfp:x"), "CodecError", "'x' cannot be zfp's rate: give a number above 0 up to 64"),
    (lambda: get("bounded:0"), "CodecError", "bounded: '0' is no bound: give a number above zero"),
    (lambda: get("raw").encode(np.array([None])), "CodecError", "raw does not encode arrays of object"),
    (lambda: Encoded.from_bytes(b"FBAY"), "EncodingError", "these bytes are not an encoding of Forebay"),
    (lambda: Encoded.from_bytes(get("raw").encode(np.ones(3)).to_bytes()[:-1]), "EncodingError", "cut short"),
    (lambda: fb.footprint.load("/nowhere.json"), "FootprintError", "/nowhere.json cannot be read as a footprint"),
    (lambda: fb.footprint.learn(len, ndim=9), "FootprintError", "ndim=9: give the number of axes of the input"),
]


@pytest.mark.parametrize(("cause", "kind", "message"), CAUSED, ids=[f"{kind} {text[:40]}" for _, kind, text in CAUSED])
def test_what_a_user_causes_is_told(cause, kind, message):
    with pytest.raises(ForebayError) as caught:
        cause()
    assert type(caught.value).__name__ == kind and message in str(caught.value)


TYPED = [
    ("plan --steps 10 --state 1MB --host 1e999999", 2, "'1e999999' is no amount that a computer has"),
    ("plan --steps 10 --state 1MB --host 1e400GB", 2, "'1e400GB' is no amount that a computer has"),
    ("plan --steps 10 --state 1MB", 2, "an empty budget"),
    ("plan --steps 10 --state 1MB --host 1kB", 2, "needs 1MB (1000000 bytes) at least"),
    ("plan --steps ten --state 1MB --host 1kB", 2, "Invalid value for '--steps'"),
    ("plan --steps 10 --state 1MB --host 9MB --costs /nowhere", 2, "cannot read costs from /nowhere"),
    ("plan --steps 10 --state 1MB --host 9MB --codec x", 2, "cannot read codec 'x': write NAME=RATIO,ENCODE,DECODE"),
    ("plan --steps 10 --state 1MB --host 9MB --output /nowhere/plan.json", 2, "/nowhere/plan.json"),
    ("rtm [/nope]", 2, "no job can be read from [/nope]: No such file or directory"),
    ("rtm .", 2, "no job can be read from .: Is a directory"),
    ("fwi [/nope]", 2, "no job can be read from [/nope]: No such file or directory"),
    ("fwi job.toml --check --verify", 2, "--check and --verify exclude each other: give one of them"),
    ("lsrtm .", 2, "no job can be read from .: Is a directory"),
    ("footprint x --shape 3", 2, "cannot read 'x': write package.module:function"),
    ("footprint :x --shape 3", 2, "cannot import : "),
    ("footprint nothing:x --shape 3", 2, "cannot import nothing: No module named 'nothing'"),
    ("footprint os:nothing --shape 3", 2, "os has no nothing"),
    ("footprint os:sep --shape 3", 2, "os:sep is a str, not a function"),
    ("footprint os:getcwd --shape a,b", 2, "cannot read --shape 'a,b': write lengths between commas"),
    ("footprint os:getcwd --shape 3 --picture x.txt", 2, "give a name that ends in .png"),
    ("doctor --directory /nowhere", 2, "/nowhere"),
    ("bench nothing", 2, "no benchmark is called 'nothing': use one of"),
    ("nothing", 2, "No such command 'nothing'"),
]


@pytest.mark.parametrize(("line", "code", "message"), TYPED, ids=[line for line, _, _ in TYPED])
def test_what_is_typed_wrong_is_a_sentence_and_an_exit_code(line, code, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["forebay", *line.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr().err
    assert ended.value.code == code and message in " ".join(told.replace("│", " ").split()), told
    assert "Traceback" not in told


def ended_by(error, monkeypatch, capsys):
    """Have a command raise an error; return its exit code and what it told."""

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("forebay.cli.plan.make_plan", fail)
    monkeypatch.setattr(sys, "argv", ["forebay", "plan", "--steps", "10", "--state", "1MB", "--host", "9MB"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ZeroDivisionError("x / 0"), 70, "this is a bug of Forebay, which did not expect ZeroDivisionError: x / 0."),
        (MemoryError(), 2, "the memory is used up: give smaller budgets"),
        (OSError(28, "No space left on device", "/x"), 2, "/x: No space left on device"),
        (OSError(), 2, "OSError"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (UnicodeEncodeError("ascii", "ä", 0, 1, "no"), 70, "FOREBAY_TRACEBACK=1 shows"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_whatever_else_happens_is_a_sentence_and_an_exit_code_too(error, code, message, monkeypatch, capsys):
    monkeypatch.delenv("FOREBAY_TRACEBACK", raising=False)
    ended, told = ended_by(error, monkeypatch, capsys)
    assert ended == code and message in told and "Traceback" not in told
    assert told.startswith("forebay: ") and told.count("\n") == 1


def test_a_traceback_is_shown_where_it_is_asked_for(monkeypatch, capsys):
    monkeypatch.setenv("FOREBAY_TRACEBACK", "1")
    ended, told = ended_by(ZeroDivisionError("x / 0"), monkeypatch, capsys)
    assert ended == 70 and "Traceback" in told and told.splitlines()[-1].startswith("forebay: this is a bug")


@pytest.mark.slow
def test_names_that_no_terminal_can_show_are_told():
    odd = os.fsdecode(b"\xff.toml")
    run = subprocess.run([sys.executable, "-m", "forebay", "rtm", odd], capture_output=True, text=True)
    assert run.returncode == 2 and run.stderr.startswith("forebay: no job can be read from") and "\\udcff" in run.stderr


def test_readers_wrap_whatever_is_raised_and_leave_our_errors_as_they_are():
    about = "f.json", "a plan", PlanError
    others = KeyError("x"), RecursionError(), MemoryError(), OSError(2, "gone"), StopIteration(), ImportError("y")
    for raised in others:
        with pytest.raises(PlanError, match=r"f\.json cannot be read as a plan: ") as caught, reading(*about):
            raise raised
        assert caught.value.__cause__ is raised
    with pytest.raises(CodecError, match=r"^ours$"), reading(*about):
        raise CodecError("ours")


@pytest.mark.parametrize(
    "options", [{}, {"schedule": "revolve:3"}, {"codec": "cast:float16"}, {"steps": None}], ids=str
)
def test_stop_iteration_of_a_callback_stays_itself(options):
    def stop(*arguments):
        raise StopIteration("mine")

    def later(state, start, stop_at):
        return stop() if stop_at > 5 else state

    callbacks = [{"forward": later}] if "steps" in options else [{"forward": later}, {"backward": stop}, {"turn": stop}]
    for given in (*callbacks, {"record": stop}):
        loop = {"forward": lambda s, a, b: s, "backward": lambda s, t: None, "state": STATE, "steps": 20} | given
        with pytest.raises(StopIteration, match="mine"):
            fb.reverse(**loop | {"budget": "64kB"} | options)
