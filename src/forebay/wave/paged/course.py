"""Which planes a pass through a model has in its window, and which of them each visit takes through which steps.

A pass takes all planes several steps further while each is moved to the window once, and back once. Its slabs lean: in
each step a slab is as many planes nearer to the first one as a stencil reaches. So what a step needs beyond a slab's
end the slab before has not computed yet, or this one has: nothing is computed twice. Two fields are enough, as always,
since planes before a slab that are a step ahead still have the field of the step before in the older of both.

A plane lies in the window at a distance from the first one that stays as it is while the window moves, until there is
no room behind: then what the next visit still needs is moved to the beginning.
"""

from collections.abc import Iterator
from dataclasses import dataclass

Span = tuple[int, int]
"""From a plane on, to one that is no more part of it."""


@dataclass(frozen=True)
class Planes:
    """What a pass must know of a model's planes."""

    count: int
    """with those of layers and of the halo, of which the latter are read only"""
    halo: int
    reach: int
    """planes to either side that a step needs, or what points hear"""
    before: int
    """the first planes that are computed together in each step"""
    after: int
    """the last ones"""

    @property
    def thinnest(self) -> int:
        """The fewest planes of a slab."""
        return max(self.before, self.after, 2 * self.reach)

    @property
    def most_steps(self) -> int:
        """The most steps of a pass in which the first slab keeps those planes that are computed together."""
        return (self.count - 2 * self.halo - self.after - self.thinnest) // self.reach + 1

    def window(self, steps: int, slab: int) -> int:
        """Return how many planes a visit has in its window."""
        return min(self.count, slab + (steps + 1) * self.reach)

    def borders(self, steps: int, slab: int) -> list[int]:
        """Return where slabs end in the first step, all but the last one.

        Examples
        --------
        >>> Planes(120, halo=4, reach=4, before=24, after=24).borders(steps=3, slab=30)
        [42, 72, 92]
        """
        found, last, end = list[int](), self.count - self.halo - self.after, slab + steps * self.reach
        while end + self.reach < self.count:
            found.append(min(end, last))
            end = found[-1] + slab
        return found


@dataclass(frozen=True)
class Visit:
    """What one slab is."""

    window: Span
    """planes that it needs"""
    arrive: Span
    """those that were not in the window before"""
    leave: Span
    """those that no later visit needs"""
    origin: int
    """the plane, there or not, that lies where the window's memory begins"""
    moved: tuple[Span, int] | None
    """planes that are moved to the beginning before it, and the origin they had"""
    steps: tuple[Span, ...]
    """the planes that each step computes"""

    @property
    def computes(self) -> Span:
        """The planes that any step computes."""
        return self.steps[-1][0], self.steps[0][1]


def course(planes: Planes, steps: int, slab: int, room: int) -> Iterator[Visit]:
    """Yield the visits of a pass through all planes, in a window that has room for so many.

    Examples
    --------
    >>> planes = Planes(120, halo=4, reach=4, before=24, after=24)
    >>> for visit in course(planes, steps=3, slab=30, room=92):
    ...     print(visit.window, visit.origin, visit.moved, visit.steps)
    (0, 46) 0 None ((4, 42), (4, 38), (4, 34))
    (30, 76) 0 None ((42, 72), (38, 68), (34, 64))
    (60, 96) 60 ((60, 76), 0) ((72, 92), (68, 88), (64, 84))
    (80, 120) 60 None ((92, 116), (88, 116), (84, 116))
    """
    reach, borders = planes.reach, planes.borders(steps, slab)
    origin, there = 0, 0
    for number in range(len(borders) + 1):
        begin, last = borders[number - 1] if number else None, number == len(borders)
        first = 0 if begin is None else begin - steps * reach
        stop = planes.count if last else borders[number] + reach
        moved = None
        if stop - origin > room:
            moved, origin = ((first, there), origin), first
        ranges = tuple(
            (
                planes.halo if begin is None else begin - step * reach,
                planes.count - planes.halo if last else borders[number] - step * reach,
            )
            for step in range(steps)
        )
        gone = planes.count if last else borders[number] - steps * reach
        yield Visit((first, stop), (there, stop), (first, gone), origin, moved, ranges)
        there = stop
