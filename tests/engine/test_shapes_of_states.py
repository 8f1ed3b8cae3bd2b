"""A state that comes back with other parts is refused, and the message says which belong there."""

import numpy as np
import pytest

import forebay as fb
from forebay.errors import StateError


@pytest.mark.parametrize(
    ("state", "returned", "said"),
    [
        ((1, 2), (1, 2, 3), "with 3 parts, where 2 belong"),
        ([1, [2, 3]], [1, [2]], "with 1 parts, where 2 belong"),
        ({"u": 1, "v": 2}, {"u": 1}, "with other keys: v is missing"),
        ({"u": 1}, {"u": 1, "w": 2}, "with other keys: w is not in the state"),
        ({"u": 1, "v": 2}, {"u": 1, "w": 2}, "v is missing, and w is not in the state"),
        ((1, 2), None, "None, where .* belongs"),
        ({"u": (1, 2)}, {"u": None}, "None, where .*u.* belongs"),
        ((1, 2), {"u": 1}, "is a dict, where a tuple belongs"),
    ],
)
def test_a_state_of_other_parts_is_refused(state, returned, said):
    def filled(tree):
        if isinstance(tree, dict):
            return {key: filled(part) for key, part in tree.items()}
        return type(tree)(map(filled, tree)) if isinstance(tree, tuple | list) else tree and np.zeros(3)

    with pytest.raises(StateError, match=said):
        fb.reverse(lambda *about: filled(returned), lambda *about: None, filled(state), 5, budget="1MB")


class Named:
    """Two arrays, of which a user tells the names."""

    def __init__(self, pressure, density):
        self.pressure, self.density = pressure, density


@pytest.mark.parametrize(("names", "said"), [((("pressure", "density"),), "'density'"), ((), "1")])
def test_an_array_of_a_registered_class_is_told_by_its_name(names, said):
    fb.register_state(
        Named, lambda named: ((named.pressure, named.density), None, *names), lambda _, arrays: Named(*arrays)
    )
    with pytest.raises(
        StateError, match=rf"state\[<flat index {said}>\] as float32\[2\], but the state has float64\[2\]"
    ):
        fb.reverse(
            lambda named, start, stop: Named(named.pressure, named.density.astype(np.float32)),
            lambda *about: None,
            Named(np.zeros(3), np.zeros(2)),
            5,
            budget="1MB",
        )
