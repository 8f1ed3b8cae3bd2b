"""`fit`: blocks that are given containers, or change them, and those that are given or give what is beyond these."""

import gc
import warnings
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import pytest
import torch
from tests.torch.cases import crossed, mostly_slow
from tests.torch.models import AMPLE, EXACT, MLP, equal, step, trains_alike
from tests.torch.models import deterministic as deterministic
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.utils.rnn import pack_sequence

from forebay.torch import fit, plan_of

Pair = namedtuple("Pair", "x y")


class Given(nn.Module):
    """Blocks that are given what is made of the tensor before, and give something of which it is taken again."""

    def __init__(self, kind, wrap=lambda x: x, unwrap=lambda y: y):
        super().__init__()
        self.blocks, self.wrap, self.unwrap = nn.ModuleList(kind() for _ in range(4)), wrap, unwrap

    def forward(self, x):
        for block in self.blocks:
            x = self.unwrap(block(self.wrap(x)))
        return x


class OfDict(MLP):
    def forward(self, data):
        return {"x": super().forward(data["x"]) * data.get("scale", 1.0)}


class OfPair(MLP):
    def forward(self, pair):
        return Pair(super().forward(pair.x), pair.y)


class OfList(MLP):
    """Changes the list that it is given, and what is in it."""

    def forward(self, data):
        data.append(super().forward(data.pop(0)))
        data[-1] = {"y": data[-1]}
        return data


class OfCache(MLP):
    """Puts a key into a dict that all blocks are given."""

    def forward(self, x, cache):
        keys = cache.setdefault("keys", [])
        keys.append(x)
        return super().forward(sum(keys))


class Caching(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(OfCache() for _ in range(4))

    def forward(self, x):
        cache = {}
        for block in self.blocks:
            x = block(x, cache)
        return x


class Packed(MLP):
    def forward(self, packed):
        return packed._replace(data=super().forward(packed.data))


class Thrice(MLP):
    def forward(self, qkv):
        query, key, value = qkv
        return super().forward(query + key) * (query is key is value)


class Marked(MLP):
    def forward(self, x):
        return super().forward(x) * x.scale


def marked(x):
    x.scale = 0.5
    return x


CONTAINERS = {
    "dict": lambda: Given(OfDict, lambda x: {"x": x, "scale": 0.5}, lambda y: y["x"]),
    "ordered dict": lambda: Given(OfDict, lambda x: OrderedDict(x=x), lambda y: y["x"]),
    "named tuple": lambda: Given(OfPair, lambda x: Pair(x, (1, None)), lambda y: y.x),
    "list": lambda: Given(OfList, lambda x: [x, 3, torch.float32], lambda y: y[-1]["y"]),
    "packed sequence": lambda: Given(Packed, lambda x: pack_sequence([x[:20], x[20:]]), lambda y: y.data),
    "one tensor thrice": lambda: Given(Thrice, lambda x: (x, x, x)),
    "cache": Caching,
}


@pytest.mark.parametrize(("make", "choice"), crossed(CONTAINERS, EXACT))
def test_containers_are_as_the_first_run_found_them(make, choice):
    trains_alike(make, choice)


@pytest.mark.parametrize("make", mostly_slow(CONTAINERS, "cache", "list"))
def test_nothing_is_left_of_a_forward_pass_that_nobody_differentiates(make):
    model = fit(make(), AMPLE, choice="recompute")
    step(model, torch.randn(32, 8))
    gc.collect()
    gc.disable()
    try:
        output = model(torch.randn(32, 8))
        held = StorageWeakRef(output.untyped_storage())
        assert not held.expired()
        del output
        assert held.expired()
    finally:
        gc.enable()


class Data:
    def __init__(self, x):
        self.x = x


class OfObject(MLP):
    def forward(self, data):
        data.x = super().forward(data.x)
        return data.x


class OfIterator(MLP):
    def forward(self, data):
        return super().forward(next(data)) * next(data)


class OfTwice(MLP):
    def forward(self, data):
        one, other = data
        one[0] = super().forward(one[0])
        return other[0]


class Giving(MLP):
    def forward(self, x):
        return Data(super().forward(x))


class OfGenerator(MLP):
    def forward(self, data):
        x, generator = data
        return super().forward(x) * torch.rand(8, generator=generator)


class OfCall(MLP):
    def forward(self, data):
        x, call = data
        return super().forward(call(x))


def counting_closure(x):
    calls = []

    def call(x):
        calls.append(0)
        return x * len(calls)

    return x, call


def counting_default(x):
    def call(x, calls=[0]):  # noqa: B006 - kept between calls
        calls[0] += 1
        return x * calls[0]

    return x, call


class CountingModule(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def twice(x):
    one = [x]
    return one, one


BEYOND = {
    "Data": lambda: Given(OfObject, Data),
    "SimpleNamespace": lambda: Given(OfObject, lambda x: SimpleNamespace(x=x)),
    "list_iterator": lambda: Given(OfIterator, lambda x: iter([x, 2.0])),
    "list that is there twice": lambda: Given(OfTwice, twice),
    "Generator": lambda: Given(OfGenerator, lambda x: (x, torch.Generator().manual_seed(3))),
    "CountingModule": lambda: Given(OfCall, lambda x: (x, CountingModule())),
    "function": lambda: Given(OfCall, counting_closure),
    "function ": lambda: Given(OfCall, counting_default),
    "Data ": lambda: Given(Giving, unwrap=lambda y: y.x),
}


@pytest.mark.parametrize(("kind", "make"), BEYOND.items())
def test_what_is_beyond_containers_is_kept_with_one_warning_that_names_the_block(kind, make):
    model, plain = make(), make()
    plain.load_state_dict(model.state_dict())
    fit(model, AMPLE)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for seed in range(4):
            x = torch.randn(32, 8, generator=torch.Generator().manual_seed(seed))
            assert equal(step(model, x), step(plain, x))
    messages = [str(warning.message) for warning in told]
    assert len(messages) == 4  # one a block
    for number, message in enumerate(messages):
        assert f"a block (blocks.{number}) is given, or gives, a {kind.strip()}: " in message


def test_a_block_that_comes_to_be_given_an_object_is_kept_from_then_on():
    class Either(MLP):
        def forward(self, data):
            return super().forward(data.x if isinstance(data, Data) else data)

    model, plain = Given(Either), Given(Either)
    plain.load_state_dict(model.state_dict())
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    for number in range(8):
        for net in (model, plain):
            net.wrap = Data if number == 3 else lambda x: x
        if number == 3:
            with pytest.warns(UserWarning, match="gives, a Data"):
                found = step(model, x)
        else:
            found = step(model, x)
        assert equal(found, step(plain, x))
    assert set(plan_of(model).choices.values()) == {"keep"}


def test_functions_that_hold_nothing_are_plain_values():
    def of(call):
        return lambda: Given(OfCall, lambda x: (x, call))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call in (torch.tanh, nn.functional.relu, lambda x: 2 * x):
            trains_alike(of(call), "recompute")


def test_what_others_have_set_on_a_tensor_is_there():
    trains_alike(lambda: Given(Marked, marked), "recompute")
