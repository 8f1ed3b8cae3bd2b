"""`offloaded`: an optimizer's states on the host, those of a few parameters at a time on the device as it steps."""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer, SparseAdam

from forebay.errors import PlanError
from forebay.tier.capacity import free_host_bytes, less_of_host
from forebay.torch.compat import note_step, put_step
from forebay.torch.step.states import OffloadedStates
from forebay.torch.storage.mover import budget_of
from forebay.units import Budget

logger = logging.getLogger("forebay.torch")

AnyOptimizer = TypeVar("AnyOptimizer", bound=Optimizer)


def offloaded(optimizer: AnyOptimizer, budget: Budget | str | float, *, master: bool = False) -> AnyOptimizer:
    """Have an optimizer keep its states within a budget, on the host where the device has no room.

    Each step takes the parameters batch by batch. The states of one batch come up while those of another are stepped
    and those of a third go down. The optimizer's own code steps each batch, so results are bit-equal to its plain step.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any of torch's own but LBFGS and SparseAdam. It is changed in place: `step` goes through the batches.
        Schedulers, gradient scalers, hooks, `state_dict` and `load_state_dict` work as before. A copy of it is plain.
    budget : Budget, str or int
        The device's part covers its states, those on their way included, not parameters nor gradients. The host's part
        is pinned memory for what moves. Where all fits on the device, nothing moves.
    master : bool
        Keep a float32 copy of each parameter of fewer bits beside its states, and step that in float32. The parameter
        is its rounding.

    Returns
    -------
    torch.optim.Optimizer
        The same optimizer.

    Examples
    --------
    >>> layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(6)))
    >>> optimizer = offloaded(torch.optim.AdamW(layers.parameters()), Budget(device="2kB", host="1MB"))
    >>> layers(torch.randn(2, 8)).sum().backward()
    >>> optimizer.step()
    >>> states_of(optimizer).metrics.moved["down 1"]
    3456
    """
    if not isinstance(optimizer, Optimizer):
        raise PlanError(f"offloaded takes a torch.optim.Optimizer, not {optimizer!r:.80}")
    if "_forebay" in vars(optimizer):
        raise PlanError("the optimizer's states are offloaded already")
    kind = type(optimizer)
    if isinstance(optimizer, LBFGS | SparseAdam) or not kind.step.__module__.startswith("torch.optim."):
        raise PlanError(
            f"{kind.__name__} may step parameters by what it knows of others, so that they cannot be taken batch by "
            "batch: use one of torch.optim but LBFGS and SparseAdam"
        )
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise PlanError("a step that is differentiated keeps all states: make the optimizer with differentiable=False")
    if strange := [p for p in parameters if type(p) not in (Tensor, torch.nn.Parameter) or p.layout != torch.strided]:
        raise PlanError(
            f"a parameter is a {type(strange[0]).__name__}, which is no plain tensor: what FSDP shards it may offload "
            "itself (CPUOffloadPolicy)"
        )
    if "step" in vars(optimizer) and not hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        raise PlanError("somebody put a step in the place of the optimizer's own: call offloaded before that is done")
    devices = {parameter.device for parameter in parameters}
    if len(devices) != 1 or (device := devices.pop()).type not in ("cpu", "cuda"):
        raise PlanError(
            "parameters are on no single CPU or CUDA GPU: move them before, and make an optimizer for each device"
        )
    if master and any(optimizer.state.get(parameter) for parameter in parameters):
        raise PlanError(
            "parameters have states of their own type already: ask for masters before the first step, and of another "
            "optimizer than Adagrad, which has states from the start"
        )
    budget, less = less_of_host(budget_of(budget, "offloaded"), free_host_bytes())
    if less:
        logger.warning(less)
    states = OffloadedStates(optimizer, budget, device, master)
    if any(optimizer.state.get(parameter) for parameter in parameters):
        with torch.no_grad():
            states.plan()
    vars(optimizer)["_forebay"] = states
    put_step(optimizer, _step)
    optimizer.register_state_dict_pre_hook(lambda _: states.wait(host=True))
    vars(optimizer)["__getstate__"] = lambda: _plain(optimizer)
    _take_aside_last(optimizer, states)
    optimizer.register_load_state_dict_post_hook(lambda _: states.load())
    return optimizer


def states_of(optimizer: Optimizer) -> "OffloadedStates":
    """Return what keeps the states of an offloaded optimizer: ``explain()`` and ``metrics``."""
    states = vars(optimizer).get("_forebay")
    if not isinstance(states, OffloadedStates):
        raise PlanError("this optimizer keeps its states itself: call offloaded(optimizer, budget) first")
    return states


def _take_aside_last(optimizer: Optimizer, states: OffloadedStates) -> None:
    """Have the states that are loaded taken aside behind all other hooks, those registered later too."""
    register: Any = optimizer.register_load_state_dict_pre_hook
    last = register(lambda _, saved: states.set_aside(saved))

    def register_before(hook: Callable[..., Any], prepend: bool = False) -> Any:
        nonlocal last
        handle = register(hook, prepend)
        last.remove()
        last = register(lambda _, saved: states.set_aside(saved))
        return handle

    vars(optimizer)["register_load_state_dict_pre_hook"] = register_before


def _plain(optimizer: Optimizer) -> dict[str, Any]:
    """Return what a copy of an optimizer has, whose states are where its parameters are."""
    states = states_of(optimizer)
    if states.master:
        raise PlanError(
            "a copy would be plain, and a plain optimizer has no masters: load the state_dict() into an optimizer that "
            "is offloaded with master=True"
        )
    states.wait(host=True)
    state = {
        p: {
            key: value.to(p.device) if isinstance(value, Tensor) and value.dim() else value
            for key, value in own.items()
        }
        for p, own in optimizer.state.items()
    }
    kept: dict[str, Any] = type(optimizer).__getstate__(optimizer)
    return kept | {"state": defaultdict(dict, state)}


def _step(optimizer: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
    """Step an offloaded optimizer, in the place of its own method."""
    note_step(optimizer)
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    with torch.no_grad():
        states_of(optimizer).step()
    return loss
