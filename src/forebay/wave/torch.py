"""Waves in networks and losses of one's own: modelling that autograd of PyTorch differentiates, inside a budget."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from forebay import engine
from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import AcousticModel
from forebay.wave.gradient import Sensitivity
from forebay.wave.imaging import check_every
from forebay.wave.loop import prepare
from forebay.wave.simulate import simulate
from forebay.wave.survey.shot import Shot


def propagate(
    velocity: Tensor,
    grid: Grid,
    shot: Shot,
    *,
    max_vel: float | None = None,
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
    every: int = 1,
    **reversal: Any,
) -> Tensor:
    """Return what the receivers of a shot hear, as a tensor beside the velocity that autograd can differentiate.

    From the forward to the backward pass, what the latter needs waits inside the budget. A second backward pass through
    the same data is refused: model them again.

    Parameters
    ----------
    velocity
        Metres per second, a tensor of the grid's shape, on the CPU or a GPU.
    grid, max_vel
        As for `AcousticModel`. With `max_vel` time step and layers do not depend on the velocity.
    shot
        Sources, wavelet and receivers; its data are not looked at.
    dt, order, dtype, every
        As for `gradient`.
    **reversal
        For `forebay.reverse`: `budget`, `codec`, `schedule`, `plan`, `costs`, `directory`, ...

    Examples
    --------
    >>> from forebay.wave import ricker
    >>> velocity = torch.full((40, 50), 2000.0, requires_grad=True)
    >>> shot = Shot((50, 250), [(350, x) for x in range(0, 500, 50)], ricker(15, 0.004, 100), dt=0.004)
    >>> data = propagate(velocity, Grid((40, 50), spacing=10.0), shot, budget="8MB")
    >>> data.square().sum().backward()
    >>> data.shape, bool(velocity.grad.abs().max() > 0)
    (torch.Size([100, 10]), True)
    """
    check_every(every)
    stepping = {"dt": dt, "order": order, "dtype": dtype}
    if not (velocity.requires_grad and torch.is_grad_enabled()):
        return _beside(simulate(shot, _model(velocity, grid, max_vel), **stepping), velocity)
    return _Propagated.apply(velocity, grid, max_vel, shot, stepping, every, reversal)  # type: ignore[no-any-return, no-untyped-call]


class _Propagated(torch.autograd.Function):
    """Velocity to data."""

    @staticmethod
    def forward(
        ctx: Any, velocity: Tensor, grid: Grid, max_vel: Any, shot: Shot, stepping: Any, every: int, reversal: Any
    ) -> Tensor:
        """Run to the turn and wait there."""
        loop = prepare(shot, _model(velocity, grid, max_vel), **stepping, every=every)
        sensitivity = Sensitivity(loop, every)
        waiting = engine.prepare(loop.forward, loop.propagator.zeros(), loop.steps, **sensitivity.options | reversal)
        last = waiting.forward(lambda final: {name: final[name].copy() for name in loop.propagator.sensitive_fields})
        ctx.waiting, ctx.like = (waiting, sensitivity, last), velocity.detach()
        return _beside(loop.data(), velocity)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Go back from the turn."""
        if ctx.waiting is None:
            raise WaveError("data that were differentiated before: model them again, by propagate(...)")
        (waiting, sensitivity, last), ctx.waiting = ctx.waiting, None
        with waiting:
            sensitivity.start_back(slope.cpu().numpy(), last)
            waiting.backward(sensitivity.backward, False)
        owed = torch.as_tensor(sensitivity.end("velocity")).to(ctx.like)
        return owed, *[None] * 6


def _model(velocity: Tensor, grid: Grid, max_vel: float | None) -> AcousticModel:
    """Return a model of the values that a tensor has now."""
    values = velocity.detach()
    return AcousticModel(values if values.is_cuda else values.numpy(), grid, max_vel)


def _beside(data: Any, velocity: Tensor) -> Tensor:
    """Return data as a tensor where the velocity is, of its type."""
    return torch.as_tensor(data).to(velocity.detach())
