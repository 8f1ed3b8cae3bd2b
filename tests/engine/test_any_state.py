"""Random states in random containers, types, orders and plans: what backward sees is what NumPy alone would keep."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.engine.trees import flatten
from tests.example_counts import fewer

Three = namedtuple("Three", "a b c")
DTYPES = ["f4", "f8", "i2", "u8", "c8", "f2", "g", ">f4", "?", "M8[s]", "S3", "i4,f8"]
KEYS = ["p", "q", 3, ("r", 1)]


@dataclass(frozen=True)
class Holder:
    inside: Any
    step: int = 7


@st.composite
def arrays(draw):
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    seed = draw(st.integers(0, 2**16))
    count = int(np.prod(shape))
    raw = np.random.default_rng(seed).integers(0, 2, max(1, count * dtype.itemsize), np.uint8)
    axes = draw(st.permutations(range(len(shape))))
    turned = np.ndarray(tuple(shape[axis] for axis in axes), dtype, raw)
    return turned.transpose(np.argsort(axes)) if shape else turned


def containers(children):
    return st.one_of(
        st.lists(children, min_size=1, max_size=3).map(tuple),
        st.lists(children, min_size=1, max_size=3),
        st.dictionaries(st.sampled_from(KEYS), children, min_size=1, max_size=3),
        st.dictionaries(st.sampled_from(["z", "a"]), children, min_size=1).map(OrderedDict),
        st.tuples(children, children, children).map(lambda parts: Three(*parts)),
        children.map(Holder),
    )


def rebuilt(tree, shuffle):
    """Build a tree anew with the same arrays, dicts in another order of their keys."""
    if isinstance(tree, dict):
        return {key: rebuilt(tree[key], shuffle) for key in shuffle(list(tree))}
    if isinstance(tree, Holder):
        return Holder(rebuilt(tree.inside, shuffle))
    if isinstance(tree, tuple | list):
        parts = [rebuilt(part, shuffle) for part in tree]
        return type(tree)(*parts) if isinstance(tree, Three) else type(tree)(parts)
    return advanced(tree)


def advanced(array):
    """Flip one bit pattern further, keeping the order in memory."""
    new = np.ndarray(array.shape, array.dtype, np.empty(array.nbytes, np.uint8), strides=array.strides)
    new[...] = array
    memory = np.ndarray((array.nbytes,), np.uint8, new.base)
    memory ^= 1
    memory[: 1 + memory.size // 2] ^= 1
    return new


def seen_of(tree):
    leaves, structure = flatten(tree)
    return structure, [(type(x), x.dtype, x.shape, x.strides if x.size else None, x.tobytes()) for x in leaves]


@pytest.mark.slow
@given(
    st.recursive(arrays(), containers, max_leaves=5).filter(lambda tree: not isinstance(tree, np.ndarray)),
    st.sampled_from(["storeall", "revolve:1", "revolve:3", "uniform:2", "auto"]),
    st.sampled_from([None, "raw", "lossless"]),
    st.integers(3, 9),
    st.randoms(use_true_random=False),
)
@fewer(60, 2000)
def test_backward_sees_what_was_there(tree, schedule, codec, steps, random):
    def forward(state, begin, end):
        for _ in range(begin, end):
            state = rebuilt(state, lambda keys: random.sample(keys, len(keys)))
        return state

    kept = [tree]
    for _ in range(steps - 1):
        kept.append(rebuilt(kept[-1], lambda keys: keys))
    seen = []

    def backward(state, step):
        assert not any(leaf.flags.writeable for leaf in flatten(state)[0])
        seen.append(seen_of(state))

    codecs = {codec: fb.CodecCost(2, 1e15, 1e15, worst=1.1)} if codec else {}
    costs = fb.Costs(1.0, 1e-3, 1e9, codecs=codecs)
    fb.reverse(forward, backward, tree, steps, budget="200kB", schedule=schedule, codec=codec, costs=costs)
    for (structure, leaves), state in zip(seen, reversed(kept), strict=True):
        expected, wanted = seen_of(rebuilt_as(tree, state))
        assert structure == expected and leaves == wanted


def rebuilt_as(tree, state):
    """Return a state, built as the initial one: an ordered dict that became a dict is one again."""
    return flatten(tree)[1].unflatten(flatten(state)[0])
