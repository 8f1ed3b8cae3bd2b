"""What the user of a fitted model is told when something does not go as meant: each once."""

NONE_CALLED = (
    "the model called none of its blocks ({:.80}): it trains as if it were not fitted. Name those that it calls with "
    "blocks=..."
)
SEVERAL_GRAPHS = (
    "a fitted model runs forward while the graph of its last forward pass waits for a backward pass: each takes the "
    "memory of a plan, and several together more than the budget. Run backward before the next forward, or divide the "
    "budget by the graphs that are alive at once"
)
CHECKPOINTS_INSIDE = (
    "blocks of a fitted model call torch.utils.checkpoint themselves, and what they save there is left to it: switch "
    "that off, as by model.gradient_checkpointing_disable(), to let fit decide"
)
KEPT = "a block ({}) {}. It is kept from now on, whatever the budget"


def hidden_state(right: bool, later: bool) -> str:
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
