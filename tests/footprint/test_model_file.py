"""Models on disk: JSON that says the same when it comes back, refused or learned anew where its conditions changed."""

import json
import pickle
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import pytest
from tests.footprint import functions

from forebay.footprint import FootprintError, Model, Sample, load
from forebay.footprint.measure.conditions import Conditions, command_hash, source_hash
from forebay.footprint.measure.inputs import InputLayout

SHAPES = [(14, 16, 18), (28, 32, 36), (123, 45, 51), (56, 192, 72), (41, 45, 153), (113, 128, 143)]


def model_of(function, versions=None):
    samples = tuple(Sample(s, 8 * int(np.prod(s)), 1e-8 * float(np.prod(s)), None, s, "float32") for s in SHAPES)
    conditions = Conditions("VmHWM", True, 131072, source_hash(function), versions or {"numpy": np.__version__})
    return Model("double", InputLayout.of(3), np.dtype("float32"), samples, conditions)


def test_a_model_comes_back_and_says_the_same(tmp_path):
    model = model_of(functions.double)
    model.save(tmp_path / "double.json")
    again = load(tmp_path / "double.json", functions.double)
    assert again == model and again.predict((300, 301, 302)) == model.predict((300, 301, 302))


def test_the_file_is_json_that_tells_terms_conditions_and_samples(tmp_path):
    model_of(functions.double).save(tmp_path / "double.json")
    found = json.loads((tmp_path / "double.json").read_text())
    assert found["bytes per element"]["host"]["n0*n1*n2"] == pytest.approx(8, rel=0.01)
    assert found["conditions"]["versions"] == {"numpy": np.__version__}
    assert found["conditions"]["mmap_threshold"] == 65536 and len(found["samples"]) == len(SHAPES)


def test_another_version_of_a_library_is_refused_with_both(tmp_path):
    model_of(functions.double, {"numpy": "1.15.0"}).save(tmp_path / "old.json")
    with pytest.raises(FootprintError, match=f"numpy was 1.15.0 and is {np.__version__}"):
        load(tmp_path / "old.json")
    assert load(tmp_path / "old.json", changed="accept").name == "double"


def test_another_source_is_refused_where_the_function_is_given(tmp_path):
    model_of(functions.double).save(tmp_path / "double.json")
    with pytest.raises(FootprintError, match="source of the function has changed"):
        load(tmp_path / "double.json", functions.twice_and_back)


def test_another_dtype_or_number_of_axes_is_refused_where_it_is_named(tmp_path):
    model_of(functions.double).save(tmp_path / "double.json")
    assert load(tmp_path / "double.json", functions.double, ndim=3, dtype="float32").ndim == 3
    with pytest.raises(FootprintError, match="learned on float32, not float64"):
        load(tmp_path / "double.json", functions.double, dtype="float64")
    with pytest.raises(FootprintError, match="inputs of 3 axes, not 2"):
        load(tmp_path / "double.json", functions.double, ndim=2)


def test_another_program_of_the_same_name_is_refused(tmp_path):
    program = tmp_path / "op"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    command = f"{program} {{0}} {{1}} {{2}}"
    model = replace(model_of(functions.double), conditions=Conditions("ru_maxrss", True, 1, command_hash(command)))
    model.save(tmp_path / "op.json")
    assert load(tmp_path / "op.json", command=command).samples == model.samples
    program.write_text("#!/bin/sh\nexit\n")
    with pytest.raises(FootprintError, match="the command or its program has changed"):
        load(tmp_path / "op.json", command=command)


def test_another_machine_is_refused(tmp_path):
    path = tmp_path / "double.json"
    model_of(functions.double).save(path)
    path.write_text(path.read_text().replace('"machine": "', '"machine": "Abacus '))
    with pytest.raises(FootprintError, match="machine was Abacus"):
        load(path)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [("page", 12345, "pages had 12345 bytes"), ("mmap_threshold", 7, "MALLOC_MMAP_THRESHOLD_=7")],
)
def test_other_pages_and_another_way_to_allocate_are_refused(tmp_path, name, value, says):
    model = model_of(functions.double)
    replace(model, conditions=replace(model.conditions, **{name: value})).save(tmp_path / "double.json")
    with pytest.raises(FootprintError, match=says):
        load(tmp_path / "double.json")


def test_another_library_gauge_or_other_inputs_are_refused_where_they_are_named(tmp_path):
    path, model = tmp_path / "both.json", model_of(functions.both)
    told = replace(model.conditions, library="numpy", dtypes=("float32", "int64"))
    replace(model, conditions=told).save(path)
    assert load(path, functions.both, library="numpy", dtypes=("f4", np.int64), gauge="resident").conditions == told
    with pytest.raises(FootprintError, match="arrays of numpy, not torch"):
        load(path, functions.both, library="torch")
    with pytest.raises(FootprintError, match="inputs of float32, int64, not float32, float32"):
        load(path, functions.both, dtypes=("float32", "float32"))
    with pytest.raises(FootprintError, match="measured by VmHWM, not tracemalloc"):
        load(path, functions.both, gauge="traced")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda found: found.update(risk=2.0), "risk of 2"),
        (lambda found: found.update(risk=0), "risk of 0"),
        (lambda found: found["samples"][0].update(output_dtype="wat"), "dtype 'wat'"),
        (lambda found: found["samples"][0].update(lengths=[0, 1, 1]), "cannot be"),
        (lambda found: found["samples"][0].update(features={"a": 1.0}), "different features"),
        (lambda found: found["samples"][0].update(device=5), "features or places"),
    ],
)
def test_a_file_that_was_spoilt_is_refused(tmp_path, spoil, says):
    path = tmp_path / "double.json"
    model_of(functions.double).save(path)
    found = json.loads(path.read_text())
    spoil(found)
    path.write_text(json.dumps(found))
    with pytest.raises(FootprintError, match=says):
        load(path)


