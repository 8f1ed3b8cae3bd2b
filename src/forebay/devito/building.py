"""The two places where Devito is changed while fields are on the device: how operators are built, and what they take.

Operators built while fields are there are generated without transfers. They never run on a field that is not on the
device, later either: they would read unmapped memory there. Operators built before would copy every field at each call,
which is what keeping fields on the device is to avoid, so they are refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from devito.core.gpu import DeviceOperatorMixin
from devito.ir.iet import FindSymbols
from devito.operator import operator as module
from devito.operator.operator import Operator

from forebay.devito.fields import admit
from forebay.devito.support import DevitoError

_depth = 0  # scopes that are open, which may end in any order
_outside = 0


class WithoutTransfers:
    """What is different in an operator that was built while fields are on the device."""

    @classmethod
    def _normalize_kwargs(cls, **kwargs: Any) -> Any:
        kwargs["options"].setdefault("place-transfers", False)
        return super()._normalize_kwargs(**kwargs)  # type: ignore[misc]

    @classmethod
    def _build(cls, expressions: Any, **kwargs: Any) -> Any:
        operator = super()._build(expressions, **kwargs)  # type: ignore[misc]
        symbols = FindSymbols().visit(operator)
        # Devito maps these where it places transfers, and only there; most temporaries are allocated on the device.
        if mapped := sorted(
            array.name for array in symbols if array.is_Array and array._mem_heap and array._mem_mapped
        ):
            raise DevitoError(
                f"operator {operator.name} has temporaries that need transfers ({', '.join(mapped)}): leave out the "
                "options of opt= that make them, or build and call it outside"
            )
        return operator

    def _prepare_arguments(self, *, estimate_memory: bool = False, **kwargs: Any) -> Any:
        arguments = super()._prepare_arguments(estimate_memory=estimate_memory, **kwargs)  # type: ignore[misc]
        if not estimate_memory:
            admit(self, arguments)
        return arguments

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by the class of Devito: this one has no name by which it could be found."""
        how: tuple[Any, ...] = super().__reduce_ex__(protocol)  # type: ignore[assignment]
        _, (kind, *arguments), *state = how
        return _revived, (kind.__mro__[2], *arguments), *state


def _revived(kind: type, *arguments: Any) -> Any:
    """Make an operator that was pickled, before it is given its state."""
    made = _without_transfers(kind)
    return made.__new__(made, *arguments)


@cache
def _without_transfers(kind: type) -> type:
    return type(kind.__name__, (WithoutTransfers, kind), {"__module__": kind.__module__})


@contextmanager
def outside() -> Iterator[None]:
    """Build operators with transfers again, inside `resident` or `unified`.

    For functions that do not stay on the device, and for what builds operators of its own on functions of its own, as
    Devito's ``norm``, ``gaussian_smooth`` and ``initialize_function`` do. What stays on the device is out of reach.
    """
    global _outside
    _outside += 1
    try:
        yield
    finally:
        _outside -= 1


_select, _prepare = module.operator_selector, Operator._prepare_arguments


def _selected(**kwargs: Any) -> Any:
    kind = _select(**kwargs)
    return _without_transfers(kind) if issubclass(kind, DeviceOperatorMixin) and not _outside else kind


def _prepared(self: Any, *, estimate_memory: bool = False, **kwargs: Any) -> Any:
    arguments = _prepare(self, estimate_memory=estimate_memory, **kwargs)
    if not estimate_memory and not isinstance(self, WithoutTransfers):
        admit(self, arguments)
    return arguments


@contextmanager
def building_without_transfers() -> Iterator[None]:
    """Build operators without transfers, and admit every operator before it runs; nests."""
    global _depth, _select, _prepare
    if not _depth:
        _select, _prepare = module.operator_selector, Operator._prepare_arguments
        module.operator_selector, Operator._prepare_arguments = _selected, _prepared
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            module.operator_selector, Operator._prepare_arguments = _select, _prepare
