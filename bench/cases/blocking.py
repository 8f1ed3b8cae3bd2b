"""What a schedule takes without Forebay: a blocking copy for each save and each restore; and what no way can beat."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import inf
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay as fb
from forebay.codec import Codec
from forebay.engine.layout import arrays_of
from forebay.schedule import Backward, Drop, Forward, Restore, Save, Schedule
from forebay.units import seconds_to_text, to_text

FEWEST_RESTORES = 8
"""Restores that a prefix of a schedule contains, so that what is left of it can be extrapolated."""


def carry_out(
    schedule: Schedule,
    state: Any,
    forward: Callable[[Any, int, int], Any],
    backward: Callable[[Any, int], None],
    copies: "Copies",
    costs: fb.Costs,
    patience: float = inf,
) -> dict[str, Any]:
    """Do as a schedule says; `copies` saves, restores and drops states, and keeps the seconds in `spent`.

    After `patience` seconds it is cut off, and the rest extrapolated: steps at their costs, copies as so far.
    """
    actions, done, wait = list(schedule), 0, copies.machine.wait
    wait()
    begun = time.perf_counter()
    for action in actions:
        if time.perf_counter() - begun > patience and len(copies.spent["restore"]) >= FEWEST_RESTORES:
            break
        match action:
            case Forward(start, stop):
                state = forward(state, start, stop)
            case Save(step):
                copies.save(step, state)
            case Restore(step):
                copies.restore(step, state)
            case Drop(step):
                copies.drop(step)
            case Backward(step):
                backward(state, step)
        done += 1
    wait()
    seconds = wall = time.perf_counter() - begun
    means = {what: mean(taken) for what, taken in copies.spent.items() if taken}
    if done < len(actions):
        left = counted(actions[done:])
        seconds += left["forward"] * costs.forward + left["backward"] * costs.backward
        seconds += sum(left[what] * taken for what, taken in means.items())
    row = {"schedule": str(schedule), "seconds": seconds, "wall": wall, "timed_share": done / len(actions)}
    return row | {"copy_seconds": means, "copies": {what: len(taken) for what, taken in copies.spent.items()}}


def counted(actions: Sequence[Any]) -> Counter[str]:
    """Count forward steps, backward steps, saves, restores, and those restores that a swap can do."""
    count: Counter[str] = Counter()
    for action, following in pairwise([*actions, None]):
        match action:
            case Forward(start, stop):
                count["forward"] += stop - start
            case Backward():
                count["backward"] += 1
            case Save():
                count["save"] += 1
            case Restore(step):
                count["restore"] += 1
                count["swap"] += isinstance(following, Drop) and following.step == step
    return count


def limit(schedule: Schedule, costs: fb.Costs, nbytes: int) -> float:
    """Compute what a schedule takes if nothing is ever waited for: its steps, and its copies inside the device."""
    count = counted(list(schedule))
    copies = count["save"] + count["restore"] - count["swap"]
    return count["forward"] * costs.forward + count["backward"] * costs.backward + copies * nbytes / costs.copy


def most(
    family: Callable[[int, int], Schedule], steps: int, largest: int, rooms: int, plan: Callable[[Schedule], Any]
) -> Schedule | None:
    """Return a family's schedule of the most snapshots that need no more rooms and that `plan` finds room for."""
    for snapshots in range(min(steps, largest), 0, -1):
        try:
            schedule = family(steps, snapshots)
            if schedule.peak_snapshots <= rooms:
                plan(schedule)
                return schedule
        except fb.BudgetError:
            continue
        except fb.ScheduleError:
            return None
    return None


def pin(nbytes: int, report: Any) -> None:
    """Pin memory of the host, which the process keeps and reversals find; the shots of a survey share it."""
    from forebay.cuda.slab import kept_pinned

    begun = time.perf_counter()
    with kept_pinned(nbytes):
        taken = time.perf_counter() - begun
    report.facts.setdefault("pinning", []).append({"bytes": nbytes, "seconds": taken})
    report.say(f"pinning {to_text(nbytes)} took {seconds_to_text(taken)}; it is in no row")


def codec_cost(codec: Codec, field: Any, arrays: Any, seconds: Callable[[Callable[[], Any]], float]) -> fb.CodecCost:
    """Time a codec on a field, several calls in a row: alone, the device would wait for the host."""
    room, back = arrays.empty(codec.max_bytes(field.shape, field.dtype), "uint8"), arrays.empty_like(field)
    encoded = codec.encode(field, out=room)
    ratio = encoded.ratio
    encode = seconds(lambda: [codec.encode(field, out=room) for _ in range(5)]) / 5
    decode = seconds(lambda: [codec.decode(encoded, out=back) for _ in range(5)]) / 5
    return fb.CodecCost(ratio, field.nbytes / encode, field.nbytes / decode, room.nbytes / field.nbytes)


class Copies:
    """Blocking copies of states to rooms on the host and back, encoded or not, as a machine makes them."""

    def __init__(self, machine: Any, layout: Any, rooms: Sequence[NDArray[np.uint8]], codec: Codec | None) -> None:
        self.machine, self.layout, self.codec, self.free = machine, layout, codec, list(rooms)
        self.held: dict[int, tuple[NDArray[np.uint8], list[Any]]] = {}
        self.spent: dict[str, list[float]] = {"save": [], "restore": []}
        self.moved, self.ratios = 0, list[float]()
        if codec is not None:
            most = max(codec.max_bytes(leaf.spec.shape, leaf.spec.dtype) for leaf in layout.leaves)
            self.room = machine.arrays.empty(most, "uint8")
            assert rooms[0].nbytes >= len(layout.leaves) * most

    def save(self, step: int, state: Any) -> None:
        """Copy a state to the host."""
        machine = self.machine
        machine.wait()  # the copy would do so itself, but its time is wanted alone
        begun = time.perf_counter()
        place, offset, kept = self.free.pop(), 0, []
        for array in arrays_of(state):
            source, encoded = array, None
            if self.codec is not None:
                encoded = self.codec.encode(array, out=self.room)
                source = self.room[: encoded.nbytes]
                encoded = replace(encoded, size=partial(int, source.nbytes))
            machine.down(place[offset:], source)
            kept.append((source.nbytes, encoded))
            offset += source.nbytes
        self.held[step] = place, kept
        self._count("save", begun, offset)
        if self.codec is not None:
            self.ratios.append(self.layout.nbytes / offset)

    def restore(self, step: int, state: Any) -> None:
        """Copy a state back, into the arrays of another."""
        machine = self.machine
        machine.wait()
        begun = time.perf_counter()
        (place, kept), offset = self.held[step], 0
        for array, (nbytes, encoded) in zip(arrays_of(state), kept, strict=True):
            machine.up(array if encoded is None else self.room[:nbytes], place[offset:])
            if encoded is not None:
                self.codec.decode(encoded, out=array)
                machine.wait()
            offset += nbytes
        self._count("restore", begun, offset)

    def drop(self, step: int) -> None:
        """Give a state's room to others."""
        self.free.append(self.held.pop(step)[0])

    def _count(self, what: str, begun: float, nbytes: int) -> None:
        self.spent[what].append(time.perf_counter() - begun)
        self.moved += nbytes
