"""What to do with what each block of a training step saves: kept, moved, encoded or recomputed, by simulation.

A step runs its blocks forward, turns, and runs them backward in the reverse order. Its memory is measured once with
every block recomputed, the least that a step can do with. A choice for a block then adds bytes between its forward and
its backward, moves bytes over the link meanwhile, and takes seconds. The simulation foresees all of that, on one
computation and one link each way; nothing here knows tensors.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import inf, prod


@dataclass(frozen=True)
class Choice:
    """One way to treat what a block saves."""

    name: str
    kept: int = 0
    """bytes that stay on the device until the block's backward"""
    moved: int = 0
    """bytes that go down after its forward and come up before its backward"""
    freed: int = 0
    """those of the moved bytes that are the block's own inputs, which would stay otherwise"""
    forward: float = 0.0
    """seconds that its forward takes longer"""
    backward: float = 0.0
    """seconds that its backward takes longer"""
    gradual: bool = False
    """whether backward can begin before all has come up"""
    keeps_output: bool = False
    """whether the block's output stays on the device with it: the next block's input is then not freed by moving it"""


@dataclass(frozen=True)
class Block:
    """What was measured of one block, every block being recomputed; peaks are of the whole device."""

    name: str
    forward: float
    backward: float
    peak_forward: int
    peak_after: int
    """from the end of its forward to the next block's"""
    peak_backward: int
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Chain:
    """The blocks of a step in the order of their forward, and what is around them."""

    blocks: tuple[Block, ...]
    outside: float = 0.0
    """seconds of the step outside all blocks"""
    down: float = inf
    """bytes a second to the host"""
    up: float = inf
    """bytes a second from the host"""
    host: float = inf
    """bytes of the host that may be used"""


Rank = tuple[int, float, int]


@dataclass(frozen=True)
class Foreseen:
    """What a simulation found."""

    seconds: float
    stall: float
    peak: int
    """bytes of the device, at most"""
    moved: int
    """bytes that go down, and come up again"""
    excess: int
    """bytes above the budgets that no waiting can avoid; 0 where the choices are possible"""
    settle: tuple[int, ...]
    """how many of the blocks that move have to be gone before each block's forward, and, last, before the turn"""
    leave: tuple[int, ...]
    """the same before each block's backward"""
    fetch: tuple[tuple[int, ...], ...]
    """the blocks whose way back begins with each block's backward"""

    @property
    def rank(self) -> "Rank":
        """What is smaller is better: first possible, then fast, then with little traffic."""
        return self.excess, self.seconds, self.moved


class _Device:
    """The device's bytes beside what was measured, by block, and the way down that frees them."""

    def __init__(self, picks: Sequence[Choice], budget: int) -> None:
        self.budget = budget
        self.picks = picks
        self.freed = [
            0 if number and picks[number - 1].keeps_output else pick.freed for number, pick in enumerate(picks)
        ]
        self.here = [0] * len(picks)
        self.sum = 0
        self.flight: deque[tuple[int, float]] = deque()
        self.gone: set[int] = set()
        self.peak = self.excess = 0

    def put(self, number: int, nbytes: int) -> None:
        """Set the bytes of a block."""
        self.sum += nbytes - self.here[number]
        self.here[number] = nbytes

    def make_room(self, measured: int, own: int, time: float) -> float:
        """Wait for what is on its way down, as long as there is no room; give the time then."""
        while self.flight and measured + self.sum + own > self.budget:
            number, done = self.flight.popleft()
            time = max(time, done)
            self.put(number, self.picks[number].kept - self.freed[number])
            self.gone.add(number)
        self.peak = max(self.peak, measured + self.sum + own)
        self.excess = max(self.excess, measured + self.sum + own - self.budget)
        return time


