"""What to do with what each block of a training step saves: kept, moved, encoded or recomputed, by simulation.

A step runs its blocks forward, turns, and runs them backward in the reverse order. Its memory is measured once with
every block recomputed, the least that a step can do with. A choice for a block then adds bytes between its forward and
its backward, moves bytes over the link, and takes seconds. The simulation predicts all of that, on one
computation and one link each way; nothing here knows tensors.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class BlockChoice:
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
    room: int = 0
    """bytes that its forward needs on top for a moment, as an encoder does"""
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
    choices: tuple[BlockChoice, ...]


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
class Forecast:
    """What a simulation predicts of a step."""

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

    def __init__(self, picks: Sequence[BlockChoice], budget: int) -> None:
        self.budget = budget
        self.picks = picks
        self.freed = [
            0 if number and picks[number - 1].keeps_output else pick.freed for number, pick in enumerate(picks)
        ]
        self.here = [0] * len(picks)
        self.sum = 0
        self.flight: deque[tuple[int, float]] = deque()
        self.gone: set[int] = set()
        self.peak = 0

    def put(self, number: int, nbytes: int) -> None:
        """Set the bytes of a block."""
        self.sum += nbytes - self.here[number]
        self.here[number] = nbytes

    def make_room(self, measured: int, own: int, time: float) -> float:
        """Wait for what is on its way down, as long as there is no room, and return the time then."""
        needed = measured + self.sum + own
        while needed > self.budget and self.flight:
            number, done = self.flight.popleft()
            time = max(time, done)
            self.put(number, self.picks[number].kept - self.freed[number])
            self.gone.add(number)
            needed = measured + self.sum + own
        if needed > self.peak:
            self.peak = needed
        return time

    @property
    def excess(self) -> int:
        """Bytes above the budget, at most."""
        return max(0, self.peak - self.budget)


def simulate(chain: Chain, picks: Sequence[BlockChoice], budget: int) -> Forecast:
    """Predict a step.

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
    >>> keep, again = BlockChoice("keep", kept=100), BlockChoice("recompute", backward=1.0)
    >>> chain = Chain(tuple(Block(f"{n}", 1.0, 2.0, 50, 50, 150, (keep, again)) for n in range(3)))
    >>> simulate(chain, [keep, keep, again], 350).seconds, simulate(chain, [keep] * 3, 349).excess
    (10.0, 1)
    """
    device = _Device(picks, budget)
    time = link = 0.0
    settle = []
    for number, (block, pick) in enumerate(zip(chain.blocks, picks, strict=True)):
        own = pick.kept + pick.moved - device.freed[number]
        time = begun = device.make_room(block.peak_forward, own + pick.room, time)
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
    return Forecast(
        time + chain.outside, max(0.0, time - work), device.peak, moved, int(excess), tuple(settle), leave, fetch
    )


def _backward(chain: Chain, device: _Device, time: float) -> tuple[float, tuple[int, ...], tuple[tuple[int, ...], ...]]:
    arrives: dict[int, float] = {}
    leave: list[int] = []  # of the last block first
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
        if device.flight and device.flight[-1][0] == number:  # they went in the order of their forward
            device.flight.pop()
        time = device.make_room(block.peak_backward, 0, time)
        leave.append(len(device.gone))
        if number in device.gone and number not in arrives:
            begin(number, number)
        for ahead in range(number - 1, -1, -1) if device.gone else ():
            if ahead in device.gone and ahead not in arrives:
                if not _fits(chain, device, number, ahead):
                    break
                device.put(ahead, device.here[ahead] + device.picks[ahead].moved)
                begin(ahead, number)
        if block.peak_backward + device.sum > device.peak:
            device.peak = block.peak_backward + device.sum
        spent, arrived = block.backward + pick.backward, arrives.get(number, 0.0)
        time = max(time + spent, arrived) if pick.gradual else max(time, arrived) + spent
    return time, tuple(reversed(leave)), tuple(map(tuple, fetches))


def _fits(chain: Chain, device: _Device, now: int, ahead: int) -> bool:
    """Return whether a block may come back from now on: at every block's backward until its own there must be room."""
    before = device.sum
    for number in range(now, ahead, -1):
        if chain.blocks[number].peak_backward + before + device.picks[ahead].moved > device.budget:
            return False
        before -= device.here[number - 1]
    return True
