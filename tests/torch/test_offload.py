"""`offload`: gradients are those of plain autograd, bit by bit, whatever moves, and what cannot be is refused."""

import gc
import sys
import threading
import weakref

import pytest
import torch
from torch import nn

from forebay import Budget
from forebay.errors import BudgetError
from forebay.torch import offload, release
from forebay.torch.offload import _call_sites
from forebay.torch.storage import keeper as keeper_module

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
    release()


def keepers():
    return [keeper for keepers in _call_sites.values() for keeper in keepers.values()]


@pytest.mark.parametrize("device", [0, 4000, 20_000, 40_000, "1GB"])
def test_gradients_are_bit_equal_in_every_iteration(device):
    net, x = problem()
    expected = gradients(*problem())
    for _ in range(3):
        with offload(Budget(device=device, host=HOST), min_bytes=0) as saved:
            assert equal(gradients(net, x), expected)
    assert bool(saved.metrics.moved["down 1"]) == (device != "1GB")
    assert saved.metrics.moved["down 1"] >= saved.metrics.moved["up 1"]


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
    assert saved.metrics.moved["down 1"] - first == 4 * 4000
    assert saved.metrics.misses <= 1 + 1  # all but the first of each iteration had been fetched ahead


def test_a_with_statement_in_a_loop_learns_as_an_object_does():
    net, x = problem()
    made_before = offload(Budget(device=20_000, host=HOST), min_bytes=0)
    for _ in range(3):
        with made_before:
            gradients(net, x)
        with offload(Budget(device=20_000, host=HOST), min_bytes=0) as saved:
            gradients(net, x)
    assert saved.metrics.moved == made_before.metrics.moved and saved.metrics.misses == made_before.metrics.misses


def test_views_of_one_storage_are_kept_once():
    x = torch.ones(1000, requires_grad=True)
    with offload(Budget(device=0, host=HOST), min_bytes=0) as saved:
        y = x * 1.0
        (y[:500].exp() * y[500:].exp() * y.view(2, 500)[0].sin()).sum()
    total = saved.metrics.moved["down 1"]
    assert total == 4000 + 2 * 2000 + 2 * 2000  # y once; both exp; the product of these, and the sine


@pytest.mark.parametrize("held", [True, False])
def test_what_others_hold_is_not_fetched_a_second_time(held):
    with offload(Budget(device=0, host=HOST), min_bytes=0) as saved:
        y = torch.ones(1000, requires_grad=True).exp()
        z = y.sin().sum()
        y = y if held else None
        z.backward()
    assert saved.metrics.moved["down 1"] == 4000 and saved.metrics.moved["up 1"] == (0 if held else 4000)


@pytest.mark.parametrize("wanted", [True, False])
def test_parameters_and_their_views_never_move(wanted):
    layer = nn.Linear(50, 50).requires_grad_(wanted)
    x = torch.ones(1, 50, requires_grad=True)
    with offload(Budget(device=0, host=HOST), min_bytes=0) as saved:
        layer(x).sum().backward()
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


def test_what_is_let_through_is_counted_though_addresses_come_again():
    def chain(size):
        y = torch.ones(size, requires_grad=True)
        for _ in range(10):
            y = torch.tanh(y)
        return y.sum()

    saved = offload(Budget(device=1_000_000, host=HOST), min_bytes=0)
    for size in (10_000, 10_000, 100_000):
        with saved:
            chain(100)  # its storages are gone, and their addresses free, before the next are made
            chain(size).backward()
    assert saved.metrics.moved["down 1"] >= 3_000_000


def test_no_grad_costs_nothing():
    net, x = problem()
    with torch.no_grad(), offload(Budget(device=0, host=HOST), min_bytes=0) as saved:
        net(x)
    assert not saved.metrics.moved and not keepers()


def test_a_codec_encodes_what_moves_and_bounds_the_error():
    net, x = problem()
    expected = gradients(*problem())
    saved = offload(Budget(device=4000, host=HOST), codec="cast:float16", min_bytes=0)
    for _ in range(2):
        with saved:
            found = gradients(net, x)
    assert saved.metrics.ratios and 1.5 < saved.metrics.ratios.worst <= 2
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


def test_a_full_host_is_refused_with_the_numbers():
    net, x = problem()
    with offload(Budget(device=1000, host=2000), min_bytes=0), pytest.raises(BudgetError, match="host budget of 2kB"):
        net(x)
    assert equal(gradients(net, x), gradients(*problem()))


def test_a_host_that_has_less_than_the_budget_allows_is_refused_with_both(monkeypatch):
    monkeypatch.setattr(keeper_module, "free_host_bytes", lambda: 2000)
    net, x = problem()
    with (
        offload(Budget(device=1000, host="1GB"), min_bytes=0) as saved,
        pytest.raises(BudgetError, match=r"allows 1GB of the host, of which 2kB are there.*host budget of 2kB"),
    ):
        net(x)
    assert saved.metrics.peak["host"] <= 2000
    assert equal(gradients(net, x), gradients(*problem()))


