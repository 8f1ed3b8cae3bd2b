"""What autograd saved of a call, found through the graph that the call has made.

Hooks that are told of all that is saved take the host several microseconds for each tensor, and two of three that a
convolutional network saves are tiny, or parameters. Its graph leads to the others, by the same ways every time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch

_autograd: Any = torch._C._autograd

next_node: Callable[[], int] = _autograd._get_sequence_nr
"""Gives the number of the next node that this thread makes."""


class Step(NamedTuple):
    """How a node is come to."""

    parent: int
    """the place among the steps of the one before; -1 for an output"""
    edge: int
    """of the parent, or which output"""
    kind: Any
    """its type"""


class Place(NamedTuple):
    """Where a node saved a tensor."""

    step: int
    raw: str
    """the name of what holds it"""
    value: str
    """the name of the tensor"""


class Chart(NamedTuple):
    """The places of a call's saved tensors, and the ways there."""

    steps: tuple[Step, ...]
    places: tuple[Place, ...]
    made: int
    """how many nodes the call made"""


def survey(outputs: Sequence[torch.Tensor], made: range, wanted: Callable[[Any, Place], bool]) -> Chart:
    """Look through the whole graph of a call; the places that it comes to last, which saved first, are given first.

    Parameters
    ----------
    outputs
        What it gave.
    made
        The numbers of the nodes that it made: others were there before, and are not of it.
    wanted
        Tells, by its node, whether a place is one of the chart.
    """
    steps: list[Step] = []
    nodes: list[Any] = []
    found: list[Place] = []
    seen: set[Any] = set()

    def come_to(node: Any, parent: int, edge: int) -> None:
        if node is not None and node not in seen and node._sequence_nr() in made:
            seen.add(node)
            steps.append(Step(parent, edge, type(node)))
            nodes.append(node)

    for number, output in enumerate(outputs):
        come_to(output.grad_fn, -1, number)
    at = 0
    while at < len(nodes):
        for raw, value in _names(steps[at].kind):
            place = Place(at, raw, value)
            if wanted(nodes[at], place):
                found.append(place)
        for edge, (node, _) in enumerate(nodes[at].next_functions):
            come_to(node, at, edge)
        at += 1
    return narrowed(Chart(tuple(steps), (), len(made)), found[::-1])


@cache
def _names(kind: Any) -> tuple[tuple[str, str], ...]:
    """Give the names of what nodes of a kind have saved, but for lists and what users' own functions save."""
    raws = [name for name in dir(kind) if name.startswith("_raw_saved_")]
    return tuple((raw, raw.removeprefix("_raw")) for raw in raws if hasattr(kind, raw.removeprefix("_raw")))


def narrowed(chart: Chart, places: Sequence[Place]) -> Chart:
    """Give the chart of some places, with no step that leads to none of them."""
    needed: set[int] = set()
    for place in places:
        at = place.step
        while at >= 0 and at not in needed:
            needed.add(at)
            at = chart.steps[at].parent
    new = {old: place for place, old in enumerate(sorted(needed))}
    kept = (chart.steps[old] for old in sorted(needed))
    return Chart(
        tuple(step._replace(parent=new.get(step.parent, -1)) for step in kept),
        tuple(place._replace(step=new[place.step]) for place in places),
        chart.made,
    )


def reach(chart: Chart, outputs: Sequence[torch.Tensor], made: range) -> list[Any] | None:
    """Give the nodes of a chart's steps in the graph of another call; None where it made another graph."""
    if len(made) != chart.made:  # where a part is as it was, there may be more beside it
        return None
    nodes: list[Any] = []
    node: Any
    for parent, edge, kind in chart.steps:
        if parent >= 0:
            edges = nodes[parent].next_functions
            node = edges[edge][0] if edge < len(edges) else None
        else:
            node = outputs[edge].grad_fn if edge < len(outputs) else None
        if type(node) is not kind or node._sequence_nr() not in made:
            return None
        nodes.append(node)
    return nodes


def hook(
    chart: Chart,
    outputs: Sequence[torch.Tensor],
    made: range,
    least: int,
    pack: Callable[[torch.Tensor], Any],
    unpack: Callable[[Any], torch.Tensor],
) -> Chart:
    """Have what a call saved packed now, where a chart says; give the chart, or another where the graph is another.

    Parameters
    ----------
    chart
        Of a call that was like this one, as a rule.
    outputs, made
        What `survey` takes.
    least
        Storages of fewer bytes are on no chart.
    pack, unpack
        What `torch.autograd.graph.saved_tensors_hooks` takes; a pack that fails would leave the graph without a value.
    """
    nodes = reach(chart, outputs, made)
    if nodes is None:
        chart = survey(outputs, made, lambda node, place: _is_large(getattr(node, place.raw), least))
        nodes = reach(chart, outputs, made)
        assert nodes is not None
    packed = []
    for place in chart.places:
        try:
            getattr(nodes[place.step], place.raw).register_hooks(pack, unpack)
        except RuntimeError:  # nothing was saved there this time, or others have hooks on it
            continue
        packed.append(place)
    return chart if len(packed) == len(chart.places) else chart._replace(places=tuple(packed))


def _is_large(saved: Any, least: int) -> bool:
    tensor = getattr(saved, "data", None)
    if not isinstance(tensor, torch.Tensor) or saved.unpack_hook is not None or isinstance(tensor, torch.nn.Parameter):
        return False
    return tensor.layout is torch.strided and tensor.untyped_storage().nbytes() >= least


def unhooked() -> bool:
    """Tell whether nobody has hooks on what is saved now."""
    return _autograd._top_saved_tensors_default_hooks(False) is None


@contextmanager
def without_hooks() -> Iterator[None]:
    """Be around what others' hooks are to get no hold of."""
    several = []
    while (top := _autograd._top_saved_tensors_default_hooks(False)) is not None:
        several.append(top)
        _autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(several):
            _autograd._push_saved_tensors_default_hooks(pack, unpack)
