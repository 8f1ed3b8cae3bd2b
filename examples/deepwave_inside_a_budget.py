"""Deepwave's propagators inside a budget in bytes: its time axis in segments, kept and run again as Forebay plans it.

`heard_inside` takes `deepwave.scalar`, `deepwave.elastic` and its other propagators as they are. Run as a script, it
differentiates a shot of either with Deepwave's own memory and inside a budget, each in a process of its own, and tells
whether the data are the same, how far the gradients are apart, and what either process took beside what was there.

usage: python examples/deepwave_inside_a_budget.py (Linux)
"""

import multiprocessing
import re
import warnings
from pathlib import Path

import deepwave
import torch
from deepwave.discretisation import cfl_condition_n
from torch.utils._pytree import tree_flatten, tree_unflatten

from forebay.torch import checkpointed
from forebay.units import to_text

BUDGETS = {"scalar": "6MB", "elastic": "40MB"}
"""For `beside`, less than a tenth of what Deepwave takes by itself."""


def heard_inside(budget, propagator, models, amplitudes, segments, **options):
    """Return what receivers hear, by Deepwave's names: autograd goes back through it inside the budget."""
    spacing, dt, max_vel = (options[name] for name in ("grid_spacing", "dt", "max_vel"))
    spacing = [spacing] * models[0].ndim if isinstance(spacing, float) else spacing
    if cfl_condition_n(spacing, dt, max_vel, courant_number=options.get("courant_number"))[1] > 1:
        raise ValueError(f"dt={dt}: Deepwave would resample each segment by itself; take a dt below its CFL limit")

    def run(state, sent, *models):
        return propagator(*models, initial_state=state, **sent, **options)

    def segment(state, number, sent, *models):
        output = run(tree_unflatten(state, spec), sent, *models)
        return tree_flatten(dict(output.final_state))[0], dict(output.receivers)

    silence = {name: torch.zeros_like(values[..., :1]) for name, values in amplitudes.items()}
    state, spec = tree_flatten(dict(run(None, silence, *models).detach().final_state))
    sent = {name: torch.stack(values.chunk(segments, dim=-1)) for name, values in amplitudes.items()}
    heard = checkpointed(segment, state, segments, params=models, inputs=sent, outputs=True, budget=budget)[1]
    return {name: torch.cat(tuple(values), dim=-1) for name, values in heard.items()}


def shot(kind, points, steps):
    """Return a propagator, its models, what is sent, and the other arguments of a shot over two layers."""
    upper = torch.arange(points)[:, None] < points // 2
    vp = torch.where(upper, 2000.0, 2600.0).expand(points, points)
    time = torch.arange(steps) * 0.001 - 0.08
    wavelet = ((1 - 2 * (torch.pi * 15.0 * time) ** 2) * torch.exp(-((torch.pi * 15.0 * time) ** 2)))[None, None]
    source, receivers = torch.tensor([[[2, points // 2]]]), torch.tensor([[[2, x] for x in range(0, points, 2)]])
    options = {"grid_spacing": 10.0, "dt": 0.001, "accuracy": 8, "pml_width": 20, "pml_freq": 15.0, "max_vel": 2600.0}
    if kind == "scalar":
        places = {"source_locations": source, "receiver_locations": receivers}
        return deepwave.scalar, [vp.clone()], {"source_amplitudes": wavelet}, options | places
    vs, rho = 0.55 * vp, torch.full_like(vp, 2200.0)
    places = {"source_locations_y": source, "receiver_locations_y": receivers}
    models = [rho * (vp**2 - 2 * vs**2), rho * vs**2, 1 / rho]
    return deepwave.elastic, models, {"source_amplitudes_y": 1e6 * wavelet}, options | places


def differentiated(kind, points, steps, segments, budget):
    """Return data, the gradients of half their squares, and the bytes that both took beside what was there before."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # what waves send ahead of them, which would take ten times as long
    results = []
    for count in (2, segments):  # the first time it loads code, and allocates what stays
        propagator, models, amplitudes, options = shot(kind, points, steps // segments * count)
        models = [model.requires_grad_() for model in models]
        Path("/proc/self/clear_refs").write_text("5")  # what was taken at most is what is taken now
        before = taken("VmRSS")
        if budget is None:
            heard = dict(propagator(*models, **amplitudes, **options).receivers)
        else:
            heard = heard_inside(budget, propagator, models, amplitudes, count, **options)
        sum(0.5 * data.square().sum() for data in heard.values()).backward()
        bytes_taken, data = taken("VmHWM") - before, {name: values.detach().numpy() for name, values in heard.items()}
        results = data, [model.grad.numpy() for model in models], bytes_taken
    return results


def taken(which):
    """Return what this process takes of memory now ("VmRSS"), or has taken at most ("VmHWM")."""
    return 1024 * int(re.search(rf"{which}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def beside(kind, points=200, steps=800, segments=80):
    """Return data of both ways, how far gradients are apart relative to the largest value, and the bytes each took."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        ways = [(kind, points, steps, segments, budget) for budget in (None, BUDGETS[kind])]
        own, within = processes.starmap(differentiated, ways, 1)
    apart = max(abs(a - b).max() / abs(b).max() for a, b in zip(within[1], own[1], strict=True))
    return (own[0], within[0]), float(apart), own[2], within[2]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for kind in ("scalar", "elastic"):
        data, apart, own, within = beside(kind)
        same = all((data[0][name] == data[1][name]).all() for name in data[0])
        print(f"{kind}: {to_text(own)} by itself, {to_text(within)} inside the budget")
        print(f"  {'the same' if same else 'other'} data, gradients {apart:.1e} apart")
