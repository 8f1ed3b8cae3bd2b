"""What blocks save, found through their graphs once they have run."""

import gc
from weakref import ref

import pytest

torch = pytest.importorskip("torch")

from tests.torch.models import AMPLE, Residual, UNet, equal, pair, problem, step  # noqa: E402
from tests.torch.models import deterministic as deterministic  # noqa: E402
from torch import nn  # noqa: E402
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from penstock.torch import fit, frame, plan_of  # noqa: E402
from penstock.torch.fit import _of  # noqa: E402
from penstock.torch.frame import Frame  # noqa: E402
from penstock.torch.graph import hook, next_node, reach, survey  # noqa: E402


class Ending(nn.Module):
    """A block whose output is saved, so that a second run goes to its end."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 64), nn.Linear(64, 8)
        self.way = "plain"

    def forward(self, x):
        y = torch.tanh(self.up(x))
        if self.way == "skipped":
            return x
        if self.way == "other":
            y = torch.sin(y).exp()
        z = self.down(y)
        if self.way == "changed":
            y.mul_(2.0)
        if self.way == "twice":
            z = self.down(torch.tanh(self.up(torch.relu(z))))
        self.kept = z if self.way == "captured" else None
        return torch.relu(z)


@pytest.fixture
def without_hooks(monkeypatch):
    """Have a block that has a plan fail where it runs under hooks."""

    def forbid():
        def fail(*others):
            raise AssertionError("hooks")

        monkeypatch.setattr(Frame, "_packing", fail)
        monkeypatch.setattr(Frame, "_taking", fail)

    return forbid


def taught(choice="recompute", kind=Ending, steps=3):
    """Give a model with a plan, one that is equal to it, and what they take."""
    model, plain = pair(kind)
    fit(model, AMPLE, choice=choice)
    x = torch.randn(16, 8)
    for _ in range(steps):
        assert equal(step(model, x), step(plain, x))
    assert all(one.chart is not None for one in _of(model).fitting._now.expected)
    return model, plain, x


def set_way(way, *models):
    for model in models:
        for block in model:
            block.way = way


def is_tanh(node, place):
    return type(node).__name__ == "TanhBackward0"


def called(block, x):
    """Give the outputs of a call, and the numbers of its nodes."""
    first = next_node()
    output = block(x)
    return [output], range(first, next_node())


def test_a_chart_leads_to_the_same_places_of_another_call():
    block, x = Ending(), torch.randn(4, 8, requires_grad=True)
    chart = survey(*called(block, x), is_tanh)
    assert [place.value for place in chart.places] == ["_saved_result"]
    outputs, made = called(block, x)
    nodes = reach(chart, outputs, made)
    assert type(nodes[chart.places[0].step]).__name__ == "TanhBackward0"
    assert torch.equal(nodes[chart.places[0].step]._saved_result, torch.tanh(block.up(x)))
    packed = []
    again = hook(chart, outputs, made, 0, lambda tensor: packed.append(tensor), lambda saved: packed[0])
    assert again == chart and len(packed) == 1 and torch.equal(packed[0], torch.tanh(block.up(x)))


def test_no_chart_leads_into_what_was_there_before_a_call():
    block, x = Ending(), torch.randn(4, 8, requires_grad=True)
    chart = survey(*called(block, x), is_tanh)
    (before,), made = called(block, x)
    later = range(made.stop, made.stop + len(made))
    assert reach(chart, [before], later) is None
    assert survey([before * 2], range(made.stop, made.stop + 1), is_tanh).places == ()
    block.way = "other"
    assert reach(chart, *called(block, x)) is None
    block.way = "plain"
    assert reach(chart, *called(lambda given: block(block(given)), x)) is None  # as it ends the same, and more before
    assert reach(chart, [], made) is None


@pytest.mark.parametrize("choice", ["recompute", "recompute, inputs offloaded"])
@pytest.mark.parametrize("kind", [Residual, UNet], ids=lambda kind: kind.__name__)
def test_blocks_with_a_chart_run_without_hooks(kind, choice, without_hooks):
    (model, x), (plain, _) = problem(kind), problem(kind)
    fit(model, AMPLE, choice=choice)
    for number in range(5):
        assert equal(step(model, x), step(plain, x))
        if not number:
            without_hooks()
    assert choice in plan_of(model).choices.values()


@pytest.mark.parametrize("choice", ["recompute", "recompute, inputs offloaded"])
@pytest.mark.parametrize("kind", [Residual, UNet], ids=lambda kind: kind.__name__)
def test_hooks_do_the_same_where_there_is_no_room_or_others_have_hooks(kind, choice, monkeypatch):
    monkeypatch.setattr(frame, "hook", None)
    (model, x), (plain, _) = problem(kind), problem(kind)
    fit(model, AMPLE, choice=choice)
    for _ in range(4):
        with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
            found = step(model, x)
        assert equal(found, step(plain, x))


@pytest.mark.parametrize("way", ["other", "skipped"])
def test_a_call_that_makes_another_graph_is_charted_anew(way, without_hooks):
    model, plain, x = taught()
    without_hooks()
    for now in (way, "plain", way):
        set_way(now, model, plain)
        if now == "skipped":
            model[0].way = plain[0].way = "plain"
        torch.manual_seed(7)
        losses = [one(x).square().mean() for one in (model, plain)]
        assert not _of(model).fitting._now.broken
        for loss in losses:
            loss.backward()
        assert equal([one.grad for one in model[0].parameters()], [one.grad for one in plain[0].parameters()])


def test_a_second_run_that_makes_another_graph_is_refused():
    model, _, x = taught()
    loss = model(x).sum()
    set_way("other", model)
    with pytest.raises(RuntimeError, match="saved other tensors than the first time"):
        loss.backward()


def test_what_a_block_changes_after_it_was_saved_is_refused_as_by_autograd():
    model, plain, x = taught()
    set_way("changed", model, plain)
    for one in (plain, model):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            one(x).sum().backward()


def test_it_is_refused_under_hooks_of_others_too():
    model, plain, x = taught()
    set_way("changed", model, plain)
    for one in (plain, model):
        loss = one(x).sum()
        with save_on_cpu(), pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


class Pair(Ending):
    """Gives two outputs, one of which needs what may be changed."""

    def forward(self, given):
        x, _ = given
        y = torch.tanh(self.up(x))
        z = torch.relu(self.down(y))
        w = z.exp()
        other = w * 2.0
        if self.way == "changed":
            w.add_(1.0)
        return torch.relu(z * 1.5), other


def test_what_no_loss_needs_may_be_changed():
    model, plain, x = [*pair(Pair), torch.randn(16, 8)]
    fit(model, AMPLE, choice="recompute")
    for way in ("plain", "plain", "plain", "changed"):
        set_way(way, model, plain)
        found = []
        for one in (model, plain):
            one.zero_grad()
            output, other = one((x, x))
            (output.sum() + (other.sum() if way == "plain" else 0.0)).backward()
            found.append([parameter.grad for parameter in one.parameters()])
        assert equal(*found)


def test_a_graph_that_is_as_it_was_and_more_beside_is_charted_anew(monkeypatch):
    model, plain, x = taught()
    seen = []
    monkeypatch.setattr(frame, "hook", lambda chart, *others: seen.append((chart, hook(chart, *others))) or seen[-1][1])
    for way in ("plain", "twice"):
        set_way(way, model, plain)
        assert equal(step(model, x), step(plain, x))
    assert all(one == other for one, other in seen[:3])
    assert all(len(other.places) > len(one.places) for one, other in seen[3:]) and len(seen) == 6


def test_a_graph_that_somebody_holds_has_hooks_from_then_on():
    model, plain, x = taught()
    for way in ("plain", "captured", "captured"):
        before = [one.chart is not None for one in _of(model).fitting._now.expected]
        assert all(before) == (model[0].way != "captured")
        set_way(way, model, plain)
        assert equal(step(model, x), step(plain, x))
    assert all(one.chart is None for one in _of(model).fitting._now.expected)


class Added(nn.Module):
    """A block with statistics whose output is not saved: behind its last norm nothing has to run again."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.BatchNorm1d(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def test_a_second_run_that_need_not_go_on_to_its_end_has_hooks():
    model, plain = pair(Added)
    fit(model, AMPLE, choice="recompute")
    x, calls = torch.randn(16, 8), []
    for _ in range(3):
        assert equal(step(model, x), step(plain, x))
    assert all(one.chart is None for one in _of(model).fitting._now.expected)
    for block in model:
        block.down.register_forward_hook(lambda *others: calls.append(1))
    step(model, x)
    assert len(calls) == 3


