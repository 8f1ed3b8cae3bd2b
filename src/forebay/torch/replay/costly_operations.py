"""Operations whose outputs are worth keeping: products, convolutions and attention take most of a block's time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import optree
import torch

from forebay.torch.compat import Dispatching, TorchDispatchMode, keeps_graph, sharing_versions
from forebay.torch.context import checkpointing
from forebay.torch.storage.mover import bytes_by_storage, weakly
from forebay.torch.storage.tensors import Keep, KeptTensor, StoredTensor, keep

_NAMES = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "convolution",
    "_scaled_mm",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_flash_attention_forward",
    "_efficient_attention_forward",
)
COSTLY = frozenset(getattr(torch.ops.aten, name).default for name in _NAMES if hasattr(torch.ops.aten, name))


class CostlyOperations(NamedTuple):
    """The costly operations of a block whose outputs may be kept."""

    numbers: frozenset[int] = frozenset()
    nbytes: int = 0
    """of their outputs"""
    stays: int = 0
    """those of them that are in storages smaller than what is moved"""


def is_costly(operation: Any, arguments: Sequence[Any], named: dict[str, Any]) -> bool:
    """Tell whether an operation is costly and draws no random numbers, which skipping it would leave to the next."""
    if operation not in COSTLY:
        return False
    for number, argument in enumerate(operation._schema.arguments):
        if argument.name in ("dropout_p", "dropout"):
            probability = (
                arguments[number] if number < len(arguments) else named.get(argument.name, argument.default_value)
            )
            return not probability
    return True


def written(operation: Any, arguments: Sequence[Any], named: dict[str, Any]) -> frozenset[int]:
    """Return the storages that an operation changes in place.

    Versions do not tell of all: the parts that `unsafe_chunk` makes of a tensor each count their own changes.
    """
    if not operation._schema.is_mutable:
        return frozenset()
    changed: Any = []
    for number, argument in enumerate(operation._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            changed.append(arguments[number] if number < len(arguments) else named.get(argument.name))
    return frozenset(bytes_by_storage(leaf for leaf in optree.tree_leaves(changed) if isinstance(leaf, torch.Tensor)))


@dataclass(frozen=True, eq=False)
class KeptOutput:
    """What a costly operation gave, kept."""

    structure: Any
    kept: list[Any]
    """nothing once an operation has changed it"""
    storages: frozenset[int]

    @classmethod
    def of(cls, output: Any, keep: Keep) -> "KeptOutput":
        """Keep an output: as aliases without history, for it will know itself of the graph that is being built."""
        leaves, structure = optree.tree_flatten(output)
        storages = frozenset(bytes_by_storage(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)))
        with sharing_versions():
            kept = [keep(leaf.detach()) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return cls(structure, kept, storages)

    @property
    def changed(self) -> bool:
        """Whether it was changed in place since: it is then no longer what the operation gave."""
        return not self.kept or any(one.changed for one in self.kept if isinstance(one, KeptTensor | StoredTensor))

    def note_written(self, storages: frozenset[int]) -> None:
        """Take note of storages that an operation has changed."""
        if not self.storages.isdisjoint(storages):
            self.kept.clear()

    def value(self) -> Any:
        """Return it again."""
        leaves = [one.tensor().detach() if isinstance(one, KeptTensor | StoredTensor) else one for one in self.kept]
        return self.structure.unflatten(leaves)


def keeping(wanted: frozenset[int], keep: Keep, outputs: dict[int, KeptOutput]) -> TorchDispatchMode:
    """Keep the outputs of costly operations, those whose numbers are wanted."""
    numbers = count()

    def run(operation: Any, args: Any, kwargs: Any) -> Any:
        output = operation(*args, **kwargs)
        if operation in COSTLY and is_costly(operation, args, kwargs):  # asked here for the most that are not
            if (number := next(numbers)) in wanted:
                outputs[number] = KeptOutput.of(output, keep)
        elif outputs and operation._schema.is_mutable and (storages := written(operation, args, kwargs)):
            for kept in outputs.values():
                kept.note_written(storages)
        return output

    return Dispatching(run)


def giving(outputs: dict[int, KeptOutput]) -> TorchDispatchMode:
    """Return the outputs that were kept in place of running costly operations, but for those that were changed.

    Each is let go as it is given, unless another backward pass may come: what nobody saved of them is then gone, and
    what was saved goes when it has been used, so that the device holds no more than in a run without them.
    """
    numbers = count()

    def run(operation: Any, args: Any, kwargs: Any) -> Any:
        if operation in COSTLY and is_costly(operation, args, kwargs):
            kept = outputs.get(number := next(numbers))
            if kept is not None and not kept.changed:
                if not keeps_graph():
                    del outputs[number]
                return kept.value()
        return operation(*args, **kwargs)

    return Dispatching(run)


class Observed(NamedTuple):
    """A costly operation that was watched."""

    span: tuple[Any, Any]
    sizes: list[int]
    """bytes of each output"""
    packed: int
    """how many tensors had been saved by then"""
    given: KeptOutput
    """without memory: it tells whether an output was changed in place"""


def watching(
    mark: Callable[[], Any],
    packed: Callable[[], int],
    ended: Callable[[], Any],
    observed: list[Observed],
    tell: Callable[[], None],
) -> TorchDispatchMode:
    """Time costly operations and weigh their outputs while a block runs again, until that is of no more interest.

    `tell` is called where torch.utils.checkpoint is at work inside of the block.
    """

    def run(operation: Any, args: Any, kwargs: Any) -> Any:
        if ended():
            return operation(*args, **kwargs)
        if checkpointing():
            tell()
        if not is_costly(operation, args, kwargs):
            if storages := written(operation, args, kwargs):
                for earlier in observed:
                    earlier.given.note_written(storages)
            return operation(*args, **kwargs)
        start = mark()
        output = operation(*args, **kwargs)
        span = start, mark()
        leaves = [leaf for leaf in optree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
        sizes = [leaf.untyped_storage().nbytes() for leaf in leaves if leaf.layout is torch.strided]
        observed.append(Observed(span, sizes, packed(), KeptOutput.of(output, _without_memory)))
        return output

    return Dispatching(run)


def _without_memory(alias: torch.Tensor) -> KeptTensor:
    """Keep what tells of changes of a tensor, and nothing of its memory."""
    if alias.layout is not torch.strided:
        return keep(alias)
    kept = KeptTensor(alias, alias._version, weakly(alias.untyped_storage()))  # no other has its address as long
    alias.data = torch.empty(0, dtype=alias.dtype, device=alias.device)
    return kept
