"""Copies on the virtual machine: right for every seed, wrong once any one wait is left out."""

import ctypes
import gc
import itertools
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests.torch.cases import crossed
from tests.torch.models import Residual, Transformer, UNet, equal, least_for, problem, step

from forebay import Budget
from forebay.errors import EngineError
from forebay.machine.machine import Wait
from forebay.machine.region import Region
from forebay.machine.slabs import SlabHeap
from forebay.machine.virtual import VirtualMachine
from forebay.torch import fit, offload, offloaded, release
from forebay.torch.fitting import tools
from forebay.torch.step import states
from forebay.torch.storage import keeper
from forebay.torch.storage.mover import Mover, new_storage, weakly

WAITS = ["collect: copied", "down: piece free", "end: copied", "leave: copied", "open: arrived"]
WAITS += ["states: arrived", "states: stored", "up: stored"]
"""The names of the waits that order the copies of tensors."""


class Freeing(VirtualMachine):
    """Notices that memory is freed which a copy is about to touch."""

    def __init__(self, seed, without):
        super().__init__(seed, without)
        self.owners = {}

    def check(self, *regions):
        for region in regions:
            owner = self.owners.get(region.pointer)
            if owner is not None and torch.UntypedStorage._new_with_weak_ptr(owner.cdata) is None:
                LateMover.failures.append("freed while it was copied")
                raise EngineError("memory is freed that a copy is about to touch")

    def free_after(self, wait):
        return self.frees and super().free_after(wait)


class LateMover(Mover):
    """Copies are carried out when somebody waits for them, or at random before."""

    seed = 0
    without: ClassVar[str | None] = None
    failures: ClassVar[list[str]] = []
    waits: ClassVar[set[str]] = set()
    frees = True

    def __init__(self, device, budget):
        machine = Freeing(self.seed, self.without)
        super().__init__(device, machine, SlabHeap(budget, machine.pin, machine.passed))
        self.machine.lanes.waits, self.machine.frees = self.waits, self.frees

    def region(self, storage, nbytes):
        """Return a region that does not keep the storage alive."""
        pointer = storage.data_ptr()
        self.machine.owners[pointer] = weakly(storage)
        data = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(pointer))
        return Region(pointer, nbytes, data)


@pytest.fixture(autouse=True)
def late(monkeypatch):
    release()
    monkeypatch.setattr(keeper, "mover_for", LateMover)
    monkeypatch.setattr(tools, "mover_for", LateMover)
    monkeypatch.setattr(states, "mover_for", LateMover)
    monkeypatch.setattr(LateMover, "failures", [])
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
    crossed(
        [Transformer, UNet], ["offload", "offload costly, recompute the rest", "recompute, inputs offloaded", None]
    ),
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
    assert kept.ended and all(storage is None for *_, storage in kept.ended)
    assert saved.metrics.moved["down 1"] and not LateMover.failures


def run_moves():
    """Send tensors down and up again, each over the piece of the one before, with no computation in between."""
    mover = LateMover(torch.device("cpu"), 1000)
    tensors = [torch.full((64,), float(number)) for number in range(6)]
    copies, ends = [], []
    for tensor in tensors:
        piece = mover.room.take(256)
        (stored,) = mover.machine.moves("down 1", [mover.down(tensor.untyped_storage(), 256, piece)])
        copies.append(new_storage(256, tensor.device))
        (end,) = mover.machine.moves("up 1", [mover.up(piece, copies[-1], 256, stored)])
        mover.room.give(piece, [end])
        ends.append(end)
    for end in ends:
        mover.machine.hold(Wait("open: arrived", end))
    return all(torch.equal(torch.empty(0).set_(copy), tensor) for copy, tensor in zip(copies, tensors, strict=True))


def run_dropped():
    """Drop the graph while its tensors are on their way."""
    model, x = problem(Transformer)
    with offload(Budget(device=30_000, host="1GB"), min_bytes=0) as saved:
        for _ in range(2):
            step(model, x)
            begun = model.blocks[0].norm1(model.first(x))  # what moves is under way, and need not be gone yet
            del begun
            gc.collect()
    return bool(saved.metrics.moved["down 1"])


def run_collected():
    """Drop it where no thread may let memory go at once, as at the end of a driver's life."""
    LateMover.frees = False
    try:
        return run_dropped()
    finally:
        LateMover.frees = True


def run_states():
    """Step an optimizer whose states come and go, and read them."""
    models = [problem(Transformer)[0] for _ in range(2)]
    ours, plain = (torch.optim.AdamW(model.parameters()) for model in models)
    offloaded(ours, Budget(device="100kB", host="1GB"))
    for _ in range(3):
        for model, optimizer in zip(models, (ours, plain), strict=True):
            step(model, problem(Transformer)[1])
            optimizer.step()
    states = [optimizer.state_dict()["state"] for optimizer in (ours, plain)]
    return all(
        torch.equal(one, two)
        for number in states[1]
        for one, two in zip(states[0][number].values(), states[1][number].values(), strict=True)
    )


PROGRAMS = {
    "states": run_states,
    "moves": run_moves,
    "dropped": run_dropped,
    "collected": run_collected,
    "offload": lambda: run_offload(Transformer, 50_000),
    "fit": lambda: run_fit(Transformer, "offload"),
}


def goes_right(program, seed, without=None):
    LateMover.seed, LateMover.without = seed, without
    LateMover.failures.clear()
    try:
        return PROGRAMS[program]() and not LateMover.failures
    except EngineError as error:
        return "wait for each other" in str(error)  # a standstill would prove nothing
    finally:
        LateMover.seed, LateMover.without = 0, None
        release()


def test_the_waits_are_those_known_here():
    LateMover.waits.clear()
    assert all(goes_right(program, seed=1) for program in PROGRAMS)
    assert sorted(LateMover.waits - {"link: copied"}) == WAITS  # that one times the link, and needs no order


@pytest.mark.parametrize("without", WAITS)
def test_wrong_once_any_one_wait_is_left_out(without):
    assert not all(goes_right(program, seed, without) for seed, program in itertools.product(range(4), PROGRAMS))
