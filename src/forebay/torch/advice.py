"""What the user of a fitted model is told when something does not go as meant: each once."""

import warnings
from collections.abc import Iterable


class Advice:
    """Warns of each thing once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def _once(self, message: str) -> None:
        if message not in self._given:
            self._given.add(message)
            warnings.warn(message, stacklevel=3)

    def none_called(self, names: Iterable[str]) -> None:
        """Warn that the model has called none of its blocks."""
        self._once(
            f"the model called none of its blocks ({', '.join(names):.80}): it trains as if it were not fitted. Name "
            "those that it calls with blocks=..."
        )

    def several_graphs(self) -> None:
        """Warn that a forward pass begins before the backward pass of the last."""
        self._once(
            "a fitted model runs forward while the graph of its last forward pass waits for a backward pass: each "
            "takes the memory of a plan, and several together more than the budget. Run backward before the next "
            "forward, or divide the budget by the graphs that are alive at once"
        )

    def refused(self, name: str, why: str) -> None:
        """Warn that a block is kept, and why."""
        self._once(f"a block ({name}) {why}. It is kept from now on, whatever the budget")

    def checkpoints_inside(self) -> None:
        """Warn that blocks checkpoint by themselves."""
        self._once(
            "blocks of a fitted model call torch.utils.checkpoint themselves, and what they save there is left to it: "
            "switch that off, as by model.gradient_checkpointing_disable(), to let fit decide"
        )


def hidden_state(right: bool, later: bool = False) -> str:
    """Tell why a block with state of its own is kept, and whether what it was recomputed for is right all the same."""
    before = ", and perhaps of some before it," if later else ""
    wrong = f". The gradients of this iteration{before} are not those of the plain model, and its state is a run ahead"
    return (
        "computes other values when it is run again: it has state of its own, such as a generator, a counter, or a "
        f"tensor that is no buffer{'' if right else wrong}"
    )


def beyond(kind: str) -> str:
    """Tell why a block is kept that is given or gives what is no tensor, no plain value and no container of these."""
    return (
        f"is given, or gives, a {kind}: only tensors and plain values, in tuples, lists and dicts, can be given again "
        "as they were. Where that is a cache, switch it off, as by use_cache=False"
    )
