"""Plain values beside the arrays of a state: they are part of its structure, and the same where every bit is."""

from functools import cached_property
from typing import Any

from forebay.errors import StateError

PLAIN = (type(None), bool, int, float, complex, str, bytes)


def same(one: Any, other: Any) -> bool:
    """Tell whether values are the same in type and bits; one that is no number is the same as another.

    Examples
    --------
    >>> nan = float("nan")
    >>> same((1, nan), (1, -nan)), same(2, 2.0), same({"dt": 0.0}, {"dt": -0.0})
    (True, False, False)
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, float | complex):
        return repr(one) == repr(other)
    if type(one) in (tuple, list):
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is dict:
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return one is other or bool(one == other)


class Fixed:
    """Plain values by their names."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and same(self.values, other.values)

    def __hash__(self) -> int:
        return hash(tuple(self.values))

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value!r:.60}" for name, value in self.values.items())


def attributes(instance: Any, known: Any = ()) -> dict[str, Any]:
    """Return the attributes that an instance has beside known ones, refusing those that are no plain values.

    What a property has cached is left out: it is computed again.
    """
    kind = type(instance)
    own = {name: value for name, value in getattr(instance, "__dict__", {}).items() if name not in known}
    for name in [name for name in own if isinstance(getattr(kind, name, None), cached_property)]:
        del own[name]
    for name, value in own.items():
        if type(value) not in PLAIN:
            raise StateError(
                f"the attribute {name} of a {kind.__name__} would be lost, being neither a field nor a plain value: "
                "make it a field, or tell how with forebay.register_state"
            )
    return own
