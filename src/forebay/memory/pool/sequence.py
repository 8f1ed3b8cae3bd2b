"""The order in which arrays are used: remembered, recognised when it repeats, and foretold from then on.

A use is known by the arrays it takes. When the last few uses are those of an earlier stretch, what followed then is
expected to follow now, and the stretch between the two is the period. An order that was foretold wrongly has to be
followed for longer before it is believed again, so that accesses at random end up as if nothing were foretold.
"""

from bisect import bisect_right
from collections import defaultdict
from typing import NamedTuple

NEVER = 1 << 62
"""The next use of what is not expected to be used again."""
BELIEVED = 2
"""Uses in a row that have to be those of an earlier stretch before it is believed."""
MOST_DOUBT = 64
CONTEXT = 32
"""Uses that are compared when an earlier stretch is looked for."""
CANDIDATES = 16
"""Earlier places that are compared, the latest first."""
MEMORY = 1 << 16
"""Uses that are remembered; the older half of them is forgotten when there are more."""


class Use(NamedTuple):
    """The keys of the arrays that one use takes."""

    reads: tuple[int, ...]
    writes: tuple[int, ...] = ()
    overwrites: tuple[int, ...] = ()

    @property
    def keys(self) -> tuple[int, ...]:
        """List all of them, in the order in which they are handed out."""
        return self.reads + self.writes + self.overwrites


class UseHistory:
    """The uses so far, and those to come.

    Examples
    --------
    >>> history = UseHistory()
    >>> for key in (7, 8, 9, 7, 8):
    ...     history.add(Use((key,)))
    >>> history.believed, history.period, history.expected(history.now + 1)
    (True, 3, Use(reads=(9,), writes=(), overwrites=()))
    >>> history.next_use(7) - history.now
    2
    """

    def __init__(self) -> None:
        self.now = -1
        """Index of the last use."""
        self.believed = False
        """Whether what is to come is known."""
        self.version = 0
        """Grows whenever what was foretold no longer holds."""
        self._uses: list[Use] = []
        self._first = 0  # index of the first use that is remembered
        self._places: defaultdict[Use, list[int]] = defaultdict(list)
        self._positions: defaultdict[int, list[int]] = defaultdict(list)  # of each array
        self._at: int | None = None  # the earlier use that the last one is like
        self._matched = 0  # uses in a row that were foretold
        self._doubt = BELIEVED

    @property
    def period(self) -> int:
        """Uses from one round to the next; 0 where nothing repeats."""
        return 0 if self._at is None else self.now - self._at

    def add(self, use: Use) -> None:
        """Remember a use that begins now."""
        if self._at is not None and self._use(self._at + 1) == use:
            self._at += 1
            self._matched += 1
            if self._matched % (self.now + 1 - self._at) == 0:  # a whole round came as foretold
                self._doubt = max(BELIEVED, self._doubt // 2)
        else:
            if self.believed:
                self._doubt = min(2 * self._doubt, MOST_DOUBT)
                self.version += 1
            self._find(use)
        self.now += 1
        self._uses.append(use)
        self._places[use].append(self.now)
        for key in use.keys:
            self._positions[key].append(self.now)
        believed = self._at is not None and self._matched >= self._doubt
        self.version += believed and not self.believed
        self.believed = believed
        if len(self._uses) > MEMORY:
            self._forget_half()

    def expected(self, index: int) -> Use:
        """Return a use of the next round: `index` is from `now + 1` to `now + period`."""
        assert self._at is not None
        return self._use(self._at + index - self.now)

    def next_use(self, key: int) -> int:
        """Return the index of the next use of an array, or NEVER."""
        if self._at is None:
            return NEVER
        positions = self._positions.get(key, ())
        later = bisect_right(positions, self._at)
        return NEVER if later == len(positions) else self.now + positions[later] - self._at

    def _use(self, index: int) -> Use:
        return self._uses[index - self._first]

    def _find(self, use: Use) -> None:
        """Look for the earlier place that looks most like the present, the latest of several."""
        self._at, self._matched = None, 0
        for place in self._places[use][: -CANDIDATES - 1 : -1]:
            alike = 1
            while (
                alike < CONTEXT
                and place - alike >= self._first
                and self._use(place - alike) == self._use(self.now + 1 - alike)
            ):
                alike += 1
            if alike > self._matched:
                self._at, self._matched = place, alike

    def _forget_half(self) -> None:
        kept = self._uses[len(self._uses) // 2 :]
        self._first = self.now + 1 - len(kept)
        self._uses = kept
        self._places.clear()
        self._positions.clear()
        for index, use in enumerate(kept, self._first):
            self._places[use].append(index)
            for key in use.keys:
                self._positions[key].append(index)
        if self._at is not None and self._at < self._first:
            self._at, self._matched, self.believed = None, 0, False
            self.version += 1
