"""Progress on a terminal and in notebooks, for what takes long."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

LONG = 5.0
"""Predicted seconds from which progress is shown on a terminal."""
APART = 0.5
"""Seconds between two lines of a notebook."""


def in_notebook() -> bool:
    """Tell whether what is written appears below a cell of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _line(title: str, total: int, done: int) -> Callable[[], None]:
    """Return what counts one more, and writes a line over the last one: no widgets are needed for that."""
    shown = perf_counter()

    def advance() -> None:
        nonlocal done, shown
        done += 1
        if done == total or perf_counter() - shown > APART:
            shown = perf_counter()
            end = "\n" if done == total else ""
            print(f"\r{title}: {done} of {total}, {done / total:.0%}", end=end, file=sys.stderr, flush=True)

    return advance


@contextmanager
def progress_bar(
    title: str, total: int, seconds: float, wanted: bool | None, done: int = 0
) -> Iterator[Callable[[], None]]:
    """Show how many of `total` are done, where that is wanted; what is yielded is called after each."""
    if not (seconds > LONG if wanted is None else wanted):
        yield lambda: None
        return
    if in_notebook():
        yield _line(title, total, done)
        return
    from rich.console import Console  # they take their time to load
    from rich.progress import Progress

    console = Console(stderr=True)
    if wanted is None and not console.is_terminal:
        yield lambda: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(title, total=total, completed=done)
        yield lambda: bar.advance(task)
