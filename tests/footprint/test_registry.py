"""The models of doors: learned once for a function on its kinds of arrays, and kept apart by their files."""

import numpy as np
import pytest

from forebay.footprint import load, registry
from forebay.footprint.registry import SameShapeInputs, key_of, model_of


class Learned:
    """A model that took no time."""

    def save(self, path):
        path.touch()


@pytest.fixture
def learned(monkeypatch):
    """Each time a function is learned, how."""
    calls = []

    def learn(func, **how):
        calls.append(how)
        return Learned()

    monkeypatch.setattr(registry, "_MODELS", {})
    monkeypatch.setattr(registry, "learn", learn)
    return calls


def model(*arrays, path=None, func=np.add):
    return model_of(func, arrays, path, {}, key_of(func, arrays, {}), smallest=1)


ONE = np.zeros((4, 5), "float32")


def test_a_function_is_learned_once(learned):
    assert model(ONE) is model(ONE)
    assert len(learned) == 1


def test_each_file_is_written_although_the_function_is_known(learned, tmp_path):
    model(ONE)
    for path in (tmp_path / "a.json", tmp_path / "b.json"):
        model(ONE, path=path)
        model(ONE, path=str(path))
        assert path.exists()
    assert len(learned) == 3


def test_a_file_that_is_gone_is_written_again(learned, tmp_path):
    path = tmp_path / "a.json"
    model(ONE, path=path)
    path.unlink()
    model(ONE, path=path)
    assert path.exists()


@pytest.mark.slow
def test_a_file_learned_on_other_arrays_is_learned_again(tmp_path):
    """The first of the two is the same."""
    path = tmp_path / "a.json"
    for dtypes in (("float32", "float32"), ("float32", "int32")):
        model(*(np.zeros((4, 5), dtype) for dtype in dtypes), path=path)
        assert load(path, changed="accept").conditions.dtypes == dtypes


def test_a_model_serves_larger_arrays_than_the_first(learned):
    """So it is learned for no shape in particular."""
    model(ONE)
    model(np.broadcast_to(ONE[:1, :1], (10**5, 10**5)))
    assert len(learned) == 1
    assert "shape" not in learned[0]


def test_models_of_several_arrays_say_where_their_bytes_are():
    class OnDevice:
        place = "device"

    assert SameShapeInputs(OnDevice(), (np.dtype("f4"),) * 2).place == "device"
    assert SameShapeInputs(object(), (np.dtype("f4"),) * 2).place == "host"
