"""What a user holds of an array that is in a pool."""

from typing import Any

from forebay.memory.pool.page import Page, Values


class Resident:
    """An array of a pool; `Pool.use` hands its elements out.

    Its memory is given back when nothing refers to it any more, or by `Pool.drop`.
    """

    __slots__ = ("__weakref__", "_page", "_pool")

    def __init__(self, pool: object, page: Page) -> None:
        self._pool = pool
        self._page = page

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._page.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self._page.spec.shape

    @property
    def dtype(self) -> Any:
        """Its type, as the library of the pool has it."""
        return self._page.spec.dtype if self._page.spec.kind is None else self._page.spec.kind

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self._page.spec.nbytes

    @property
    def on_device(self) -> bool:
        """Whether it takes room on the device now."""
        return self._page.offset is not None

    @property
    def dirty(self) -> bool:
        """Whether the device has newer values than the host."""
        return self._page.values is Values.DIRTY

    def __repr__(self) -> str:
        gone = self._page.values is Values.DROPPED
        place = "dropped" if gone else "on the device" if self.on_device else "on the host"
        return f"Resident({self.name}, {self._page.spec}, {place}{', dirty' if self.dirty else ''})"
