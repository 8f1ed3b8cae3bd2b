"""`fit`: blocks that are given objects, give objects, or change what they are given."""

import gc
import os
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import count
from types import SimpleNamespace
from unittest.mock import MagicMock
from weakref import ref

import pytest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic products need on a GPU

torch = pytest.importorskip("torch")

from tests.torch.cases import crossed, mostly_slow  # noqa: E402
from tests.torch.models import AMPLE, EXACT, MLP, TwoTensorLike, check_as_plain, step  # noqa: E402
from tests.torch.models import deterministic as deterministic  # noqa: E402
from torch import nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.nn.utils.rnn import pack_sequence  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from forebay import Budget  # noqa: E402
from forebay.errors import BudgetError  # noqa: E402
from forebay.torch import fit  # noqa: E402
from forebay.torch.replay.arguments import CallArguments, tensors_in  # noqa: E402
from forebay.torch.replay.contents import MOST, contents_of  # noqa: E402
from forebay.torch.saved_tensors import KeptTensor  # noqa: E402

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


class Graph:
    """An object whose store knows it, weakly, and that keeps one of its own methods."""

    def __init__(self, x):
        self.store = TensorStore(self, x)
        self.give = self.given

    def given(self):
        return self.store.table["x"]

    @property
    def x(self):
        return self.give()

    @x.setter
    def x(self, x):
        self.store.parent().store.table["x"] = x


class TensorStore:
    def __init__(self, graph, x):
        self.parent, self.table = ref(graph), {"x": x}


class Reading(MLP):
    """Reads what it is given, and gives something else."""

    def forward(self, data):
        return super().forward(data.x) * data.factor


