"""Copies that end as late as they may: nothing is read before it has arrived, nor freed while it is copied."""

import gc
import random
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch")

from tests.torch.cases import crossed  # noqa: E402
from tests.torch.models import Residual, Transformer, UNet, equal, least_for, problem, step  # noqa: E402

from forebay import Budget  # noqa: E402
from forebay.torch import fit, offload, release  # noqa: E402
from forebay.torch.fitting import device_tools  # noqa: E402
from forebay.torch.mover import HostMover, as_bytes, weakly  # noqa: E402
from forebay.torch.offloading import keeper  # noqa: E402


class Event:
    def __init__(self, lane, copy):
        self.lane, self.copy, self.done = lane, copy, False
        lane.append(self)

    def finish(self):
        """Carry out the lane up to this copy, as a stream does."""
        while not self.done:
            first = self.lane.pop(0)
            first.done = True
            first.copy()


class LateMover(HostMover):
    """Copies are carried out when somebody waits for them, or at random before; storages hold junk until then."""

    waits = True
    seed = 0
    failures: ClassVar[list[str]] = []

    def __init__(self, device, budget):
        super().__init__(device, budget)
        self.lanes = {"down": [], "up": []}
        self.random = random.Random(LateMover.seed)

    def _now_and_then(self):
        for lane in self.lanes.values():
            if lane and self.random.random() < 0.2:
                lane[0].finish()

    def down(self, several):
        return [self._down(*one) for one in several]

    def up(self, several):
        return [self._up(*one) for one in several]

    def _down(self, storage, nbytes, piece):
        self._now_and_then()
        after, weak = list(piece.after), weakly(storage)

        def copy():
            for event in after:
                event.finish()
            alive = torch.UntypedStorage._new_with_weak_ptr(weak.cdata)
            if alive is None:
                self.failures.append("freed while it was read")
            else:
                HostMover.down(self, [(alive, nbytes, piece)])

        return Event(self.lanes["down"], copy)

    def _up(self, piece, storage, nbytes, after):
        self._now_and_then()
        as_bytes(storage).fill_(255)  # NaN in every floating-point type
        weak = weakly(storage)

        def copy():
            after.finish()
            alive = torch.UntypedStorage._new_with_weak_ptr(weak.cdata)
            if alive is None:
                self.failures.append("freed while it was written")
            else:
                HostMover.up(self, [(piece, alive, nbytes, None)])

        return Event(self.lanes["up"], copy)

    def wait(self, event):
        if self.waits:
            event.finish()


@pytest.fixture(autouse=True)
def late(monkeypatch):
    release()
    monkeypatch.setattr(keeper, "mover_for", LateMover)
    monkeypatch.setattr(device_tools, "mover_for", LateMover)
    monkeypatch.setattr(LateMover, "failures", [])
    monkeypatch.setattr(LateMover, "waits", True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    release()
    torch.set_num_threads(threads)


def run_offload(kind, budget):
    model, x = problem(kind)
    plain, _ = problem(kind)
    same = True
    saved = offload(Budget(device=budget, host="1GB"), min_bytes=0)
    for _ in range(3):
        with saved:
            found = step(model, x)
        same = same and equal(found, step(plain, x))
    return same


def run_fit(kind, choice):
    model, x = problem(kind)
    plain, _ = problem(kind)
    fit(model, Budget(device=least_for(kind, choice) if choice else "300kB", host="1GB"), choice=choice)
    return all(equal(step(model, x), step(plain, x)) for _ in range(4))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("kind", "budget"), crossed([Transformer, Residual, UNet], [0, 50_000]))
def test_offload_waits_for_every_copy(seed, kind, budget, monkeypatch):
    monkeypatch.setattr(LateMover, "seed", seed)
    assert run_offload(kind, budget)
    assert not LateMover.failures


@pytest.mark.parametrize(
    ("kind", "choice"),
    crossed([Transformer, UNet], ["offload", "offload dear, recompute the rest", "recompute, inputs offloaded", None]),
)
def test_fit_waits_for_every_copy(kind, choice):
    assert run_fit(kind, choice)
    assert not LateMover.failures


def test_a_graph_that_is_dropped_half_way_leaves_no_copy_behind():
    model, x = problem(Transformer)
    plain, _ = problem(Transformer)
    saved = offload(Budget(device=30_000, host="1GB"), min_bytes=0)
    for _ in range(3):
        with saved:
            hidden = model.blocks[0](model.first(x))
            loss = model.blocks[2](model.blocks[1](hidden)).sum()
            torch.autograd.grad(loss, hidden)  # the first block is never asked for
            del hidden, loss
        with saved:
            found = step(model, x)
        assert equal(found, step(plain, x))
    assert not LateMover.failures


def test_a_dropped_graph_keeps_no_memory_of_the_device_until_the_place_is_reached_again():
    model, x = problem(Transformer)
    with offload(Budget(device=30_000, host="1GB"), min_bytes=0) as saved:
        loss = model(x).sum()
        del loss
    gc.collect()
    (kept,) = saved._keepers.values()
    assert kept.store.ended and all(storage is None for *_, storage in kept.store.ended)
    assert saved.metrics.moved["down 1"] and not LateMover.failures


@pytest.mark.parametrize("run", [lambda: run_offload(Transformer, 0), lambda: run_fit(Transformer, "offload")])
def test_without_the_waits_this_would_be_noticed(run, monkeypatch):
    monkeypatch.setattr(LateMover, "waits", False)
    assert not run() or LateMover.failures
