"""The two places where Devito is changed while fields are on the device: how operators are built, and what they take.

Operators built meanwhile are generated without transfers and never run on a field that is not on the device, later
either: they would read unmapped memory there. Operators built before would copy every field at each call, which is
what keeping fields on the device is to avoid, so they are refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from devito.core.gpu import DeviceOperatorMixin
from devito.ir.iet import FindSymbols
from devito.operator import operator as module
from devito.operator.operator import Operator

from penstock.devito.support import DevitoError

Admit = Callable[[Any, Any], None]
"""Called with an operator and its arguments before it runs; raises where it must not."""

_admit: Admit | None = None
_depth = 0


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
        if mapped := sorted(one.name for one in symbols if one.is_Array and one._mem_heap and one._mem_mapped):
            raise DevitoError(
                f"operator {operator.name} has temporaries that need transfers ({', '.join(mapped)}): leave out the "
                "options of opt= that make them, or build and call it outside"
            )
        return operator

    def _prepare_arguments(self, *, estimate_memory: bool = False, **kwargs: Any) -> Any:
        arguments = super()._prepare_arguments(estimate_memory=estimate_memory, **kwargs)  # type: ignore[misc]
        if not estimate_memory and _admit is not None:
            _admit(self, arguments)
        return arguments


@cache
def _without_transfers(kind: type) -> type:
    return type(kind.__name__, (WithoutTransfers, kind), {"__module__": kind.__module__})


@contextmanager
def building_without_transfers(admit: Admit) -> Iterator[None]:
    """Have operators built without transfers, and every operator admitted before it runs; nests."""
    global _admit, _depth
    _admit, _depth = admit, _depth + 1
    if _depth > 1:
        try:
            yield
        finally:
            _depth -= 1
        return
    select, prepare = module.operator_selector, Operator._prepare_arguments

    def selected(**kwargs: Any) -> Any:
        kind = select(**kwargs)
        return _without_transfers(kind) if issubclass(kind, DeviceOperatorMixin) else kind

    def prepared(self: Any, *, estimate_memory: bool = False, **kwargs: Any) -> Any:
        arguments = prepare(self, estimate_memory=estimate_memory, **kwargs)
        if not estimate_memory and not isinstance(self, WithoutTransfers):
            admit(self, arguments)
        return arguments

    module.operator_selector, Operator._prepare_arguments = selected, prepared
    try:
        yield
    finally:
        module.operator_selector, Operator._prepare_arguments = select, prepare
        _depth -= 1
