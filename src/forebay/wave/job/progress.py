"""What is shown while shots are migrated: shots and steps done, and the time left; and where a run's time went."""

from time import perf_counter
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from forebay.report.console import say
from forebay.units import seconds_to_text


class PhaseClock:
    """The seconds of phases that follow each other, by name."""

    def __init__(self) -> None:
        self._start = self._last = perf_counter()
        self.phases: dict[str, float] = {}

    def end(self, phase: str) -> None:
        """End a phase, which began where the last one ended."""
        now = perf_counter()
        self.phases[phase], self._last = now - self._last, now

    @property
    def seconds(self) -> float:
        """Of all phases that have ended."""
        return self._last - self._start


class ProgressBars:
    """Two bars, for shots and for the steps of all of them, and a line for each shot that ends.

    Parameters
    ----------
    console
        Where they are shown: the bars on a terminal only.
    count
        Shots of the job.
    done
        Those that an earlier run had finished.
    steps
        Of one shot: modelled, forward and back.
    of
        What is done with the shots, where that is a part of the work: shots that end have no line then.
    """

    def __init__(self, console: Console, count: int, done: int, steps: int, of: str = "") -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        self._bars = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)
        self._console, self._count, self._done, self._steps = console, count, done, steps
        self._live = console.is_terminal and done < count
        self._of: dict[int, int] = {}
        self._over: set[int] = set()
        self._start, self._lines = perf_counter(), not of
        self._shots = self._bars.add_task(of or "shots", total=count, completed=done)
        # Counted from this run on, so that the speed is that of this run.
        self._all = self._bars.add_task("steps", total=(count - done) * steps)

    def __enter__(self) -> "ProgressBars":
        if self._live:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._bars.stop()

    def steps(self, shot: int, done: int) -> None:
        """Show how many steps of a shot are done; of one that begins again, 0."""
        if shot in self._over:
            return  # a word that was long on its way
        self._of[shot] = done
        self._bars.update(self._all, completed=sum(self._of.values()))

    def finished(self, shot: int, seconds: float) -> None:
        """Show that a shot has been migrated."""
        self._end(shot, f"in {seconds_to_text(seconds)}")

    def failed(self, shot: int, reason: str, again: bool) -> None:
        """Show that a shot has failed, for good or to be tried again."""
        if again:
            say(self._console, f"shot {shot} failed ({reason}), again")
            self.steps(shot, 0)
        else:
            self._end(shot, f"failed ({reason})")

    def _end(self, shot: int, how: str) -> None:
        self.steps(shot, self._steps)
        self._over.add(shot)
        self._bars.advance(self._shots)
        if not self._lines:
            return
        over = self._done + len(self._over)
        left = (perf_counter() - self._start) / len(self._over) * (self._count - over)
        more = f", {seconds_to_text(left)} left" if over < self._count else ""
        say(self._console, f"shot {shot} {how}: {over} of {self._count}{more}")
