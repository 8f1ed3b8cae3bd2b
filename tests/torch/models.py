"""Small models of the kinds that are fitted: a transformer, a network of convolutions with skips, shared blocks."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.nn import functional

from forebay import Budget
from forebay.planner.blocks import simulate
from forebay.torch import fit, plan_of
from forebay.torch.fitting.facts import TREATMENTS

AMPLE = Budget(device="1GB", host="1GB")
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]),
]
EXACT = [name for name in TREATMENTS if "compress" not in name]


@pytest.fixture(autouse=True)
def deterministic():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


class Block(nn.Module):
    def __init__(self, width=32, dropout=0.1):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = dropout

    def forward(self, x, scale=1.0):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + functional.dropout(self.out(mixed), self.dropout, self.training) * scale
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, depth=4, width=32):
        super().__init__()
        self.first, self.last = nn.Linear(8, width), nn.Linear(width, 4)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.last(x)


class Bottleneck(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, 4, 1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, momentum=None)
        self.conv3, self.norm3 = nn.Conv2d(4, channels, 1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x):
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = functional.relu(self.norm2(self.conv2(y)), inplace=True)
        return functional.relu(self.norm3(self.conv3(y)) + x, inplace=True)


class Residual(nn.Module):
    def __init__(self, depth=4, channels=16):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.stage = nn.Sequential(*(Bottleneck(channels) for _ in range(depth)))

    def forward(self, x):
        return self.stage(self.stem(x)).mean((2, 3))


class Double(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv3d(inside, outside, 3, padding=1), nn.BatchNorm3d(outside)
        self.conv2, self.norm2 = nn.Conv3d(outside, outside, 3, padding=1), nn.BatchNorm3d(outside)

    def forward(self, x, skip=None):
        x = x if skip is None else torch.cat([x, skip], 1)
        x = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(x)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = Double(1, 4), Double(4, 8), Double(8, 8)
        self.up2, self.up1, self.last = Double(16, 8), Double(12, 4), nn.Conv3d(4, 1, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(functional.max_pool3d(one, 2))
        x = self.bottom(functional.max_pool3d(two, 2))
        x = self.up2(functional.interpolate(x, scale_factor=2.0), two)
        x = self.up1(functional.interpolate(x, scale_factor=2.0), one)
        return self.last(x)


class Shared(nn.Module):
    """One block called several times, as in models that share their weights."""

    def __init__(self):
        super().__init__()
        self.block = Block(8, 0.0)

    def forward(self, x):
        for _ in range(3):
            x = self.block(x)
        return x


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 64), nn.Linear(64, 8)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class TwoTensorLike(torch.Tensor):
    """A tensor that holds another, and has no storage."""

    @staticmethod
    def __new__(cls, elem):
        return torch.Tensor._make_wrapper_subclass(cls, elem.shape, dtype=elem.dtype)

    def __init__(self, elem):
        self.elem = elem

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inside = [one.elem if isinstance(one, cls) else one for one in args]
        output = func(*inside, **(kwargs or {}))
        return cls(output) if isinstance(output, torch.Tensor) and isinstance(args[0], cls) else output


def pair(kind):
    """Give a model of three blocks and another that is equal to it."""
    torch.manual_seed(0)
    model = nn.Sequential(*(kind() for _ in range(3)))
    return model, copy.deepcopy(model)


INPUTS = {Transformer: (4, 16, 8), Residual: (4, 3, 12, 12), UNet: (2, 1, 8, 8, 8), Shared: (4, 16, 8)}


LARGE = {  # every saved tensor that counts is large enough to be moved from a GPU
    Transformer: (lambda: Transformer(4, 128), (32, 128, 8)),
    Residual: (lambda: Residual(4, 32), (8, 3, 32, 32)),
    Shared: (Shared, (64, 128, 8)),
}


def problem(kind):
    torch.manual_seed(0)
    model = kind()
    return model, torch.randn(INPUTS[kind])


def large_problem(kind):
    torch.manual_seed(0)
    make, shape = LARGE[kind]
    return make().cuda(), torch.randn(shape).cuda()


def empty_device(workspaces=False):
    """Let go of what nobody holds any more, so that equal models are given equal memory whatever ran before.

    A fitted model, or a test that failed, is part of a cycle; and where the cache has a piece that is up to 1 MiB too
    large, the allocator gives and counts all of it. What products keep for themselves belongs to streams of other
    tests; it goes only before the first measurement, as it would count as grown after it.
    """
    gc.collect()
    if workspaces:
        torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def step(model, x, seed=7):
    """Run one iteration with fixed random numbers, and give loss, gradients and dense buffers."""
    torch.manual_seed(seed)
    model.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    buffers = [one.clone() for one in model.buffers() if one.layout is torch.strided]
    return [loss.detach(), *(one.grad for one in model.parameters()), *buffers]


def equal(one, other):
    return all(map(torch.equal, one, other)) and len(one) == len(other)


def blocks_of(kind):
    return ["block"] if kind is Shared else None


def least_for(kind, choice):
    """Find the smallest budget in which all blocks can be treated alike."""
    model, x = problem(kind)
    fit(model, AMPLE, choice=choice, blocks=blocks_of(kind))
    step(model, x)
    return least_of(plan_of(model))


def least_of(plan):
    """Find the smallest budget in which a plan's choices are possible."""
    low, high = 0, 10**12
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if not simulate(plan.chain, plan.picks, middle).excess else (middle + 1, high)
    return int(low / 0.99) + 2


def of(kind):
    """Make models of three blocks of a kind."""
    return lambda: nn.Sequential(*(kind() for _ in range(3)))


def trains_alike(make, choice=None, budget=AMPLE, steps=5, device="cpu", named=None):
    """Fit one of two equal models, and have both take the same steps; return the fitted one."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(make().to(device))
    model, plain = models
    fit(model, budget, choice=choice, blocks=named)
    for seed in range(steps):
        x = torch.randn(32, 8, generator=torch.Generator().manual_seed(seed)).to(device)
        assert equal(step(model, x, seed), step(plain, x, seed))
    return model
