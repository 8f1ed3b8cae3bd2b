"""A loop cut into segments, with progress kept on the disk between them.

The first sweep keeps the state at the start of each segment, exactly as it was. Then the segments are reversed, the
last first, each from the state at its start, with the whole budget. What a segment does follows from that state alone,
so a process that takes up after another gives the same bits, whatever the codec.

So every segment but the last is run forward once more. Where one plan of the whole loop is quicker than that, and what
callbacks see does not depend on the plan, the first process carries that out, and keeps the same progress on its way.
One that takes up on the way forward goes on like that. On the way back, what memory held is lost: segments are run
forward once more, but for those whose records are on the disk, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any

from forebay.checksums import checksum_of, raw_bytes
from forebay.engine.array_memory import memory_of
from forebay.engine.host_copies import fill, refilled, to_host
from forebay.engine.layout import Layout, arrays_of
from forebay.engine.result import Result
from forebay.engine.resume.asked import check_adjoint, check_options
from forebay.engine.resume.decision import Keeping, SurvivingLoop, decide, plan_of_rest, problem
from forebay.engine.resume.history import History
from forebay.engine.resume.ledger import Direction, Ledger, Progress
from forebay.engine.showing import progress_bar
from forebay.errors import CorruptionError, StateError
from forebay.metrics import Metrics
from forebay.planner import Plan


def reverse_in_segments(directory: Path | str, loop: SurvivingLoop, progress: bool | None) -> Result:
    """Reverse a loop, or what is left of it, keeping progress in a directory; a finished one leaves that empty."""
    check_adjoint(loop.adjoint)
    check_options(loop.options, loop.steps)
    loop = replace(loop, steps=int(loop.steps))
    ledger, finished = Ledger(directory), False
    try:
        with memory_of(loop.state).current():
            result = _Survivor(ledger, loop).run(progress)
        finished = True
    finally:
        ledger.close(finished)
    return result


class _Survivor:
    """A loop in segments, and the directory that knows how far it has come."""

    def __init__(self, ledger: Ledger, loop: SurvivingLoop) -> None:
        self.ledger, self.loop = ledger, loop
        self.layout = Layout.of(loop.state)
        first = checksum_of(raw_bytes(to_host(array)) for array in arrays_of(loop.state))
        decided = ledger.open(
            problem(loop, self.layout, first), lambda: decide(loop, ledger.directory, self.layout, self._try_keeping)
        )
        self.starts: list[int] = decided["starts"]
        plans = list(map(Plan.from_json, decided["plans"]))
        self.plans = [plans[number] for number in decided["plan numbers"]]  # of each segment
        self.whole = None if decided.get("whole") is None else Plan.from_json(decided["whole"])
        self.seconds: float = decided["seconds"]
        self.note: str = decided["note"]
        self.history = History(ledger, loop, decided.get("recorded", 0))
        self.parts: list[tuple[int, Metrics]] = []  # what was done, with the step at which each part of it starts

    def run(self, wanted: bool | None) -> Result:
        """Do what is left."""
        loop, start = self.loop, perf_counter()
        progress, arrays, saved = self.ledger.latest()
        resumed = progress != Progress()
        if resumed:
            self._load(arrays, saved)
        self._check_loop(progress)
        left = loop.steps if progress.direction is Direction.FORWARD else progress.step
        coarse = -(-loop.steps // loop.every)
        done = coarse - -(-left // loop.every)
        with progress_bar(f"reversing in {len(self.starts)} segments", coarse, self.seconds, wanted, done) as self.tick:
            if progress.direction is Direction.FORWARD:
                progress = self._sweep(progress) if self.whole is None else self._reverse_rest(self.whole, progress)
            while progress.step:
                number = max(number for number, start in enumerate(self.starts) if start < progress.step)
                if self.history.holds(self.starts[number], progress.step):
                    progress = self._reverse_recorded(self.starts[number], progress)
                else:
                    progress = self._reverse_segment(number, self._state_at(number), progress)
        return self._result(perf_counter() - start, left, resumed)

    def _check_loop(self, progress: Progress) -> None:
        """Run one step again, as near to where it was as can be, to see that the loop is the one it was."""
        known = [number for number, start in enumerate(self.starts) if str(start) in progress.probes]
        known = [number for number in known if self.starts[number] < progress.step]
        if not known:
            return
        start = self.starts[known[-1]]
        state = self._advance(self._state_at(known[-1]), start, start + 1, replay=True)
        if self._checksum(state) != progress.probes[str(start)]:
            raise StateError(
                f"forward gives other bits for step {start} than it did before: it has changed since, or depends on "
                f"more than its state; go on with the loop that {self.ledger.directory} is of, or name another"
            )

    def _reverse_rest(self, whole: Plan, progress: Progress) -> Progress:
        """Reverse the segments that are not yet swept by one plan, keeping progress where each of them starts."""
        loop, begin, history, reached = self.loop, progress.step, self.history, progress
        swept = {start for start in self.starts if start > begin}
        probed = {start + 1 for start in self.starts[:-1] if start >= begin}

        def forward(state: Any, first: int, last: int, replay: bool) -> Any:
            nonlocal reached
            first, last = first + begin, last + begin
            if replay:
                return self._advance(state, first, last, replay)
            kept = history.steps(first, last)
            for cut in sorted({*kept, *(step for step in swept | probed if first < step <= last)}):
                state, first = self._advance(state, first, cut, replay), cut
                if cut in probed:
                    probe = self._checksum(state)
                    reached = replace(reached, probes=reached.probes | {str(cut - 1): probe})
                if cut in swept:
                    self.ledger.keep_state(cut, self._on_host(state))
                    reached = replace(reached, step=cut)
                    self._keep(reached)
                if cut in kept:
                    history.keep(state, cut)
            return self._advance(state, first, last, replay)

        def turn(final: Any) -> None:
            nonlocal reached
            if loop.turn is not None:
                loop.turn(final)
            reached = Progress(Direction.BACKWARD, loop.steps, reached.probes)
            self._keep(reached)

        def backward(needed: Any, step: int) -> None:
            nonlocal reached
            loop.backward(needed, step + begin)
            self.tick()
            if step + begin in (begin, *swept):
                reached = replace(reached, step=step + begin)
                self._keep(reached)
                self.ledger.forget_steps(above=step + begin)

        plan = plan_of_rest(loop, whole, begin) if begin else whole
        number = self.starts.index(begin)
        self._reverse(begin, forward, backward, self._state_at(number), loop.steps - begin, turn, plan)
        return reached

    def _sweep(self, progress: Progress) -> Progress:
        """Run forward to the last segment, and reverse that."""
        number = self.starts.index(progress.step)
        state = self._state_at(number)
        for start, stop in zip(self.starts[number:], self.starts[number + 1 :], strict=False):
            state = self._advance(state, start, start + 1, replay=False)
            probe = self._checksum(state)
            state = self._advance(state, start + 1, stop, replay=False)
            progress = replace(progress, step=stop, probes=progress.probes | {str(start): probe})
            self.ledger.keep_state(stop, self._on_host(state))
            self._keep(progress)
        return self._reverse_segment(len(self.starts) - 1, state, progress)

    def _reverse_segment(self, number: int, state: Any, progress: Progress) -> Progress:
        """Reverse a segment from the state at its start, and keep what its callbacks have written."""
        loop, start = self.loop, self.starts[number]
        stop = (*self.starts, loop.steps)[number + 1]
        first = progress.direction is Direction.FORWARD
        reached = progress

        def turn(final: Any) -> None:
            nonlocal reached
            if first:
                if loop.turn is not None:
                    loop.turn(final)
                reached = Progress(Direction.BACKWARD, stop, reached.probes)
                self._keep(reached)

        def backward(needed: Any, step: int) -> None:
            loop.backward(needed, step + start)
            self.tick()

        forward = loop.forward_from(start, replay=not first)
        self._reverse(start, forward, backward, state, stop - start, turn, self.plans[number])
        return self._keep_reversed(start, reached)

    def _reverse_recorded(self, start: int, progress: Progress) -> Progress:
        """Reverse a segment whose records are on the disk."""
        metrics, begun = Metrics(), perf_counter()
        for step in reversed(self.history.steps(start, progress.step)):
            record, before = self.history.record(step), perf_counter() - begun
            self.loop.backward(record, step)
            metrics.add("compute", "backward", step - start, before, perf_counter() - begun)
            self.tick()
        metrics.seconds = perf_counter() - begun
        self.parts.append((start, metrics))
        return self._keep_reversed(start, progress)

    def _keep_reversed(self, start: int, progress: Progress) -> Progress:
        """Keep what the callbacks have written on their way back to the start of a segment."""
        reached = replace(progress, step=start)
        self._keep(reached)
        self.ledger.forget_steps(above=start)  # the progress before this one needs that of its own start
        return reached

    def _reverse(
        self,
        start: int,
        forward: Callable[..., Any],
        backward: Callable[[Any, int], None],
        state: Any,
        steps: int,
        turn: Callable[[Any], None],
        plan: Plan,
    ) -> None:
        """Carry a plan out that starts at a step, and note what it did."""
        loop = self.loop
        options = {name: loop.options[name] for name in ("codec", "every", "directory") if name in loop.options}
        options |= {"record": loop.record_from(start), "synchronous": loop.synchronous, "progress": False}
        result = loop.reverse(forward, backward, state, steps, turn=turn, plan=plan, **options)
        self.parts.append((start, result.metrics))

    def _advance(self, state: Any, start: int, stop: int, replay: bool) -> Any:
        if start == stop:
            return state
        named = {"replay": replay} if self.loop.takes_replay else {}
        return self.layout.match(self.loop.forward(state, start, stop, **named))

    def _state_at(self, number: int) -> Any:
        """Return the state at the start of a segment: as kept, or run to again where that is damaged."""
        state = self.layout.copy(self.loop.state)
        if number == 0:
            return state
        kept = self.ledger.state(self.starts[number])
        if kept is None:
            return self._advance(self._state_at(number - 1), self.starts[number - 1], self.starts[number], replay=True)
        leaves = zip(arrays_of(state), self.layout.leaves, kept, strict=True)
        return self.layout.build([refilled(array, leaf.spec, elements) for array, leaf, elements in leaves])

    def _on_host(self, state: Any) -> list[Any]:
        return [to_host(array) for array in self.layout.check(state)]

    def _checksum(self, state: Any) -> str:
        return checksum_of(map(raw_bytes, self._on_host(state)))

    def _keep(self, progress: Progress) -> None:
        adjoint = self.loop.adjoint
        if isinstance(adjoint, Mapping):
            self.ledger.keep(progress, {name: to_host(array) for name, array in adjoint.items()}, None)
        elif adjoint is not None:
            self.ledger.keep(progress, {}, adjoint[0])

    def _load(self, arrays: dict[str, Any], saved: bytes) -> None:
        adjoint = self.loop.adjoint
        if isinstance(adjoint, Mapping):
            if set(arrays) != set(adjoint):
                raise CorruptionError("the progress holds other arrays than adjoint= names")
            for name, array in adjoint.items():
                fill(array, arrays[name])
        elif adjoint is not None:
            adjoint[1](BytesIO(saved))

    def _try_keeping(self) -> Keeping:
        """Return what it takes to keep a segment, and a record."""
        start = perf_counter()
        self.ledger.keep_state(0, list(map(to_host, arrays_of(self.loop.state))))
        middle = perf_counter()
        self._keep(Progress())
        end = perf_counter()
        History(self.ledger, self.loop, 1).keep(self.loop.state, 0)
        seconds, nbytes = perf_counter() - end, self.ledger.record_bytes()
        keeping = Keeping(end - start + end - middle, self.ledger.progress_bytes(), seconds, nbytes)
        self.ledger.clear()
        return keeping

    def _result(self, seconds: float, left: int, resumed: bool) -> Result:
        notes = [self.note] if self.note else []
        if resumed:
            notes.append(f"resumed with {left} of {self.loop.steps} steps to go back through")
        notes += self.ledger.damaged
        plan = self.whole if self.whole is not None and not resumed else max(self.plans, key=lambda plan: plan.steps)
        metrics = _merged(self.parts, seconds)
        return Result(plan, metrics, "; ".join(notes), steps=left)


def _merged(parts: Sequence[tuple[int, Metrics]], seconds: float) -> Metrics:
    """Add up what the parts of a loop did, one after the other on one timeline."""
    whole = Metrics(seconds=seconds)
    begin = 0.0
    for start, part in parts:
        whole.add_counts(part)
        whole.samples = [sample._replace(step=sample.step + start) for sample in part.samples] + whole.samples
        for span in part.timeline:
            whole.timeline.add(span.lane, span.what, span.step, span.start + begin, span.stop + begin)
        begin += part.seconds
    return whole
