"""Dataclasses as trees: their fields are arrays, trees, or plain values that stay as they are."""

from dataclasses import fields, is_dataclass
from typing import Any

from forebay.errors import StateError

PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Fixed:
    """The plain values of a dataclass, which are part of its structure."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self.values == other.values

    def __hash__(self) -> int:
        return hash(tuple(self.values))

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value!r:.60}" for name, value in self.values.items())


def is_record(kind: type[Any]) -> bool:
    """Tell whether a class is a dataclass whose instances are no arrays themselves."""
    return is_dataclass(kind) and not hasattr(kind, "__array__") and not hasattr(kind, "__cuda_array_interface__")


def take(instance: Any) -> tuple[Any, Any, Any]:
    """Take an instance apart into what its fields hold, and the names of those that are no plain values."""
    values = {field.name: getattr(instance, field.name) for field in fields(instance)}
    plain = {name: value for name, value in values.items() if type(value) in PLAIN}
    names = tuple(name for name in values if name not in plain)
    return tuple(values[name] for name in names), (names, Fixed(plain)), names


def build(kind: type[Any], about: tuple[tuple[str, ...], Fixed], children: Any) -> Any:
    """Make an instance from its fields, as its user would; those that it fills itself are set afterwards."""
    names, fixed = about
    values = fixed.values | dict(zip(names, children, strict=True))
    own = {field.name for field in fields(kind) if not field.init}
    try:
        instance = kind(**{name: value for name, value in values.items() if name not in own})
    except TypeError as error:
        raise StateError(
            f"a {kind.__name__} cannot be made from its fields ({error}): tell how with forebay.register_state"
        ) from error
    for name in own & values.keys():
        object.__setattr__(instance, name, values[name])
    return instance
