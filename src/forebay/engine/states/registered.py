"""Classes that a user registers: their functions, and words for what these do wrong."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from forebay.engine.states.plain import same
from forebay.errors import StateError


class Rest:
    """What an instance is made of beside its arrays; what may be written to is copied, so that a change is seen."""

    def __init__(self, kind: type[Any], value: Any) -> None:
        self.kind, self.value, self._can_change = kind, value, False
        if hasattr(value, "__array__"):
            raise StateError(f"{self._words} is an array: it belongs among them")
        try:
            hash(value)
        except TypeError:
            self._can_change = True
            self.value = deepcopy(value)
            self._is_same(value)  # which is refused here, if at all

    def _is_same(self, value: Any) -> bool:
        try:
            return same(self.value, value)
        except Exception as error:
            raise StateError(f"{self._words} cannot be compared ({error}): arrays belong among them") from error

    @property
    def _words(self) -> str:
        return f"what flatten returns beside the arrays of a {self.kind.__name__}"

    def taken(self) -> Any:
        """Return it for an instance that may write to it."""
        return deepcopy(self.value) if self._can_change else self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rest) and self._is_same(other.value)

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return repr(self.value)


def taker(kind: type[Any], flatten: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that takes instances apart as `flatten` does, and sees that it is as it has to be."""

    def take(instance: Any) -> tuple[Any, ...]:
        taken = flatten(instance)
        if not isinstance(taken, tuple) or len(taken) not in (2, 3) or not isinstance(taken[0], tuple | list):
            raise StateError(
                f"flatten of {kind.__name__} has to return a tuple of arrays and all else, ((x, y), rest), "
                f"and returned {taken!r:.100}"
            )
        return (tuple(taken[0]), Rest(kind, taken[1]), *taken[2:])

    return take


def builder(kind: type[Any], unflatten: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function that makes instances as `unflatten` does, and names the class where it fails."""

    def build(rest: Rest, arrays: Any) -> Any:
        try:
            return unflatten(rest.taken(), arrays)
        except Exception as error:
            raise StateError(f"unflatten of {kind.__name__} raised {type(error).__name__}: {error}") from error

    return build
