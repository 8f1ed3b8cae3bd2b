"""What backward needs of a loop's first steps, kept on the disk: a process that takes up there runs none of them again.

Without it, what memory held of the history is gone with the process, and is run forward once more.
"""

from typing import Any

from forebay.engine.host_copies import refilled, to_host
from forebay.engine.layout import arrays_of
from forebay.engine.loop import TimeLoop
from forebay.engine.resume.decision import SurvivingLoop
from forebay.engine.resume.ledger import Ledger


class History:
    """Records of the steps below `stop`, or states where backward needs those."""

    def __init__(self, ledger: Ledger, loop: SurvivingLoop, stop: int) -> None:
        self.stop = stop
        self._ledger, self._every = ledger, loop.every
        self._loop = TimeLoop(loop.forward, loop.state, loop.steps, loop.every, loop.options.get("record"))
        self._layout = self._loop.record_layout or self._loop.layout

    def steps(self, first: int, last: int) -> range:
        """Return the steps from one to before another of which there is a record."""
        return range(-(-first // self._every) * self._every, min(last, self.stop), self._every)

    def keep(self, state: Any, step: int) -> None:
        """Write what backward needs of a state."""
        record = self._loop.record_of(state, step // self._every)
        self._ledger.keep_record(step, list(map(to_host, arrays_of(record))))

    def holds(self, first: int, last: int) -> bool:
        """Tell whether everything is there that backward needs from one step to before another, and is whole."""
        if last > self.stop or not self._ledger.recorded().issuperset(self.steps(first, last)):
            return False
        return all(self._ledger.record(step) is not None for step in self.steps(first, last))

    def record(self, step: int) -> Any:
        """Read what backward needs of a step, which `holds` has looked at."""
        arrays = arrays_of(self._layout.copy(self._loop.record_of(self._loop.fresh(), 0)))
        leaves = zip(arrays, self._layout.leaves, self._ledger.record(step) or (), strict=True)
        return self._layout.locked(
            self._layout.build([refilled(array, leaf.spec, elements) for array, leaf, elements in leaves])
        )
