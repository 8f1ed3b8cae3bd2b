"""`fit`: blocks that are given objects, give objects, or change what they are given."""

import os
from collections import OrderedDict, UserDict, deque, namedtuple
from dataclasses import dataclass
from threading import Lock
from types import SimpleNamespace

import pytest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic products need on a GPU

torch = pytest.importorskip("torch")

from tests.torch.models import AMPLE, EXACT, MLP, equal, step  # noqa: E402
from tests.torch.models import deterministic as deterministic  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_sequence  # noqa: E402

from penstock import Budget  # noqa: E402
from penstock.errors import BudgetError  # noqa: E402
from penstock.torch import fit, plan_of  # noqa: E402
from penstock.torch.given import MOST, Given, tensors_in  # noqa: E402
from penstock.torch.saved import Kept  # noqa: E402

Pair = namedtuple("Pair", "x y")


class Named(dict):
    """A dict of a kind of its own."""


class Attributes:
    def __init__(self, x):
        self.x = x


class Slots:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


@dataclass(frozen=True)
class Frozen:
    x: object


class Cache:
    """Collects what blocks put into it, as those of language models do."""

    def __init__(self):
        self.keys = {}

    def update(self, number, key):
        self.keys.setdefault(number, []).append(key)
        return torch.cat(self.keys[number], -1)


class Setting(MLP):
    """Sets an attribute of what it is given."""

    def forward(self, data):
        data.x = super().forward(data.x)
        return data


class SettingItem(MLP):
    def forward(self, data):
        data["x"] = super().forward(data["x"])
        return data


class Making(MLP):
    """Gives another object."""

    def forward(self, data):
        return type(data)(super().forward(data.x))


class Caching(MLP):
    def forward(self, x, cache):
        return super().forward(x) + cache.update(id(self), x).sum(-1, keepdim=True)


class Chain(nn.Module):
    """Hands an object from block to block."""

    def __init__(self, block, make):
        super().__init__()
        self.blocks, self.make = nn.ModuleList(block() for _ in range(4)), make

    def forward(self, x):
        data = self.make(x * 1.0)
        for block in self.blocks:
            data = block(data)
        return data.x if hasattr(data, "x") else data["x"]


class WithCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Caching() for _ in range(4))

    def forward(self, x):
        cache = Cache()
        for block in self.blocks:
            x = block(x, cache=cache)
        return x


class Attending(nn.Module):
    """Blocks that take another way where query, key and value are one tensor."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(3))

    def forward(self, x):
        x = x[None]
        for block in self.blocks:
            x = x + block(x, x, x, need_weights=False)[0]
        return x


MODELS = {
    "attribute": lambda: Chain(Setting, Attributes),
    "namespace": lambda: Chain(Setting, lambda x: SimpleNamespace(x=x)),
    "slot": lambda: Chain(Setting, Slots),
    "another": lambda: Chain(Making, Attributes),
    "another, frozen": lambda: Chain(Making, Frozen),
    "dict": lambda: Chain(SettingItem, lambda x: {"x": x}),
    "ordered": lambda: Chain(SettingItem, lambda x: OrderedDict(x=x)),
    "dict of its own kind": lambda: Chain(SettingItem, lambda x: Named(x=x)),
    "user's dict": lambda: Chain(SettingItem, lambda x: UserDict(x=x)),
    "cache": WithCache,
    "one tensor thrice": Attending,
}


@pytest.mark.parametrize("choice", EXACT)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_objects_are_as_the_first_run_found_them(make, choice):
    model, plain = make(), make()
    plain.load_state_dict(model.state_dict())
    fit(model, AMPLE, choice=choice)
    for seed in range(3):
        x = torch.randn(32, 8, generator=torch.Generator().manual_seed(seed))
        assert equal(step(model, x), step(plain, x))
    assert len(plan_of(model).picks) == len(model.blocks)


def test_a_budget_that_is_too_small_is_found_where_blocks_give_objects():
    model, x = Chain(Making, Attributes), torch.randn(32, 8)
    fit(model, Budget(device="1kB"))
    step(model, x)
    with pytest.raises(BudgetError, match="does not fit"):
        step(model, x)


def again(*args):
    return Given(args, {}, Kept).again()[0]


def test_what_is_there_twice_is_one_again():
    x = torch.ones(3)
    held = SimpleNamespace(x=x, more=[x])
    held.itself = held
    first, second, third = again(x, x, held)
    assert first is second is third.x is third.more[0] and third.itself is third and third is not held


@pytest.mark.parametrize(
    "thing",
    [
        Pair(torch.ones(2), torch.zeros(3)),
        deque([torch.ones(2)], maxlen=1),
        [torch.ones(2), {"more": {torch.float32}}],
        pack_sequence([torch.ones(3, 2), torch.ones(1, 2)]),
        SimpleNamespace(lock=Lock(), of=Pair(torch.ones(2), None)),
    ],
    ids=["named", "deque", "nested", "packed", "with a lock"],
)
def test_things_of_all_kinds_are_given_again(thing):
    tensors = tensors_in(thing)
    (other,) = again(thing)
    assert tensors and type(other) is type(thing) and equal(tensors_in(other), tensors)
    assert not any(one is two for one in tensors for two in tensors_in(other))


def test_what_holds_too_much_or_cannot_be_copied_is_given_as_it_is():
    class Alone:
        def __init__(self):
            self.x = torch.ones(2)

        def __reduce_ex__(self, protocol):
            raise TypeError("there is only one")

    large, alone, model = (
        SimpleNamespace(all=list(range(10)) + [object() for _ in range(MOST)]),
        Alone(),
        nn.Linear(2, 2),
    )
    assert again(large, alone, model, "text", 3) == (large, alone, model, "text", 3)
