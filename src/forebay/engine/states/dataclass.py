"""Dataclasses as trees: their fields are arrays, trees, or plain values that stay as they are."""

from dataclasses import fields, is_dataclass
from typing import Any

from forebay.engine.states.plain import PLAIN, Fixed, attributes
from forebay.errors import StateError


def is_tree_class(kind: type[Any]) -> bool:
    """Tell whether a class is a dataclass whose instances are no arrays themselves."""
    return is_dataclass(kind) and not hasattr(kind, "__array__") and not hasattr(kind, "__cuda_array_interface__")


def take(instance: Any) -> tuple[Any, Any, Any]:
    """Take an instance apart into what its fields hold, and the names of those that are no plain values."""
    values = {field.name: getattr(instance, field.name) for field in fields(instance)}
    plain = {name: value for name, value in values.items() if type(value) in PLAIN}
    names = tuple(name for name in values if name not in plain)
    return tuple(values[name] for name in names), (names, Fixed(plain | attributes(instance, values))), names


def build(kind: type[Any], about: tuple[tuple[str, ...], Fixed], children: Any) -> Any:
    """Make an instance with these attributes; a constructor might make others of them."""
    names, fixed = about
    try:
        instance = kind.__new__(kind)  # type: ignore[call-overload]
        for name, value in (fixed.values | dict(zip(names, children, strict=True))).items():
            object.__setattr__(instance, name, value)
    except (AttributeError, TypeError) as error:
        raise StateError(
            f"a {kind.__name__} cannot be made from its fields ({error}): tell how with forebay.register_state"
        ) from error
    return instance
