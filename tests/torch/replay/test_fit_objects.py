"""`fit`: blocks that are given objects which outlive the step, and do all kinds of things to them."""

import os
import random
from collections import namedtuple
from types import MethodType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import pytest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic products need on a GPU

torch = pytest.importorskip("torch")

from tests.torch.cases import crossed  # noqa: E402
from tests.torch.models import AMPLE, EXACT, MLP, check_as_plain, step  # noqa: E402
from tests.torch.models import deterministic as deterministic  # noqa: E402
from torch import nn  # noqa: E402

from forebay.torch import fit  # noqa: E402


class Held:
    """An object that others may refer to weakly, as they may to most."""

    def __init__(self, **holds):
        vars(self).update(holds)


class Itself(dict):
    """A dict whose attributes are its items."""

    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self


class Hashed:
    """An object that is known by its name to the one above it."""

    def __init__(self, name, above=None):
        self.name, self.below, self.above, self.factor = name, set(), above, 1.0
        if above is not None:
            above.below.add(self)

    def __hash__(self):
        return hash(self.name)


class Single(namedtuple("Single", "factor more")):
    """A tuple that is made in another way than its fields tell."""

    def __new__(cls, factor):
        return super().__new__(cls, factor, [])


class Changing:
    """Becomes one of another class."""

    factor = 1.0

    def turn(self):
        self.__class__ = Changed


class Changed(Changing):
    factor = 3.0


def doubled(held):
    """Change an object, and give what it was."""
    held.factor *= 2
    return held.factor / 2


def counted(several, others):
    """Put something into one list, and count what is in another."""
    several.append(1)
    return len(others)


def chained(count=600):
    """Give the last of many objects, each of which knows the one before."""
    last = None
    for _ in range(count):
        last = Held(before=last, factor=1.0)
    return last


def knowing(thing):
    """Have a thing know itself."""
    thing.itself = thing
    return thing


def marked(x):
    """Set an attribute of a tensor."""
    x = x * 1.0
    x.scale = 0.5
    return x


def drawn(held):
    """Draw from generators of three kinds."""
    return torch.rand(1, generator=held["torch"]).item() + held["python"].random() + held["numpy"].random()


class Case(NamedTuple):
    scale: Any
    """what a block makes of what it is given, before anything that is saved"""
    hold: Any = lambda: Held(factor=1.0)
    """what the model holds all the time"""
    give: Any = lambda x, held: (x, held)
    """what it gives its blocks"""
    after: Any = lambda held: None
    """what it does behind them"""


CASES = {
    "attribute": Case(doubled, after=lambda held: setattr(held, "factor", 1.0)),
    "emptied behind": Case(
        lambda held: counted(held.all, held.all), lambda: Held(all=[]), after=lambda held: held.all.clear()
    ),
    "method": Case(
        lambda give: give(),
        give=lambda x, held: (x, MethodType(doubled, held)),
        after=lambda held: setattr(held, "factor", 1.0),
    ),
    "method of a list": Case(
        lambda put, all_: put(1) or len(all_), list, lambda x, held: (x, held.append, held), list.clear
    ),
    "items that are attributes": Case(
        lambda held: doubled(held) + held["factor"],
        lambda: Itself(factor=0.5),
        after=lambda held: held.update(factor=0.5),
    ),
    "one list twice": Case(counted, list, lambda x, held: (x, held, held), list.clear),
    "two lists": Case(counted, list, lambda x, held: (x, [1], [1])),
    "a list and its owner": Case(
        lambda all_, owner: counted(all_, owner.all),
        lambda: Held(all=[]),
        lambda x, held: (x, held.all, held),
        lambda held: held.all.clear(),
    ),
    "a list and its owner, by name": Case(
        lambda owner: counted(owner["held"].all, owner["all"]),
        lambda: Held(all=[]),
        lambda x, held: (x, {"held": held, "all": held.all}),
        lambda held: held.all.clear(),
    ),
    "another class": Case(
        lambda held: (held.factor, held.turn())[0], Changing, after=lambda held: setattr(held, "__class__", Changing)
    ),
    "chain": Case(doubled, chained, after=lambda held: setattr(held, "factor", 1.0)),
    "known by its hash": Case(
        lambda held: doubled(held) + len(held.above.below), give=lambda x, held: (x, Hashed("below", Hashed("above")))
    ),
    "tuple that is made otherwise": Case(
        lambda held: held.factor + counted(held.more, held.more), give=lambda x, held: (x, Single(0.5))
    ),
    "a tensor and its owner": Case(
        lambda x, held: 1.0 if held.x is x else 2.0,
        give=lambda x, held: (x, x, vars(held).update(x=x) or held),
        after=lambda held: vars(held).pop("x"),
    ),
    "weakly": Case(
        lambda held: doubled(held.other()),
        lambda: (own := Held(factor=1.0), Held(other=ref(own))),
        lambda x, held: (x, held[1]),
        lambda held: setattr(held[0], "factor", 1.0),
    ),
    "tuple that knows itself": Case(
        lambda held: counted(held.more, held.itself.more),
        give=lambda x, held: (x, knowing(Single(0.5))),
    ),
    "attribute of a tensor": Case(lambda: 1.0, give=lambda x, held: (marked(x),)),
    "generators": Case(
        drawn,
        lambda: {
            "torch": torch.Generator().manual_seed(1),
            "python": random.Random(2),
            "numpy": np.random.default_rng(3),
            "nobody's": random.SystemRandom(),
        },
    ),
}


class Block(MLP):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, *given):
        return super().forward(x * (self.scale(*given) * getattr(x, "scale", 1.0)))


class Pushing(MLP):
    """Leaves what it is given as it was, where it comes to its end."""

    def forward(self, x, held):
        held.factor += 1
        y = super().forward(x) * held.factor
        held.factor -= 1
        return y


class Model(nn.Module):
    def __init__(self, case, block=None):
        super().__init__()
        self.blocks = nn.ModuleList(Block(case.scale) if block is None else block() for _ in range(4))
        self.case, self.held = case, case.hold()

    def forward(self, x):
        for block in self.blocks:
            x = block(*self.case.give(x, self.held))
        self.case.after(self.held)
        return x


@pytest.mark.parametrize(("case", "choice"), crossed(CASES, ["keep", "recompute, inputs offloaded", None]))
def test_what_is_done_to_objects_is_done_once(case, choice):
    check_as_plain(lambda: Model(case), choice)


@pytest.mark.parametrize("choice", EXACT)
def test_what_a_block_would_have_undone_is_undone_where_it_stops_before(choice):
    check_as_plain(lambda: Model(Case(None, lambda: Held(factor=1)), Pushing), choice)


def test_a_tensor_in_an_object_that_was_changed_in_place_is_refused():
    case = Case(lambda held: held.x.sum(), lambda: Held(x=torch.ones(2)), after=lambda held: held.x.add_(1))
    model = fit(Model(case), AMPLE, choice="recompute")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        step(model, torch.randn(32, 8))
