"""Progress on a terminal, for what takes long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONG = 5.0
"""Predicted seconds from which progress is shown on a terminal."""


@contextmanager
def progress_bar(
    title: str, total: int, seconds: float, wanted: bool | None, done: int = 0
) -> Iterator[Callable[[], None]]:
    """Show how many of `total` are done, where that is wanted; what is yielded is called after each."""
    if not (seconds > LONG if wanted is None else wanted):
        yield lambda: None
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