class Between(nn.Module):
    """Changes the object between its blocks, and once more behind them."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Reading() for _ in range(4))

    def forward(self, x):
        data = Attributes(x)
        data.factor, data.all = 1.0, []
        for block in self.blocks:
            data.x = block(data)
            data.factor *= 2
            data.all.append(data.x)
        return sum(data.all)


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
    "graph": lambda: Chain(Setting, Graph),
    "between blocks": Between,
    "one tensor thrice": Attending,
}


@pytest.mark.parametrize(("make", "choice"), crossed(MODELS, EXACT))
def test_objects_are_as_the_first_run_found_them(make, choice):
    check_as_plain(make, choice)


def test_a_budget_that_is_too_small_is_found_where_blocks_give_objects():
    model, x = Chain(Making, Attributes), torch.randn(32, 8)
    fit(model, Budget(device="1kB"))
    step(model, x)
    with pytest.raises(BudgetError, match="does not fit"):
        step(model, x)


@pytest.mark.parametrize(
    "make",
    mostly_slow({name: make for name, make in MODELS.items() if name != "graph"}, "cache", "between blocks"),
)  # a graph holds itself
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


class Strict:
    """An object that lets nobody copy it, set what it holds, or find what it does not."""

    def __init__(self, x):
        vars(self)["x"] = x

    x = property(lambda self: vars(self)["x"])

    def __copy__(self):
        raise AssertionError

    __deepcopy__ = __reduce_ex__ = __setattr__ = __getattr__ = __copy__


class Checked(list):
    """A list that takes nothing but through its constructor."""

    def append(self, one):
        raise AssertionError

    __iter__ = __setitem__ = extend = clear = append


CHANGES = {
    "attribute": (lambda: SimpleNamespace(x=1), lambda one: vars(one).update(x=2)),
    "attribute more": (lambda: SimpleNamespace(), lambda one: setattr(one, "x", 2)),
    "attribute less": (lambda: SimpleNamespace(x=1), lambda one: delattr(one, "x")),
    "slot": (lambda: Slots(1), lambda one: setattr(one, "x", 2)),
    "strict": (lambda: Strict(1), lambda one: vars(one).update(x=2)),
    "frozen": (lambda: Frozen([1]), lambda one: one.x.append(2)),
    "item": (lambda: Named(x=1), lambda one: one.update(x=2)),
    "list": (lambda: Checked([1]), lambda one: list.append(one, 2)),
    "deque": (lambda: SimpleNamespace(x=deque([1], maxlen=1)), lambda one: one.x.append(2)),
    "set": (lambda: SimpleNamespace(x={1}), lambda one: one.x.add(2)),
    "default": (lambda: SimpleNamespace(x=defaultdict(list)), lambda one: one.x["more"].append(2)),
    "below": (lambda: SimpleNamespace(x=Pair(UserDict(y=Attributes([1])), ())), lambda one: one.x.x["y"].x.append(2)),
}


def looks(thing):
    """Write what a thing is and holds."""
    held = contents_of(thing)
    below = [one if isinstance(one, int) else looks(one) for one in held.values]
    return *held[:-1], below


@pytest.mark.parametrize(("make", "change"), CHANGES.values(), ids=CHANGES.keys())
def test_what_the_first_run_changed_is_given_as_it_was_each_time(make, change):
    thing = make()
    before = looks(thing)
    given = CallArguments((thing, 3), {"itself": thing}, KeptTensor)
    change(thing)
    after = looks(thing)
    for _ in range(2):
        with given.for_replay() as ((other, number), kwargs):
            assert looks(other) == before and other is kwargs["itself"] is not thing and number == 3
            change(other)
    assert looks(thing) == after != before


def test_what_it_did_not_change_is_the_very_same():
    same, held, number = Attributes([torch.ones(2)]), SimpleNamespace(y=[0]), torch.ones(3)
    held.same, held.itself = same, held
    given = CallArguments((same, held, number, number), {}, KeptTensor)
    held.y[0] = 1
    with given.for_replay() as ((first, second, third, fourth), _):
        assert first is same is second.same and second is second.itself is not held and second.y == [0]
        assert third is fourth is not number


@pytest.mark.parametrize(("make", "change"), CHANGES.values(), ids=CHANGES.keys())
def test_what_a_second_run_does_to_the_very_same_is_put_back(make, change):
    thing = make()
    owner = Attributes(thing)
    given, before = CallArguments((owner,), {}, KeptTensor), looks(thing)
    for _ in range(2):
        with given.for_replay() as ((same,), _):
            assert same is owner and same.x is thing
            change(thing)
            assert looks(thing) != before
        assert looks(thing) == before and owner.x is thing
    with suppress(ZeroDivisionError), given.for_replay():
        change(thing)
        raise ZeroDivisionError
    assert looks(thing) == before


def test_what_cannot_be_made_twice_is_refused_when_it_is_changed():
    class Ending(Attributes):
        def __del__(self):
            pass

    given = CallArguments((Ending(1),), {}, KeptTensor)
    with given.for_replay() as ((thing,), _):
        assert thing.x == 1
    thing = Ending(1)
    given = CallArguments((thing,), {}, KeptTensor)
    thing.x = 2
    with pytest.raises(RuntimeError, match="a Ending that has changed since"), given.for_replay():
        pass


def test_what_holds_too_much_is_not_looked_into():
    large = SimpleNamespace(x=torch.ones(2), all=[torch.ones(1) for _ in range(MOST + 1)])
    given = CallArguments((large,), {}, KeptTensor)
    large.x = torch.ones(3)
    with given.for_replay() as ((other,), _):
        assert len(other.x) == 2 and other.all is large.all and len(tensors_in(large)) == 1


def test_tensors_are_found_in_things_of_all_kinds():
    x = torch.ones(2)
    things = Pair(x, x), deque([x]), Slots(x), Frozen([x]), Strict(x), Checked([x]), UserDict(y={"z": (x,)}), Named(x=x)
    assert [len(tensors_in(one)) for one in things] == [1] * len(things)
    assert len(tensors_in(pack_sequence([torch.ones(3, 2), torch.ones(1, 2)]))) == 2


@pytest.mark.parametrize("given", [iter([1]), SimpleNamespace(x=count()), (one for one in (1, 2)), enumerate([1])])
def test_an_iterator_is_refused(given):
    with pytest.raises(RuntimeError, match="give it a list"):
        CallArguments((given,), {}, KeptTensor)


@pytest.mark.parametrize("way", ["without gradients", "checkpointed"])
def test_nobody_looks_at_what_is_given_where_others_run_a_block(way):
    class Drawing(MLP):
        def forward(self, x, scales):
            return super().forward(x) * (next(scales) if isinstance(scales, Iterator) else 1.0)

    model, x = nn.Sequential(Drawing()), torch.randn(4, 8)
    block = fit(model, AMPLE, blocks="0")[0]
    if way == "without gradients":
        with torch.no_grad():
            scaled = block(x, iter([2.0]))
    else:
        with pytest.warns(UserWarning, match="left to it"):
            scaled = checkpoint(block, x, iter([2.0]), use_reentrant=False)
    assert torch.equal(scaled, 2 * block(x, None))
    with pytest.raises(RuntimeError, match="give it a list"):
        block(x, iter([2.0]))


def test_what_only_looks_like_one_is_not():
    with CallArguments((StringIO("text"), MagicMock()), {}, KeptTensor).for_replay() as ((file, _), _):
        assert file.read() == "text"


class Short(deque):
    """A deque of its own kind, of which nobody knows how long it may be."""


@pytest.mark.parametrize("make", [lambda: Short([1], 1), lambda: ValueError("text"), lambda: partial(print, 1)])
def test_what_cannot_be_made_is_the_very_same_and_refused_where_it_changed(make):
    thing = make()
    with CallArguments((thing,), {}, KeptTensor).for_replay() as ((again,), _):
        assert again is thing
    given = CallArguments((thing,), {}, KeptTensor)
    thing.more = 2
    with pytest.raises(RuntimeError, match="has changed since"), given.for_replay():
        pass


def test_an_object_that_nobody_holds_is_made_again():
    with CallArguments((Attributes([torch.ones(2)]),), {}, KeptTensor).for_replay() as ((first,), _):
        assert isinstance(first, Attributes) and len(first.x[0]) == 2


def test_what_others_have_set_on_a_tensor_is_there_and_what_it_has_itself_stays():
    x = TwoTensorLike(torch.ones(2))
    x.scale = 0.5
    with CallArguments((x,), {}, KeptTensor).for_replay() as ((other,), _):
        assert other.scale == 0.5 and isinstance(other, TwoTensorLike) and other.elem is not x.elem