def test_a_host_budget_that_is_not_named_is_found_once_and_its_slab_kept(monkeypatch):
    free = iter(range(10**8, 10**9, 10**6))  # what is free changes all the time
    monkeypatch.setattr(keeper_module, "_half_of_host", lambda: next(free))
    net, x = problem()
    for _ in range(4):
        with offload(20_000, min_bytes=0) as saved:
            assert equal(gradients(net, x), gradients(*problem()))
    assert len(keepers()) == 1 and next(free) == 10**8 + 10**6
    assert keepers()[0].mover.room.nbytes <= 10**8
    assert saved.metrics.moved["down 1"]


def test_what_is_kept_for_the_next_iteration_can_be_released():
    net, x = problem()
    saved = offload(Budget(device=4000, host=HOST), min_bytes=0)
    with saved:
        loss = net(x)
    room = weakref.ref(keepers()[0].mover.room)
    release()
    loss.backward()  # a graph from before
    del loss
    gc.collect()
    assert not keepers() and room() is None
    with saved:
        assert equal(gradients(net, x), gradients(*problem()))


def test_places_used_long_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(sys.modules["forebay.torch.offload"], "MOST_CALL_SITES", 3)
    net, x = problem()
    for device in range(4000, 4010):
        with offload(Budget(device=device, host=HOST), min_bytes=0):
            gradients(net, x)
    assert len(keepers()) == 3


def test_numbers_stay():
    x = torch.ones((), requires_grad=True)
    with offload(Budget(device=0, host=HOST), min_bytes=0) as saved:
        x.exp().exp().backward()
    assert not keepers() and not saved.metrics.moved


def test_a_loop_inside_of_one_with_statement_learns():
    net, x = problem()
    expected = gradients(*problem())
    with offload(Budget(device=20_000, host=HOST), min_bytes=0) as saved:
        for _ in range(5):
            assert equal(gradients(net, x), expected)
    assert saved.metrics.misses <= 2 * 5


def test_what_a_backward_pass_saves_is_no_new_iteration():
    def part(y):
        for _ in range(4):
            y = y.sigmoid()
        return y

    class Differentiating(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, gradient):
            with torch.enable_grad():
                z = gradient.detach().requires_grad_()
                part(z).sum().backward()
            return gradient

    x = torch.full((1000,), 0.5, requires_grad=True)
    saved = offload(Budget(device=8000, host=HOST), min_bytes=0)
    for _ in range(3):
        with saved:
            part(Differentiating.apply(x)).sum().backward()
    assert saved.metrics.moved["down 1"] == (4 + 2 * (4 + 4 - 2)) * 4000  # the second knows of all eight


def test_threads_at_one_place_have_keepers_of_their_own():
    interval = sys.getswitchinterval()
    found, all_here = [], threading.Barrier(4)

    def work(seed):
        all_here.wait()
        net, _ = problem()
        x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        expected = gradients(net, x)
        try:
            for _ in range(10):
                with offload(Budget(device=8000, host=HOST), min_bytes=0):
                    found.append(equal(gradients(net, x), expected))
        except Exception as error:
            found.append(error)
        all_here.wait()  # the keeper of a thread that has ended goes

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert found == [True] * 40
    assert len(keepers()) == 4


def test_threads_that_have_ended_keep_no_host_memory():
    x, saved = torch.ones(10_000, requires_grad=True), offload(Budget(device=0, host=HOST), min_bytes=0)
    together = threading.Barrier(4)

    def work():
        together.wait()
        with saved:
            x.tanh().sum().backward()
        together.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(saved._keepers) == 4
    with saved:
        x.tanh().sum().backward()
    assert [owner for _, owner in saved._keepers] == [threading.get_ident()]


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def stack_on_a_gpu():
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024)) for _ in range(8))).cuda()
    return net, torch.randn(4096, 1024, device="cuda")


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("codec", [None, "cast:float16", "bounded:1e-3"])
def test_on_a_gpu_gradients_come_back_and_memory_is_freed(codec):
    net, x = stack_on_a_gpu()
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
        for one, other in zip(found, expected, strict=True):
            assert (one - other).norm() <= 0.05 * other.norm() + 1e-6
    assert saved.metrics.moved["up 1"] > 0
    assert bool(saved.metrics.ratios) == (codec is not None)
    assert torch.cuda.max_memory_allocated() < plain - (10 if codec is None else 6) * unit


@pytest.mark.gpu
@gpu
def test_on_a_gpu_a_forward_that_is_dropped_leaves_nothing_on_the_device():
    net, x = stack_on_a_gpu()
    with torch.no_grad():
        net(x)  # what products keep for themselves is there from now on
    gc.collect()  # what other tests left
    before = torch.cuda.memory_allocated()
    with offload(Budget(device=6 * x.nbytes, host="4GB")) as saved:
        loss = net(x).sum()
        del loss
    gc.collect()
    assert saved.metrics.moved["down 1"] > 0
    assert torch.cuda.memory_allocated() == before
