"""Which saved tensors to move, from the order in which an iteration saved and asked for them. It knows no tensors."""

from collections.abc import Iterable, Sequence


def fetch_order(count: int, uses: Sequence[int]) -> list[int]:
    """Sort the numbers of all that was saved by when they are first asked for.

    What was never asked for, or is not known to have been, is taken to come in the reverse order of saving.

    Examples
    --------
    >>> fetch_order(4, [3, 1, 3])
    [3, 1, 2, 0]
    """
    asked = list(dict.fromkeys(uses))
    placed = set(asked)
    return asked + [number for number in reversed(range(count)) if number not in placed]


def to_move(sizes: Sequence[int], order: Iterable[int], budget: int) -> frozenset[int]:
    """Choose what has to leave the device so that the rest is within the budget: those asked for last.

    Belady's rule; and as they are mostly those saved first, their copies have the longest time both ways.

    Examples
    --------
    >>> sorted(to_move([4, 4, 4, 4], order=[3, 2, 1, 0], budget=9))
    [0, 1]
    """
    excess = sum(sizes) - budget
    moved = set()
    for number in reversed(list(order)):
        if excess <= 0:
            break
        moved.add(number)
        excess -= sizes[number]
    return frozenset(moved)
