"""What a JAX step reads beside its arguments has the value of the call, though the step was compiled before."""

import gc
import weakref

import numpy as np
import pytest

import forebay as fb
from forebay.errors import StateError

jax = pytest.importorskip("jax")
jnp = jax.numpy
checkpointed = pytest.importorskip("forebay.jax").checkpointed
compiled = pytest.importorskip("forebay.jax.compiled_step")

TIGHT = {"budget": "64kB", "schedule": "revolve:3", "costs": fb.Costs(1e-3, 1e-3, 1e9)}
AMPLE = {"budget": "10MB"}


class Model:
    """A model whose methods are steps, and change with its attributes."""

    def __init__(self, factor):
        self.factor = factor

    def step(self, y, t):
        return y * self.factor

    def inner(self, y, t):
        return jax.jit(lambda y: y * self.factor)(y)

    def made(self, y, t):
        return y * jnp.array([1.0, 2.0, 3.0]) * self.factor

    def run(self, y, name="step", **more):
        return checkpointed(getattr(self, name), y, 4, **(TIGHT | more))

    def run_with(self, factor, **more):
        self.factor = factor
        return checkpointed(self.step, jnp.ones(3), 4, **more).sum()


FACTORS = {
    "numbers": (1.0, 2.0),
    "neighbours": (0.1, float(np.nextafter(np.float32(0.1), np.float32(1)))),
    "arrays": (jnp.ones(3), jnp.full(3, 2.0)),
    "NumPy's": (np.ones(3, np.float32), np.full(3, 2, np.float32)),
}


BOTH_WAYS = {"tight": TIGHT, "ample": AMPLE}


COMBINATIONS = [
    ("numbers", "tight"),
    ("numbers", "ample"),
    ("neighbours", "tight"),
    ("arrays", "tight"),
    ("arrays", "ample"),
    ("NumPy's", "ample"),
]
NAMES = ["step", "inner", "made"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factors", "more", "name"),
    [
        pytest.param(*pair, name, marks=() if at % len(NAMES) == by else pytest.mark.slow)
        for at, pair in enumerate(COMBINATIONS)
        for by, name in enumerate(NAMES)
    ],
)
def test_an_attribute_that_was_changed_is_read_again(factors, more, name):
    model, factors, more = Model(None), FACTORS[factors], BOTH_WAYS[more]
    for factor in (*factors, factors[0]):
        model.factor = factor
        fresh = Model(factor)
        wanted, found = (
            jax.value_and_grad(lambda y, one=one: one.run(y, name, **more).sum())(jnp.ones(3)) for one in (fresh, model)
        )
        for one, other in zip(wanted, found, strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_array_that_was_changed_in_place_is_read_again():
    model = Model(np.ones(3, np.float32))
    assert model.run(jnp.ones(3)).sum() == 3
    model.factor *= 2
    assert model.run(jnp.ones(3)).sum() == 48


FACTOR = 1.0


def by_global(y, t):
    return y * FACTOR


def run_with_global(factor, **more):
    global FACTOR
    FACTOR = factor
    return checkpointed(by_global, jnp.ones(3), 4, **more).sum()


@pytest.mark.parametrize("more", [TIGHT, AMPLE], ids=["tight", "ample"])
@pytest.mark.parametrize("run", [Model(None).run_with, run_with_global], ids=["attribute", "global"])
def test_what_is_differentiated_is_refused_after_other_values_too(run, more):
    assert run(1.0, **more) == 3 and run(2.0, **more) == 48
    with pytest.raises(StateError, match="params="):
        jax.grad(lambda factor: run(factor, **more))(2.0)
    assert run(3.0, **more) == 3 * 81


def test_a_backward_pass_has_the_values_of_its_forward_pass():
    model = Model(2.0)
    _, pull = jax.vjp(model.run, jnp.ones(3))
    model.factor = 5.0
    np.testing.assert_array_equal(pull(jnp.ones(3))[0], 16)


def test_a_method_may_read_what_an_outer_trace_gives():
    model = Model(None)
    for _ in range(2):  # the second trace must not meet what is left of the first
        traced = jax.jit(lambda factor: model.run_with(factor, **AMPLE))
        assert traced(2.0) == 48 and traced(3.0) == 3 * 81


def test_the_same_constants_are_not_compiled_again(monkeypatch):
    made, make = [], compiled.CompiledStep
    monkeypatch.setattr(compiled, "CompiledStep", lambda *given: made.append(make(*given)) or made[-1])
    model = Model(2.0)
    for name, count in (("step", 1), ("made", 2), ("inner", 3)):
        for _ in range(3):
            jax.grad(lambda y, name=name: model.run(y, name).sum())(jnp.ones(3))
        assert len(made) == count
    model.factor = jnp.float32(2)
    model.run(jnp.ones(3))
    model.factor = jnp.float32(2) + 0  # another array of the same numbers
    model.run(jnp.ones(3))
    assert len(made) == 4


def test_what_was_compiled_goes_with_the_object():
    model = Model(jnp.ones(3))
    jax.vjp(model.run, jnp.ones(3))[1](jnp.ones(3))
    gone, known = weakref.ref(model), len(compiled._compiled)
    del model
    gc.collect()
    assert gone() is None and len(compiled._compiled) == known - 1