class Sparse(Ending):
    def forward(self, x):
        mixed = torch.sparse.mm(torch.eye(x.shape[0]).to_sparse(), torch.tanh(self.up(x)))
        return torch.relu(self.down(mixed))


class Nested(Ending):
    def forward(self, x):
        rows = torch.nested.nested_tensor_from_jagged(torch.tanh(self.up(x)), torch.tensor([0, 5, 9, x.shape[0]]))
        return torch.relu(self.down(torch.sin(rows).values()))


@pytest.mark.parametrize("choice", ["recompute", "offload"])
@pytest.mark.parametrize("kind", [Sparse, Nested], ids=lambda kind: kind.__name__)
def test_sparse_and_nested_tensors_are_on_no_chart(kind, choice):
    model, plain = pair(kind)
    fit(model, AMPLE, choice=choice)
    x = torch.randn(16, 8)
    for _ in range(4):
        assert equal(step(model, x), step(plain, x))


def test_hooks_around_a_backward_pass_get_hold_of_nothing():
    model, plain, x = taught()
    for one in (model, plain):
        one.zero_grad()
        loss = one(x).square().mean()
        with saved_tensors_hooks(torch.zeros_like, lambda tensor: tensor):
            loss.backward()
    assert equal([one.grad for one in model.parameters()], [one.grad for one in plain.parameters()])


