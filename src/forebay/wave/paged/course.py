"""Which planes a pass through a model has in its window, and which of them each visit takes through which steps.

A pass takes all planes several steps further while each is moved to the window once, and back once. Its slabs lean: in
each step a slab is as many planes nearer to the pass's beginning as a stencil reaches. So what a step needs beyond a
slab's end the slab before has not computed yet, or this one has: nothing is computed twice. Two fields are enough, as
always, since planes before a slab that are a step ahead still have the field of the step before in the older of both.

Passes go down and up in turns. Where one ends the next begins, and what is in the window stays there.

A plane lies in the window at a distance from the first one that stays as it is while the window moves, until there is
no room ahead: then what the next visit still needs is moved back as far as it goes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

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
        return (self.count - 2 * self.halo - 2 * self.thinnest) // self.reach + 1

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
    """planes that are moved inside the window before it, and the origin they had"""
    steps: tuple[Span, ...]
    """the planes that each step computes"""

    @property
    def computes(self) -> Span:
        """The planes that any step computes."""
        return min(span[0] for span in self.steps), max(span[1] for span in self.steps)

    def turned(self, count: int, room: int) -> "Visit":
        """Return the same of a model turned upside down, in a window turned likewise."""

        def turn(span: Span) -> Span:
            return count - span[1], count - span[0]

        spans = {name: turn(span) for name, span in vars(self).items() if name in ("window", "arrive", "leave")}
        moved = (turn(self.moved[0]), count - room - self.moved[1]) if self.moved else None
        steps = tuple(map(turn, self.steps))
        return replace(self, **spans, origin=count - room - self.origin, moved=moved, steps=steps)


@dataclass(frozen=True)
class Remaining:
    """What a pass leaves in the window."""

    planes: Span
    origin: int


def course(planes: Planes, steps: int, slab: int, room: int, there: Remaining | None, last: bool) -> Iterator[Visit]:
    """Yield the visits of a pass down, or up from what one has left there; the last one leaves nothing behind.

    Examples
    --------
    >>> planes = Planes(120, halo=4, reach=4, before=24, after=24)
    >>> for visit in course(planes, steps=3, slab=30, room=92, there=None, last=False):
    ...     print(visit.arrive, visit.leave, visit.origin, visit.moved, visit.steps)
    (0, 46) (0, 30) 0 None ((4, 42), (4, 38), (4, 34))
    (46, 76) (30, 60) 0 None ((42, 72), (38, 68), (34, 64))
    (76, 96) (60, 80) 60 ((60, 76), 0) ((72, 92), (68, 88), (64, 84))
    (96, 120) (80, 80) 60 None ((92, 116), (88, 116), (84, 116))
    >>> up = course(planes, steps=3, slab=30, room=92, there=Remaining((80, 120), 60), last=True)
    >>> next(up).arrive
    (74, 80)
    """
    up = there is not None and there.planes[1] == planes.count
    if up:
        planes = replace(planes, before=planes.after, after=planes.before)
    origin, found = 0, 0  # where planes lie, and up to which they are there
    if there is not None:
        origin, found = there.origin, there.planes[1]
        if up:
            origin, found = planes.count - room - there.origin, planes.count - there.planes[0]
    for visit in _down(planes, steps, slab, room, origin, found, last):
        yield visit.turned(planes.count, room) if up else visit


def _down(planes: Planes, steps: int, slab: int, room: int, origin: int, there: int, last: bool) -> Iterator[Visit]:
    """Yield the visits of a pass down, whose first planes are there with an origin."""
    reach, borders = planes.reach, planes.borders(steps, slab)
    for number in range(len(borders) + 1):
        begin, ends = borders[number - 1] if number else None, number == len(borders)
        first = 0 if begin is None else begin - steps * reach
        stop = planes.count if ends else borders[number] + reach
        moved = None
        if max(stop, there) - origin > room:
            moved, origin = ((first, there), origin), first
        ranges = tuple(
            (
                planes.halo if begin is None else begin - step * reach,
                planes.count - planes.halo if ends else borders[number] - step * reach,
            )
            for step in range(steps)
        )
        gone = (planes.count if last else first) if ends else borders[number] - steps * reach
        yield Visit((first, stop), (there, max(stop, there)), (first, gone), origin, moved, ranges)
        there = max(stop, there)
