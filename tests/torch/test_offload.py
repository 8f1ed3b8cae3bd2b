"""`offload`: gradients are those of plain autograd, bit by bit, whatever moves, and what cannot be is refused."""

import gc

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from penstock import Budget  # noqa: E402
from penstock.errors import BudgetError, CodecError  # noqa: E402
from penstock.torch import offload  # noqa: E402
from penstock.torch.offload import _keepers  # noqa: E402
from penstock.torch.order import fetch_order, to_move  # noqa: E402

HOST = "100MB"


class Net(nn.Module):
    """Views, aliases, transposed and strided tensors, saved outputs, and small tensors."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x.to(memory_format=torch.channels_last))))
        x = x.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        x = torch.sigmoid(x[:, ::2]) * torch.tanh(x[:, 1::2])
        return self.out(x).exp().mean()


def problem(seed=0):
    torch.manual_seed(seed)
    return Net(), torch.randn(4, 3, 8, 8)


def gradients(net, x):
    x.requires_grad_()
    x.grad = None
    net.zero_grad()
    loss = net(x)
    loss.backward()
    return [loss.detach(), x.grad, *(parameter.grad for parameter in net.parameters())]


def equal(one, other):
    return all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(one, other, strict=True))


@pytest.fixture(autouse=True)
def forgotten():
    yield
    _keepers.clear()


@pytest.mark.parametrize("device", [0, 4000, 20_000, 40_000, "1GB"])
def test_gradients_are_bit_equal_in_every_iteration(device):
    net, x = problem()
    expected = gradients(*problem())
    for _ in range(3):
        with offload(Budget(device=device, host=HOST), min_bytes=0) as saved:
            assert equal(gradients(net, x), expected)
    assert bool(saved.metrics.moved["down 1"]) == (device != "1GB")
    assert saved.metrics.moved["down 1"] >= saved.metrics.moved["up 1"]


def test_saved_tensors_stay_within_the_budget():
    net, x = problem()
    saved = offload(Budget(device=30_000, host=HOST), min_bytes=0)
    for _ in range(3):
        with saved:
            gradients(net, x)
    largest = 4 * 64 * 64 * 4
    assert saved.metrics.peak["device"] <= 30_000 + largest  # one has just been saved when others make room


def test_the_second_iteration_moves_what_is_needed_last():
    chain = [torch.full((1000,), 0.5, requires_grad=True)]
    saved = offload(Budget(device=16_000, host=HOST), min_bytes=0)

    def run():
        y = chain[0] * 1.0
        for _ in range(8):
            y = y.sigmoid()
        y.sum().backward()

    with saved:
        run()
    first = saved.metrics.moved["down 1"]
    with saved:
        run()
    keeper = next(iter(_keepers.values()))
    assert keeper._moved == frozenset({0, 1, 2, 3})
    assert saved.metrics.moved["down 1"] - first == 4 * 4000
    assert saved.metrics.misses <= 1 + 1  # all but the first of each iteration had been fetched ahead


def test_a_with_statement_in_a_loop_learns_as_an_object_does():
    net, x = problem()
    for _ in range(3):
        with offload(Budget(device=20_000, host=HOST), min_bytes=0):
            gradients(net, x)
    assert len(_keepers) == 1
    assert next(iter(_keepers.values()))._moved


def test_nothing_of_an_iteration_is_left_when_its_graph_is_gone():
    net, x = problem()
    saved = offload(Budget(device=20_000, host=HOST), min_bytes=0)
    with saved:
        gradients(net, x)
    gc.collect()
    store = next(iter(_keepers.values())).store
    store.collect()
    assert store.held == 0 and store.mover.room.used == 0


def test_views_of_one_storage_are_kept_once():
    x = torch.ones(1000, requires_grad=True)
    with offload(Budget(device=0, host=HOST), min_bytes=0) as saved:
        y = x * 1.0
        (y[:500].exp() * y[500:].exp() * y.view(2, 500)[0].sin()).sum()
    total = saved.metrics.moved["down 1"]
    assert total == 4000 + 2 * 2000 + 2 * 2000  # y once; both exp; the product of these, and the sine


def test_parameters_and_their_views_never_move():
    layer = nn.Linear(50, 50)
    x = torch.ones(1, 50, requires_grad=True)
    with offload(Budget(device=0, host=HOST), min_bytes=0) as saved:
        layer(x).sum().backward()
    assert saved.metrics.moved["down 1"] == 0


def test_small_tensors_stay():
    x = torch.ones(100, requires_grad=True)
    with offload(Budget(device=0, host=HOST), min_bytes=401) as saved:
        x.exp().sum().backward()
    assert saved.metrics.moved["down 1"] == 0


@pytest.mark.parametrize("device", [0, "1GB"])
def test_a_change_in_place_of_what_was_saved_raises_as_in_autograd(device):
    x = torch.ones(100, requires_grad=True)
    with offload(Budget(device=device, host=HOST), min_bytes=0):
        y = x.exp()
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_change_in_place_before_saving_is_another_tensor():
    x = torch.ones(100, requires_grad=True)
    with offload(Budget(device=0, host=HOST), min_bytes=0):
        y = x * 2
        z = y.detach() * y  # saves the values 2
        w = z * 1.0
        w.mul_(3)
        (w.exp()).sum().backward()
    plain = torch.ones(100, requires_grad=True)
    y = plain * 2
    w = y.detach() * y * 1.0
    w.mul_(3)
    w.exp().sum().backward()
    assert torch.equal(x.grad, plain.grad)


@pytest.mark.parametrize("device", [0, 20_000])
def test_several_backward_passes_with_retain_graph(device):
    net, x = problem()
    with offload(Budget(device=device, host=HOST), min_bytes=0):
        loss = net(x)
    parameters = list(net.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    second = torch.autograd.grad(loss, parameters, retain_graph=True)
    third = torch.autograd.grad(loss, parameters)
    plain, x = problem()
    expected = torch.autograd.grad(plain(x), list(plain.parameters()))
    assert equal(first, expected) and equal(second, expected) and equal(third, expected)


def test_a_second_backward_without_retain_graph_raises_as_in_autograd():
    x = torch.ones(100, requires_grad=True)
    with offload(Budget(device=0, host=HOST), min_bytes=0):
        y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_double_backward_works():
    def second(x):
        (g,) = torch.autograd.grad((x.exp() * x.sin()).sum(), x, create_graph=True)
        (g.tanh() * g).sum().backward()
        return x.grad

    x = torch.linspace(0, 1, 500, requires_grad=True)
    with offload(Budget(device=0, host=HOST), min_bytes=0) as saved:
        found = second(x)
    assert saved.metrics.moved["up 1"]
    assert torch.equal(found, second(torch.linspace(0, 1, 500, requires_grad=True)))


def test_graphs_of_two_iterations_may_be_alive_at_once():
    net, x = problem()
    saved = offload(Budget(device=10_000, host=HOST), min_bytes=0)
    with saved:
        one = net(x)
    with saved:
        other = net(x * 2)
    parameters = list(net.parameters())
    found = torch.autograd.grad(one, parameters), torch.autograd.grad(other, parameters)
    plain, x = problem()
    parameters = list(plain.parameters())
    one, other = plain(x), plain(x * 2)
    assert equal(found[0], torch.autograd.grad(one, parameters))
    assert equal(found[1], torch.autograd.grad(other, parameters))


def test_shapes_that_change_are_learned_anew():
    net, _ = problem()
    saved = offload(Budget(device=10_000, host=HOST), min_bytes=0)
    for batch in (2, 2, 5, 5, 1, 2):
        torch.manual_seed(batch)
        x = torch.randn(batch, 3, 8, 8)
        with saved:
            found = gradients(net, x)
        assert equal(found, gradients(net, x.detach()))


def test_what_fits_is_let_through_until_it_no_longer_does():
    net, _ = problem()
    saved = offload(Budget(device=200_000, host=HOST), min_bytes=0)
    moved = []
    for batch in (2, 2, 2, 12, 12, 2, 2):
        torch.manual_seed(batch)
        x = torch.randn(batch, 3, 8, 8)
        with saved:
            found = gradients(net, x)
        assert equal(found, gradients(net, x.detach()))
        moved.append(saved.metrics.moved["down 1"])
    assert moved[2] == 0 and moved[3] > 0 and moved[4] > moved[3]


def test_an_error_inside_leaves_autograd_as_it_was():
    with pytest.raises(ZeroDivisionError), offload(Budget(device=0, host=HOST), min_bytes=0):
        (torch.ones(10, requires_grad=True).exp()) / (1 // 0)
    assert equal(gradients(*problem()), gradients(*problem()))


def test_no_grad_costs_nothing():
    net, x = problem()
    with torch.no_grad(), offload(Budget(device=0, host=HOST), min_bytes=0) as saved:
        net(x)
    assert not saved.metrics.moved and not _keepers


def test_a_codec_encodes_what_moves_and_bounds_the_error():
    net, x = problem()
    expected = gradients(*problem())
    saved = offload(Budget(device=4000, host=HOST), codec="cast:float16", min_bytes=0)
    for _ in range(2):
        with saved:
            found = gradients(net, x)
    assert saved.metrics.ratios and 1.5 < min(saved.metrics.ratios) <= 2
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-3)


def test_types_that_a_codec_does_not_take_move_as_they_are():
    x = torch.linspace(0, 1, 1000, dtype=torch.bfloat16, requires_grad=True)
    plain = torch.linspace(0, 1, 1000, dtype=torch.bfloat16, requires_grad=True)
    saved = offload(Budget(device=0, host=HOST), codec="cast:float16", min_bytes=0)
    for _ in range(2):
        x.grad = None
        with saved:
            x.exp().sin().sum().backward()
    plain.exp().sin().sum().backward()
    assert torch.equal(x.grad, plain.grad) and not saved.metrics.ratios


def test_autocast():
    net, x = problem()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = gradients(*problem())
        with offload(Budget(device=0, host=HOST), min_bytes=0):
            assert equal(gradients(net, x), expected)


def test_a_full_host_is_refused_with_the_numbers():
    net, x = problem()
    with offload(Budget(device=1000, host=2000), min_bytes=0), pytest.raises(BudgetError, match="host budget of 2kB"):
        net(x)
    assert equal(gradients(net, x), gradients(*problem()))


@pytest.mark.parametrize(
    ("arguments", "error"), [({"budget": Budget(host="1GB")}, BudgetError), ({"budget": 1, "codec": "no"}, CodecError)]
)
def test_what_cannot_work_is_refused_at_once(arguments, error):
    with pytest.raises(error):
        offload(**arguments)


def test_order_is_that_of_first_use_and_else_the_reverse_of_saving():
    assert fetch_order(5, [4, 2, 4]) == [4, 2, 3, 1, 0]


def test_no_smaller_set_of_those_used_last_would_do():
    sizes, order = [3, 5, 2, 8, 1], [4, 3, 2, 1, 0]
    for budget in range(20):
        moved = to_move(sizes, order, budget)
        assert sum(sizes) - sum(sizes[n] for n in moved) <= budget
        if moved:
            spared = min(moved, key=order.index)
            assert sum(sizes) - sum(sizes[n] for n in moved) + sizes[spared] > budget


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("codec", [None, "cast:float16"])
def test_on_a_gpu_gradients_are_bit_equal_and_memory_is_freed(codec):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024)) for _ in range(8))).cuda()
    x = torch.randn(8192, 1024, device="cuda")
    unit = x.nbytes

    def step():
        net.zero_grad()
        net(x).square().mean().backward()
        return [parameter.grad.clone() for parameter in net.parameters()]

    expected = step()
    torch.cuda.reset_peak_memory_stats()
    step()
    plain = torch.cuda.max_memory_allocated()
    saved = offload(Budget(device=6 * unit, host="4GB"), codec=codec)
    for _ in range(4):
        torch.cuda.reset_peak_memory_stats()
        with saved:
            found = step()
        if codec is None:
            assert equal(found, expected)
    assert torch.cuda.max_memory_allocated() < plain - 10 * unit
