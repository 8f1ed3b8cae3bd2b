"""Statistics of BatchNorm: second runs find them as the first did, whoever reads them, and leave them alone."""

import pytest
import torch
from tests.torch.cases import crossed
from tests.torch.models import AMPLE, MLP, check_as_plain, equal, pair, step
from tests.torch.models import deterministic as deterministic
from torch import nn
from torch.nn import functional

from forebay.torch import fit
from forebay.torch.fitting.planning import SETTLED_AFTER

RECOMPUTING = ["recompute", "keep costly, recompute the rest"]


class Normalised(MLP):
    """A block with a BatchNorm, of which cases make something of their own."""

    def __init__(self, momentum=0.1):
        super().__init__()
        self.norm = nn.BatchNorm1d(8, momentum=momentum)

    def forward(self, x):
        return super().forward(self.norm(x))


class Reading(Normalised):
    def forward(self, x):
        return super().forward(x) * self.norm.running_var.sqrt()


class ReadingFirst(Normalised):
    def forward(self, x):
        return super().forward(x - self.norm.running_mean)


class ReadingTheCount(Normalised):
    def forward(self, x):
        return super().forward(x) / (1 + self.norm.num_batches_tracked)


class Counting(Normalised):
    """Does by hand what BatchNorm does, as blocks that fuse it with others do."""

    def forward(self, x):
        norm = self.norm
        norm.num_batches_tracked.add_(1)
        x = functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, 0.1)
        return MLP.forward(self, x)


class Asking(Normalised):
    """Asks about them, and reads none."""

    def forward(self, x):
        count = self.norm.num_batches_tracked
        shift = torch.ones(8, device=count.device) if count is not None else 3.0
        return super().forward(x + shift)


class Fading(Normalised):
    def forward(self, x):
        self.norm.running_mean.mul_(0.5)
        return super().forward(x) + self.norm.running_mean


class Remembering(Normalised):
    """Reads them when all that is saved has been saved; nothing that it gives depends on them."""

    def forward(self, x):
        result = functional.relu(super().forward(x))
        self.remembered = self.norm.running_mean.clone()
        return result


class Twice(Normalised):
    def forward(self, x):
        return super().forward(self.norm(x) + x)


class Lone(Normalised):
    """In a mode of its own."""

    def __init__(self):
        super().__init__()
        self.norm.eval()


def model_of(kind):
    torch.manual_seed(0)
    model = nn.Module()
    model.blocks = nn.ModuleList(kind() for _ in range(3))
    model.forward = lambda x: [x := block(x) for block in model.blocks][-1]
    return model


KINDS = [Normalised, Reading, ReadingFirst, ReadingTheCount, Counting, Asking, Fading, Remembering, Twice, Lone]


@pytest.mark.parametrize("choice", RECOMPUTING)
@pytest.mark.parametrize("kind", [*KINDS, lambda: Normalised(None)], ids=[*(one.__name__ for one in KINDS), "Average"])
def test_blocks_have_the_statistics_of_the_plain_model_whatever_they_do_with_them(kind, choice):
    check_as_plain(lambda: model_of(kind), choice)


def test_what_a_block_remembers_of_its_statistics_is_of_its_first_run():
    model, plain = pair(Remembering)
    fit(model, AMPLE, choice="recompute")
    for seed in range(4):
        x = torch.randn(32, 8, generator=torch.Generator().manual_seed(seed))
        assert equal(step(model, x), step(plain, x))
    assert all(torch.equal(block.remembered, own.remembered) for block, own in zip(model, plain, strict=True))


def test_a_hook_that_comes_later_finds_the_statistics():
    model, plain = pair(Normalised)
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    for _ in range(2):
        assert equal(step(model, x), step(plain, x))
    for one in (model, plain):
        for block in one:
            block.norm.register_forward_hook(lambda norm, _, given: given + norm.running_mean)
    for _ in range(2):
        assert equal(step(model, x), step(plain, x))


@pytest.mark.parametrize(("settled", "choice"), crossed([2, SETTLED_AFTER + 2], RECOMPUTING))
def test_what_is_read_behind_all_that_is_saved_is_seen(settled, choice):
    class Behind(Normalised):
        """Nothing behind the last product is saved, unless the scale wants gradients."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8), requires_grad=False)

        def forward(self, x):
            return super().forward(x) + self.scale * self.norm.running_mean

    model, plain = pair(Behind)
    fit(model, AMPLE, choice=choice)
    for number in range(settled + 2):
        x = torch.randn(32, 8)
        for one in (model, plain):
            for block in one:
                block.scale.requires_grad_(number >= settled)
            one.zero_grad()
            one(x).square().mean().backward()
        pairs = zip(model.parameters(), plain.parameters(), strict=True)
        assert all(one.grad is other.grad is None or torch.equal(one.grad, other.grad) for one, other in pairs)


def test_other_shapes_are_looked_at_by_themselves():
    class OfLarge(Normalised):
        def forward(self, x):
            return super().forward(x) + (self.norm.running_mean if len(x) > 16 else 0)

    model, plain = pair(OfLarge)
    fit(model, AMPLE, choice="recompute")
    for rows in (8, 8, 32, 32, 8, 32):
        x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows))
        assert equal(step(model, x), step(plain, x))


@pytest.mark.parametrize("choice", RECOMPUTING)
def test_who_reads_them_only_later_finds_them(choice):
    reading = False

    class Later(Normalised):
        def forward(self, x):
            norm = self.norm
            scale = norm.running_var + norm.num_batches_tracked.tolist() if reading else 1.0
            return super().forward(x * scale)

    model, plain = pair(Later)
    fit(model, AMPLE, choice=choice)
    for number in range(6):
        reading = number >= 3
        x = torch.randn(32, 8, generator=torch.Generator().manual_seed(number))
        assert equal(step(model, x), step(plain, x))


def test_a_model_that_is_converted_between_steps_goes_on():
    model, plain = pair(Normalised)
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    for kind in (torch.float32, torch.float32, torch.float64, torch.float64, torch.float32):
        assert equal(step(model.to(kind), x.to(kind)), step(plain.to(kind), x.to(kind)))
