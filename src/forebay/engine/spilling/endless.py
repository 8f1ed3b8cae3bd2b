"""The executor for encoded snapshots of a loop whose end nobody knows, and whose sizes nobody knows either.

The first sweep keeps states as `schedule.online` says, with as many slots as the budget makes at the sizes seen so far.
The state at step 0 is not among them: it can be had again at any time. The way back is that of a plan that was left.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from forebay.engine.spilling.replanning import SpillingExecutor
from forebay.schedule import binomial
from forebay.schedule.online import between_neighbours


class EndlessExecutor(SpillingExecutor):
    """Runs a loop until it is over, and back, with states encoded."""

    def sweep(self, state: Any, end_before: Callable[[int], int | None], most: int) -> Any:
        """Run to the end, keeping at most so many states; `end_before` tells it once a step behind it was reached."""
        self._replans = True
        position, passes = 0, 1
        while (end := end_before(position)) is None:
            kept, slots = self._kept(), min(most, 1 + self._capacity())
            reach = [binomial.beta(max(1, slots - number), passes - 1) for number in range(len(kept))]
            stop = kept[-1] + reach[-1]
            self.coding = replace(self.coding, steps=position + 1)
            if position < stop:
                state = self._forward(state, position, stop)
                position = stop
            elif len(kept) < slots and self._keep(self.kind, position, state):
                pass
            elif middle := between_neighbours(kept, position, reach):
                self._drop(kept[middle])
            else:
                passes += 1 if slots > 1 else passes  # one snapshot reaches as far as one likes
        for step in self._kept():
            if step >= end:
                self._drop(step)
        self._left = end
        self.coding = replace(self.coding, steps=end, forward_steps=self.machine.metrics.advanced)
        return state

    def _kept(self) -> list[int]:
        """List the steps from which the loop can be gone on."""
        return sorted({0}.union(*self.held))

    def _capacity(self) -> int:
        """Return how many states have room, at the sizes seen so far."""
        nbytes = sum(self.most) - self.working.nbytes - self.kind.staging.nbytes
        return int(nbytes / max(1.0, self.kind.sizes.expected or self.coding.snapshot_bytes))
