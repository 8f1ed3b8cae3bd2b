"""Timing what each kind of operation takes the host, so that loops of short steps are predicted too."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from statistics import median
from time import perf_counter
from typing import Any

from forebay.engine.executor import Executor
from forebay.engine.loop import TimeLoop
from forebay.engine.timing.measure import REPEATS
from forebay.machine.arrays.dispatch import array_library
from forebay.machine.machine import ReversalMachine
from forebay.planner import HostCost
from forebay.planner.choose import operations_of
from forebay.planner.operations import Evict, Fetch, Operation, Store
from forebay.schedule import Backward, Drop, Forward, Restore, Revolve, Save

KINDS = 16
"""Operations of each kind that are timed in a row."""
ELEMENTS = 16
"""Elements of each array that they are timed with: next to nothing is computed or moved."""


def nothing() -> None:
    """Do nothing, as the step of a loop."""


def host_costs(
    make: Callable[[], ReversalMachine],
    arrays: Sequence[Any],
    tiers: Sequence[str],
    step: Callable[[], None] = nothing,
    asked: float = 0.0,
) -> HostCost:
    """Time the host's part of each kind of operation, as a reversal has it, with a few elements of each array.

    `step` asks for a real step, which takes `asked` where many are asked for in a row. Between other things it takes
    longer, and the difference counts with each call. Each kind is timed in a row. Mixed as they are in a reversal they
    take longer, which one of those tells, and another one with movements between tiers what these take in it. By the
    clock of a machine that has not done anything yet such a reversal takes longer still, by what a start and a turn
    take.
    """
    first = list(map(_few_elements, arrays))

    def forward(state: Any, start: int, stop: int) -> Any:
        step()
        return state

    still = TimeLoop(forward, first, steps=2 * KINDS, every=1, record=None)
    numbers, rooms = range(KINDS), [KINDS * still.layout.nbytes for _ in tiers]
    mixed = Revolve(2 * KINDS, KINDS // 4)

    @contextmanager
    def executing() -> Iterator[Executor]:
        machine = make()
        try:
            callbacks = still.callbacks(True, None, lambda state, number: step(), machine.pause)
            yield Executor(machine, still.layout, tiers, rooms, callbacks)
        finally:
            machine.close()

    with executing() as executor:
        state = executor.load(first)

        def seconds(operations: Iterable[Operation]) -> float:
            start = perf_counter()
            executor.run(operations, state)
            return perf_counter() - start

        def each() -> dict[str, float]:
            save: Sequence[Operation] = [Save(number) for number in numbers]
            take: Sequence[Operation] = [action for number in numbers for action in (Restore(number), Drop(number))]
            kinds: dict[str, Sequence[Operation]] = {
                "call": [*(Forward(0, 1) for _ in numbers), *(Backward(0) for _ in numbers)],
                "save": save,
                "restore": [Restore(number) for number in numbers],
                "take": take,
            }
            if len(tiers) > 1:
                kinds["saved again"] = save
                kinds["store"] = [Store(number, 1) for number in numbers]
                kinds["drop"] = [Evict(number, 0) for number in numbers]
                kinds["fetch"] = [Fetch(number, 1) for number in numbers]
                kinds["arrived"] = take  # which waits for the fetches
            return {kind: seconds(operations) / KINDS for kind, operations in kinds.items()}

        rounds = [each() for _ in range(1 + REPEATS)][1:]  # the first finds nothing in caches
        kind = {name: median(taken[name] for taken in rounds) for name in rounds[0]}
        drop = kind.get("drop", 0.0)
        cost = HostCost(
            forward=asked,
            backward=asked,
            call=max(0.0, kind["call"] / 2 - asked),
            save=kind["save"],
            restore=kind["restore"],
            take=max(0.0, kind["take"] - drop),
            drop=drop,
            move=(kind.get("store", 0.0) + kind.get("fetch", 0.0)) / 2,
        )
        alone = cost.seconds(mixed.steps, mixed.steps, mixed.saves)
        warm = median(seconds(mixed) for _ in range(REPEATS))
        slower = max(1.0, warm / alone)
        move = slower * cost.move
        if len(tiers) > 1:
            moving = list(operations_of(mixed, (KINDS // 8, KINDS), "lru"))
            longer = median(seconds(moving) for _ in range(REPEATS)) - warm
            move = max(move, _of_a_movement(moving, longer, slower * drop))
    started = []
    for _ in range(REPEATS):
        with executing() as executor:
            machine, state = executor.machine, executor.load(first)
            machine.leave()
            machine.enter()
            executor.run(mixed, state)
            machine.finish()
            started.append(machine.metrics.seconds)
    scaled = {name: slower * value for name, value in asdict(cost).items() if name != "ahead"}
    start = max(0.0, median(started) - warm)
    # What callbacks ask for is slower too, which is no part of a step in a row of them.
    scaled |= {"call": scaled["call"] + (slower - 1) * asked, "move": move}
    return HostCost(**scaled | {"forward": asked, "backward": asked, "start": start})


def _of_a_movement(operations: Iterable[Operation], longer: float, drop: float) -> float:
    """Return what a movement takes where all of them and the evictions make a reversal so much longer."""
    of_kinds = Counter(map(type, operations))
    return (longer - of_kinds[Evict] * drop) / (of_kinds[Store] + of_kinds[Fetch])


def _few_elements(array: Any) -> Any:
    """Copy the first elements of an array along its last axis; all of it would be copied where it is not in C order."""
    corner = array[(slice(1),) * (array.ndim - 1) + (slice(ELEMENTS),)] if array.ndim else array
    return array_library(array).copy(corner.reshape(-1))
