"""Prefetching before modules run, on any torch: what is asked for and when, and that the model does not notice."""

import pytest

from forebay.errors import StateError
from forebay.memory import prefetch_hooks
from forebay.memory.unified.hooks import attach

torch = pytest.importorskip("torch")


def linears(count=3):
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(count)))


class Asked:
    """Remembers which tensors a model's hooks asked for, and whether ahead."""

    def __init__(self, model):
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.calls = []

    def __call__(self, tensor, ahead):
        self.calls.append((self.names.get(id(tensor), "input"), ahead))
        return False


def test_the_next_module_is_prefetched_once_the_order_is_known():
    model = linears()
    asked = Asked(model)
    with attach(model, asked):
        model(torch.zeros(2, 4))
        assert ("1.weight", True) not in asked.calls
        asked.calls.clear()
        model(torch.zeros(2, 4))
    position = asked.calls.index
    # What comes next is asked for first: after the computation waits for its own, it would wait for that, too.
    assert position(("1.weight", True)) < position(("0.weight", False)) < position(("1.weight", False))
    assert ("input", False) in asked.calls
    asked.calls.clear()
    model(torch.zeros(2, 4))
    assert not asked.calls


def test_the_way_back_is_learned_too():
    model = linears()
    asked = Asked(model)
    with attach(model, asked):
        for _ in range(2):
            out = model(torch.zeros(2, 4))
            asked.calls.clear()
            out.sum().backward()
    position = asked.calls.index
    assert position(("1.weight", True)) < position(("2.weight", False)) < position(("1.weight", False))
    assert position(("1.weight", False)) < position(("0.weight", False))


def test_results_and_gradients_are_untouched():
    model, x = linears(), torch.randn(2, 4)
    model(x).sum().backward()
    before = model(x).detach(), [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    with attach(model, lambda tensor, ahead: True) as hooks:
        out = model(x)
        out.sum().backward()
    assert torch.equal(out, before[0]) and hooks.moved >= 12
    assert all(torch.equal(one.grad, grad) for one, grad in zip(model.parameters(), before[1], strict=True))


def test_modules_may_work_in_place():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(inplace=True), torch.nn.Linear(4, 1))
    asked = Asked(model)
    with attach(model, asked):
        out = model(torch.randn(2, 4))
        asked.calls.clear()
        out.sum().backward()
    assert [name for name, _ in asked.calls if name.endswith("weight")] == ["2.weight", "0.weight"]


def test_parts_that_are_not_called_belong_to_the_module_that_uses_them():
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    asked, x = Asked(model), torch.randn(1, 3, 8)
    with attach(model, asked):
        for _ in range(2):
            asked.calls.clear()
            model(x, x, x)
    assert {name for name, _ in asked.calls} == {*asked.names.values(), "input"}


def test_parts_that_are_called_wait_for_their_turn():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))
            self.layers = linears()

        def forward(self, x):
            return self.layers(self.scale * x)

    model = Model()
    asked = Asked(model)
    with attach(model, asked):
        for _ in range(2):
            asked.calls.clear()
            model(torch.zeros(2, 4))
    position = asked.calls.index
    assert position(("scale", False)) < position(("layers.2.weight", True)) < position(("layers.1.weight", False))


def test_inputs_by_name_and_in_containers_are_seen():
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x, *, pair):
            return {"sum": self.weight * x + pair[0] + pair[1]["deep"]}

    model, shapes, backward = Named(), [], []
    with attach(model, lambda tensor, ahead: shapes.append(tuple(tensor.shape)) or False) as hooks:
        out = model(torch.ones(7, 1), pair=(torch.ones(7, 2), {"deep": torch.ones(7, 3)[:, :1]}))
        assert shapes == [(1,), (7, 1), (7, 2), (7, 1)]
        hooks.move = lambda tensor, ahead: backward.append(tensor is model.weight) or False
        out["sum"].sum().backward()
    assert backward == [True]


def test_only_models_are_taken():
    with pytest.raises(StateError, match="takes a torch module, not list"):
        prefetch_hooks([1])


def test_nothing_is_left_on_a_parameter_that_a_module_gives_out():
    class Given(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self):
            return self.weight

    model = Given()
    with attach(model, Asked(model)):
        for _ in range(3):
            model().sum().backward()
    assert not model.weight._backward_hooks


def test_a_graph_that_outlives_the_hooks_asks_for_nothing():
    model = linears()
    asked = Asked(model)
    with attach(model, asked):
        out = model(torch.zeros(2, 4))
    asked.calls.clear()
    out.sum().backward()
    assert not asked.calls
