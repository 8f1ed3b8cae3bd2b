"""A model whose steps take as long as it says, by a clock that only it moves."""

import torch
from torch import nn

from forebay.machine.host import HostMachine

NAMES = [f"blocks.{number}" for number in range(4)]


class Clock:
    def __init__(self):
        self.now, self.step = 0.0, 0


class Taking(torch.autograd.Function):
    """Something that takes time, forward and twice that backward, and saves its input."""

    @staticmethod
    def forward(ctx, x, clock, seconds):
        clock.now += seconds
        ctx.clock, ctx.seconds = clock, seconds
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        assert ctx.saved_tensors
        ctx.clock.now += 2 * ctx.seconds
        return gradient * 2, None, None


class FittedBlock(nn.Module):
    """Takes as long as a list says for each step; odd parts are slow when even ones are fast."""

    def __init__(self, clock, seconds):
        super().__init__()
        self.clock, self.seconds, self.scale = clock, seconds, nn.Linear(4, 4)

    def forward(self, x):
        return Taking.apply(self.scale(x), self.clock, self.seconds[self.clock.step % len(self.seconds)])


class Net(nn.Module):
    def __init__(self, clock):
        super().__init__()
        self.stem, self.head = FittedBlock(clock, [1.0]), FittedBlock(clock, [2.0])
        self.blocks = nn.ModuleList(FittedBlock(clock, [3.0, 5.0] if number % 2 else [5.0, 3.0]) for number in range(4))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def wait_for_copies(monkeypatch, clock, seconds):
    """Have copies down to the host end later, so that whoever waits for one does so for some seconds."""
    moves = HostMachine.moves

    def with_events(machine, lane, several):
        ends = moves(machine, lane, several)
        return ["copied"] * len(several) if lane.startswith("down") else ends

    monkeypatch.setattr(HostMachine, "moves", with_events)
    monkeypatch.setattr(HostMachine, "hold", lambda machine, wait: setattr(clock, "now", clock.now + seconds))