@pytest.mark.parametrize("choice", ["recompute", "recompute, inputs offloaded"])
def test_several_passes_and_gradients_of_gradients(choice):
    model, plain, x = taught(choice)
    found = []
    for one in (model, plain):
        given = x.clone().requires_grad_()
        loss = one(given * 1.0).square().mean()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        (first,) = torch.autograd.grad(loss, given, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), given)
        found.append([given.grad, first.detach(), second])
    assert equal(*found)


def test_a_loss_on_what_a_hook_caught_inside_of_a_block():
    model, plain, x = taught()
    found = []
    for one in (model, plain):
        caught = []
        handle = one[1].up.register_forward_hook(lambda module, args, output, caught=caught: caught.append(output))
        one.zero_grad()
        (one(x).square().mean() + caught[0].sin().sum()).backward()
        handle.remove()
        found.append([parameter.grad for parameter in one.parameters()])
    assert equal(*found)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


class Custom(Ending):
    def forward(self, x):
        return torch.relu(self.down(Square.apply(self.up(x))))


class Checkpointed(Ending):
    def forward(self, x):
        return torch.relu(self.down(checkpoint(torch.tanh, self.up(x), use_reentrant=False)))


class Indexed(Ending):
    def forward(self, x):
        rows = torch.arange(x.shape[0]).flip(0).repeat(40)[: x.shape[0]]
        return torch.relu(self.down(torch.tanh(self.up(x[rows]))))


@pytest.mark.parametrize("choice", ["recompute", "offload"])
@pytest.mark.parametrize("kind", [Custom, Checkpointed, Indexed], ids=lambda kind: kind.__name__)
def test_what_a_graph_does_not_lead_to_has_hooks(kind, choice):
    model, plain = pair(kind)
    fit(model, AMPLE, choice=choice)
    x = torch.randn(64, 8)
    for _ in range(4):
        assert equal(step(model, x), step(plain, x))
    assert _of(model).fitting._now.expected[-1].chart is None


def test_nothing_stays_behind():
    model, _, x = taught()
    caught = []
    handle = model[1].down.register_forward_pre_hook(lambda module, args: caught.append(ref(args[0])))
    gc.collect()
    gc.disable()
    try:
        loss = model(x).square().mean()
        loss.backward()
        del loss
        assert caught and all(one() is None for one in caught)
    finally:
        gc.enable()
        handle.remove()


def test_places_are_in_the_order_of_saving_so_that_what_is_needed_first_comes_back_first():
    model, _, x = taught()
    measured = _of(model).fitting._now.expected[1].chart
    anew = survey(*called(lambda given: type(model[1]).forward(model[1], given), x), lambda node, place: True)
    for chart in (measured, anew):
        kinds = [chart.steps[place.step].kind.__name__ for place in chart.places]
        assert kinds[0] == "AddmmBackward0" and kinds[-1] == "ReluBackward0"
        assert kinds.index("TanhBackward0") < len(kinds) - 1 - kinds[::-1].index("AddmmBackward0")
