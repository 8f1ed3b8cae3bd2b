"""Statistics of BatchNorm: second runs find them as the first did, whoever reads them, and leave them alone."""

import pytest
import torch
from tests.torch.cases import crossed
from tests.torch.models import AMPLE, DEVICES, MLP, of, pair, trains_alike
from tests.torch.models import deterministic as deterministic
from torch import nn
from torch.nn import functional

from forebay.torch import fit
from forebay.torch.fitting.planning import SETTLED_AFTER

RECOMPUTING = ["recompute", "keep costly, recompute the rest"]


class Normalised(MLP):
    """A block with a normalisation, of which cases make something of their own."""

    def __init__(self, use=None, norm=nn.BatchNorm1d, **more):
        super().__init__()
        self.norm, self.use = norm(8, **more), use

    def forward(self, x):
        inside = super().forward
        return inside(self.norm(x)) if self.use is None else self.use(self, inside, x)


class Own(nn.Module):
    """Has statistics that are changed by an operation that does not count changes."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x):
        return functional.batch_norm(x, self.mean, self.variance, training=self.training)


class Renorm(nn.BatchNorm1d):
    """Reads its statistics while it trains."""

    def forward(self, x):
        ratio = (x.detach().var(0) + self.eps).sqrt() / (self.running_var + self.eps).sqrt()
        return super().forward(x) * ratio.clamp(0.3, 3.0)


def by_hand(self, inside, x):
    """Do what BatchNorm does, as blocks that fuse it with others do."""
    norm = self.norm
    norm.num_batches_tracked.add_(1)
    return inside(functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, 0.1))


def fading(self, inside, x):
    self.norm.running_mean.mul_(0.5)
    return inside(self.norm(x)) + self.norm.running_mean


def remembering(self, inside, x):
    """Read them when all that is saved has been saved; nothing that it gives depends on them."""
    result = functional.relu(inside(self.norm(x)))
    self.remembered = self.norm.running_mean.clone()
    return result


KINDS = {
    "plain": Normalised,
    "own": lambda: Normalised(norm=Own),
    "renorm": lambda: Normalised(norm=Renorm),
    "read": lambda: Normalised(lambda self, inside, x: inside(self.norm(x)) * self.norm.running_var.sqrt()),
    "read first": lambda: Normalised(lambda self, inside, x: inside(self.norm(x - self.norm.running_mean))),
    "read the count": lambda: Normalised(
        lambda self, inside, x: inside(self.norm(x)) / (1 + self.norm.num_batches_tracked)
    ),
    "by hand": lambda: Normalised(by_hand),
    "fading": lambda: Normalised(fading),
    "remembering": lambda: Normalised(remembering),
    "twice": lambda: Normalised(lambda self, inside, x: inside(self.norm(self.norm(x) + x))),
    "average": lambda: Normalised(momentum=None),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("kind", "choice"), crossed(KINDS, [*RECOMPUTING, None]))
def test_blocks_have_the_statistics_of_the_plain_model_whatever_they_do_with_them(kind, choice, device):
    trains_alike(of(kind), choice, device=device)


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


@pytest.mark.parametrize("choice", RECOMPUTING)
def test_who_reads_them_only_later_finds_them(choice):
    class Later(Normalised):
        def forward(self, x):
            norm = self.norm
            reading = norm.num_batches_tracked > 2
            return super().forward(x * (norm.running_var + norm.num_batches_tracked.tolist() if reading else 1.0))

    trains_alike(of(Later), choice, steps=7)