def simulate(chain: Chain, picks: Sequence[Choice], budget: int) -> Foreseen:
    """Foresee a step.

    Parameters
    ----------
    chain
        What was measured.
    picks
        A choice for each block.
    budget
        The most bytes of the device at any moment.

    Examples
    --------
    >>> keep, again = Choice("keep", kept=100), Choice("recompute", backward=1.0)
    >>> chain = Chain(tuple(Block(f"{n}", 1.0, 2.0, 50, 50, 150, (keep, again)) for n in range(3)))
    >>> simulate(chain, [keep, keep, again], 350).seconds, simulate(chain, [keep] * 3, 349).excess
    (10.0, 1)
    """
    device = _Device(picks, budget)
    time = link = 0.0
    settle = []
    for number, (block, pick) in enumerate(zip(chain.blocks, picks, strict=True)):
        own = pick.kept + pick.moved - device.freed[number]
        time = begun = device.make_room(block.peak_forward, own, time)
        settle.append(len(device.gone))
        time += block.forward + pick.forward
        device.put(number, own)
        if pick.moved:  # its tensors go down one by one as they are made
            link = max(link, begun) + pick.moved / chain.down
            device.flight.append((number, max(link, time)))
        time = device.make_room(block.peak_after, 0, time)
    settle.append(len(device.gone))
    time, leave, fetch = _backward(chain, device, time)
    work = sum(
        block.forward + pick.forward + block.backward + pick.backward
        for block, pick in zip(chain.blocks, picks, strict=True)
    )
    moved = sum(pick.moved for pick in picks)
    excess = device.excess + max(0, moved - chain.host)
    return Foreseen(
        time + chain.outside, max(0.0, time - work), device.peak, moved, int(excess), tuple(settle), leave, fetch
    )


def _backward(chain: Chain, device: _Device, time: float) -> tuple[float, tuple[int, ...], tuple[tuple[int, ...], ...]]:
    arrives: dict[int, float] = {}
    leave = [0] * len(chain.blocks)
    fetches: list[list[int]] = [[] for _ in chain.blocks]
    link = 0.0

    def begin(number: int, now: int) -> None:
        nonlocal link
        link = max(link, time) + device.picks[number].moved / chain.up
        arrives[number] = link
        fetches[now].append(number)

    for number in reversed(range(len(chain.blocks))):
        block, pick = chain.blocks[number], device.picks[number]
        # Its own bytes are part of the peak from here on: all that it saved was there when the peak was measured.
        device.put(number, 0)
        device.flight = deque(one for one in device.flight if one[0] != number)
        time = device.make_room(block.peak_backward, 0, time)
        leave[number] = len(device.gone)
        if number in device.gone and number not in arrives:
            begin(number, number)
        for ahead in reversed(range(number)):
            if ahead in device.gone and ahead not in arrives:
                if not _fits(chain, device, number, ahead):
                    break
                device.put(ahead, device.here[ahead] + device.picks[ahead].moved)
                begin(ahead, number)
        device.peak = max(device.peak, block.peak_backward + device.sum)
        spent, arrived = block.backward + pick.backward, arrives.get(number, 0.0)
        time = max(time + spent, arrived) if pick.gradual else max(time, arrived) + spent
    return time, tuple(leave), tuple(map(tuple, fetches))


def _fits(chain: Chain, device: _Device, now: int, ahead: int) -> bool:
    """Tell whether a block may come back from now on: at every block's backward until its own there must be room."""
    before = device.sum
    for number in range(now, ahead, -1):
        if chain.blocks[number].peak_backward + before + device.picks[ahead].moved > device.budget:
            return False
        before -= device.here[number - 1]
    return True


def choose(chain: Chain, budget: int) -> tuple[tuple[Choice, ...], Foreseen]:
    """Find the choices with the smallest predicted step within a budget.

    All of them are tried where they are few. Otherwise two choices divided at any block, and the best choice of each
    block at many prices of a byte, are improved one block and two blocks at a time. The same chain and budget give
    the same choices.

    Returns
    -------
    picks, foreseen
        Where nothing is possible, those that come closest, with ``foreseen.excess`` above 0.

    Examples
    --------
    >>> keep, again = Choice("keep", kept=100), Choice("recompute", backward=1.0)
    >>> chain = Chain(tuple(Block(f"{n}", 1.0, 2.0, 50, 50, 150, (keep, again)) for n in range(3)))
    >>> picks, foreseen = choose(chain, 349)
    >>> [pick.name for pick in picks], foreseen.seconds
    (['keep', 'recompute', 'keep'], 10.0)
    """
    rank = _Ranking(chain, budget)
    if prod(len(block.choices) for block in chain.blocks) <= FEW:
        best = min(product(*(block.choices for block in chain.blocks)), key=rank)
    else:
        seeds = sorted({*_divided(chain), *_priced(chain)}, key=lambda picks: (rank(picks), _names(picks)))
        best = min((_improved(chain, seed, rank) for seed in seeds[:STARTS]), key=rank)
    return best, simulate(chain, best, budget)