@pytest.mark.slow
def test_what_has_changed_is_learned_anew_and_written(tmp_path):
    path = tmp_path / "old.json"
    model_of(functions.double, {"numpy": "1.15.0"}).save(path)
    with pytest.raises(FootprintError, match="give the function"):
        load(path, changed="relearn")
    again = load(path, functions.double, changed="relearn", samples=4)
    assert again.predict((200, 200, 200)).bytes == pytest.approx(4 * 200**3, rel=0.1)
    assert load(path, functions.double).samples == again.samples


@pytest.mark.parametrize("content", [b"", b"{}", b'{"kind": "plan"}', b"[1, 2]", pickle.dumps({"kind": "x"})])
def test_anything_else_is_refused(tmp_path, content):
    (tmp_path / "other.json").write_bytes(content)
    with pytest.raises(FootprintError, match="footprint"):
        load(tmp_path / "other.json")


def test_a_missing_file_and_a_wrong_wish_are_refused(tmp_path):
    with pytest.raises(FootprintError, match="cannot be read as a footprint"):
        load(tmp_path / "none.json")
    with pytest.raises(FootprintError, match="'refuse', 'relearn' or 'accept'"):
        load(tmp_path / "none.json", changed="ignore")


def repeats(times):
    def repeat(x):
        return np.repeat(x, times)

    return repeat


class Repeats:
    def __init__(self, times):
        self.times = times

    def run(self, x):
        return np.repeat(x, self.times)

    def __call__(self, x):
        return self.run(x)


@pytest.mark.parametrize(
    "make",
    [repeats, Repeats, lambda times: Repeats(times).run, lambda times: partial(np.repeat, repeats=times)],
    ids=["closure", "object", "method", "partial"],
)
def test_the_hash_follows_what_a_function_holds_on_to(make):
    assert source_hash(make(2)) == source_hash(make(2)) != source_hash(make(20))


def test_the_hash_follows_helpers_of_the_same_package():
    before = source_hash(outer)
    original = globals()["inner"]
    try:
        globals()["inner"] = functions.double
        assert source_hash(outer) != before
    finally:
        globals()["inner"] = original
    assert source_hash(outer) == before


PACKAGE = {
    "__init__.py": "",
    "deep.py": "def work(x):\n    return x + {deep}\n",
    "helpers.py": "from pk import deep\ndef work(x):\n    return x + {helper}\nclass Tool:\n"
    "    def run(self, x):\n        return self.step(x)\n    def step(self, x):\n        return x + {tool}\n",
    "use.py": "import pk.helpers\nfrom pk import helpers\nfrom pk.helpers import Tool\n"
    "def by_module(x):\n    return helpers.work(x)\n"
    "def by_path(x):\n    return pk.helpers.deep.work(x)\n"
    "def by_class(x):\n    return Tool().run(x)\n"
    "class Own(Tool):\n    def __init__(self):\n        self.tool = Tool()\n"
    "    def go(self, x):\n        return self.step(x)\n"
    "    def lend(self, x):\n        return self.tool.run(x)\n"
    "method, held = Own().go, Own().lend\n",
}


def package(folder, monkeypatch, **numbers):
    (folder / "pk").mkdir(parents=True)
    for name, text in PACKAGE.items():
        (folder / "pk" / name).write_text(text.format(**({"deep": 1, "helper": 1, "tool": 1} | numbers)))
    for name in [name for name in sys.modules if name.partition(".")[0] == "pk"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(folder))
    return import_module("pk.use")


@pytest.mark.parametrize(
    ("name", "hangs_on"),
    [("by_module", "helper"), ("by_path", "deep"), ("by_class", "tool"), ("method", "tool"), ("held", "tool")],
)
def test_the_hash_follows_modules_and_methods_of_the_same_package(tmp_path, monkeypatch, name, hangs_on):
    before = source_hash(getattr(package(tmp_path / "a", monkeypatch), name))
    same = source_hash(getattr(package(tmp_path / "b", monkeypatch), name))
    other = source_hash(getattr(package(tmp_path / "c", monkeypatch, **{hangs_on: 22}), name))
    assert same == before != other
    monkeypatch.undo()
    for known in [known for known in sys.modules if known.partition(".")[0] == "pk"]:
        del sys.modules[known]


def inner(x):
    return x


def outer(x):
    return inner(x) + 1