class _Ranking:
    """Ranks choices by simulation, each once, until enough have been."""

    def __init__(self, chain: Chain, budget: int) -> None:
        self._chain, self._budget = chain, budget
        self._known: dict[tuple[Choice, ...], Rank] = {}

    @property
    def enough(self) -> bool:
        return len(self._known) * len(self._chain.blocks) > MOST

    def __call__(self, picks: tuple[Choice, ...]) -> Rank:
        if picks not in self._known:
            self._known[picks] = simulate(self._chain, picks, self._budget).rank
        return self._known[picks]


FEW = 600
"""So many combinations are tried one by one."""
STARTS = 3
"""So many of the best beginnings are improved."""
DIVISIONS = 32
"""At so many places at most a chain is divided in two."""
MOST = 80_000
"""When simulations have gone over so many blocks, nothing more is improved."""


def _names(picks: Sequence[Choice]) -> tuple[str, ...]:
    return tuple(pick.name for pick in picks)


def _divided(chain: Chain) -> Iterator[tuple[Choice, ...]]:
    """Give all pairs of choices, one before and one behind each of some places."""
    count = len(chain.blocks)
    kinds = range(max(len(block.choices) for block in chain.blocks))
    for place in range(0, count + 1, -(-count // DIVISIONS)):
        for one, other in product(kinds, kinds):
            yield tuple(
                block.choices[min(one if number < place else other, len(block.choices) - 1)]
                for number, block in enumerate(chain.blocks)
            )


def _priced(chain: Chain) -> Iterator[tuple[Choice, ...]]:
    """Give the best choice of each block when a byte of the device, and the link, have a price."""
    slower = min(chain.up, chain.down)
    for link in (0.0, 0.2, 0.5, 1.0):
        for power in range(-28, -14):

            def cost(choice: Choice, link: float = link, price: float = 10 ** (power / 2)) -> float:
                spent = choice.forward + choice.backward + link * choice.moved / slower
                return spent + price * (choice.kept - choice.freed)

            yield tuple(min(block.choices, key=cost) for block in chain.blocks)


def _improved(chain: Chain, picks: tuple[Choice, ...], rank: _Ranking) -> tuple[Choice, ...]:
    """Change one block, or exchange the choices of two, as long as that helps."""
    while not rank.enough:
        best = min((picks, *_changed(chain, picks)), key=rank)
        if best == picks:
            best = min((picks, *_exchanged(chain, picks)), key=rank)
        if best == picks:
            break
        picks = best
    return picks


def _changed(chain: Chain, picks: tuple[Choice, ...]) -> Iterator[tuple[Choice, ...]]:
    for number, block in enumerate(chain.blocks):
        for choice in block.choices:
            if choice != picks[number]:
                yield (*picks[:number], choice, *picks[number + 1 :])


def _exchanged(chain: Chain, picks: tuple[Choice, ...]) -> Iterator[tuple[Choice, ...]]:
    """Give one block the choice of another's name, and the other that of the first's; or any two changes, if few."""
    few = len(chain.blocks) <= 12
    for one, other in combinations(range(len(chain.blocks)), 2):
        for first, second in product(chain.blocks[one].choices, chain.blocks[other].choices):
            crossed = first.name == picks[other].name and second.name == picks[one].name
            if (crossed or few) and first != picks[one] and second != picks[other]:
                yield (*picks[:one], first, *picks[one + 1 : other], second, *picks[other + 1 :])
