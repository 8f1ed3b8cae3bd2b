"""Whole training steps: a head of 128,000 words, and AdamW whose states do not fit, beside what PyTorch offers.

Parts: loss, a transformer with a tied head, its logits whole and some at a time; adamw, one with bfloat16 parameters
and float32 masters and states: all on the device; FSDP2's `CPUOffloadPolicy` on a mesh of this one card, with blocks
under checkpoints; `fit` and `offloaded` inside of a budget. Each way has a process of its own. Seconds are the median
of steps after some that settle, whose peaks count too; `first` is what those took. On a CPU figures mean nothing.
"""

from typing import Any

from harness import Report, arg, benchmark, child, median, no_gpu, seconds
from harness.benchmark import TINY

from forebay import Budget

LOSSES = ("whole logits", "linear_cross_entropy", "linear_cross_entropy, fit at a half")
WAYS = ("all on the device", "FSDP2 CPUOffloadPolicy", "fit and offloaded")
GPU = not TINY and not no_gpu()


def timed(model: Any, words: int, shape: list[int], optimizer: Any, settle: int, steps: int) -> dict[str, Any]:
    """Time steps, and look up the most bytes that they took."""
    import torch

    tokens = torch.randint(words, (shape[0], shape[1] + 1), device="cuda" if GPU else "cpu")

    def step() -> None:
        model.zero_grad()
        model(tokens).backward()
        if optimizer is not None:
            optimizer.step()
        if GPU:
            torch.cuda.synchronize()

    if GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    first = seconds(lambda: [step() for _ in range(settle)])
    taken = median([seconds(step) for _ in range(steps)])
    return {"seconds": taken, "first": first, "peak": torch.cuda.max_memory_allocated() if GPU else 0}


def loss_of(way: str, words: int, width: int, depth: int, shape: list[int], half: int) -> dict[str, Any]:
    """Time steps, forward and backward, with a large vocabulary."""
    import torch
    from cases.nets import Causal

    from forebay.torch import fit

    torch.manual_seed(0)
    with torch.device("cuda" if GPU else "cpu"):
        model = Causal(width, depth, words, way != "whole logits").to(torch.bfloat16)
    if "fit" in way:
        fit(model, Budget(device=half if GPU else "1GB", host="16GB" if GPU else "1GB"))
    return timed(model, words, shape, None, 10 if GPU else 2, 10)


def adamw(way: str, width: int, depth: int, shape: list[int], budget: int, states: int) -> dict[str, Any]:
    """Time steps of a language model and its optimizer."""
    import torch
    from cases.nets import Causal

    from forebay.torch import fit, offloaded, plan_of, states_of

    torch.manual_seed(0)
    words = 32_000 if GPU else 500
    with torch.device("cuda" if GPU else "cpu"):
        model = Causal(width, depth, words).to(torch.float32 if "FSDP2" in way else torch.bfloat16)
    count, told = sum(p.numel() for p in model.parameters()), ""
    if "FSDP2" in way:
        shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    if "FSDP2" not in way:
        offloaded(optimizer, Budget(device=10**12 if "all" in way else states, host="110GB"), master=True)
    if "fit" in way:
        fit(model, Budget(device=budget if GPU else "1GB", host="4GB"))
    figures = timed(model, words, shape, optimizer, 9 if GPU and "fit" in way else 2, 3)
    if "FSDP2" in way:
        torch.distributed.destroy_process_group()
    if "fit" in way:
        told = f"{plan_of(model).explain()}\n{states_of(optimizer).explain()}"
    return figures | {"parameters": count, "explained": {"told": told}}


def shard(model: Any) -> None:
    """Have FSDP2 keep parameters, gradients and states on the host, and checkpoint the blocks."""
    import tempfile

    import torch
    from torch.distributed import FileStore, init_process_group
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    from torch.utils.checkpoint import checkpoint

    store = FileStore(tempfile.mkstemp()[1], 1)
    init_process_group("cpu:gloo,cuda:nccl" if GPU else "gloo", store=store, rank=0, world_size=1)
    how = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16), "offload_policy": CPUOffloadPolicy(pin_memory=GPU)}
    for block in model.blocks:
        block.forward = lambda x, call=block.forward: checkpoint(call, x, use_reentrant=False)
        fully_shard(block, **how)
    fully_shard(model, **how)


@benchmark(
    arg("parts", nargs="*", default=["loss", "adamw"]),
    arg("--width", type=int, default=2560, tiny=32, help="of the transformer whose optimizer is timed"),
    arg("--budget", type=float, default=16e9, tiny=1e6, help="bytes of the device"),
    arg("--states", type=float, default=3e9, tiny=3e5, help="bytes of these for the optimizer's states"),
    needs=("torch",),
)
def main(asked: Any, report: Report) -> None:
    if "loss" in asked.parts:
        model, half = (128_000, 2048, 8, [4, 2048]) if GPU else (2000, 32, 3, [2, 16]), 0
        for way in LOSSES:
            row = {"part": "loss", "way": way} | child(loss_of, way, *model, half)
            half = half or row.get("peak", 0) // 2
            report.add(row)
    if "adamw" in asked.parts:
        shape = [4, 2048] if GPU else [2, 16]
        for way in WAYS:
            figures = child(adamw, way, asked.width, 32 if GPU else 3, shape, int(asked.budget), int(asked.states))
            report.say(figures.get("explained", {}).pop("told", ""))
            report.add({"part": "adamw", "way": way, "width": asked.width, "budget": asked.budget} | figures)
        if theirs := report.find(part="adamw", way=WAYS[1], failed=None):
            for row in report.rows:
                row["speed"] = theirs["seconds"] / row["seconds"] if "seconds" in row else None
    report.table("whole steps", "part way seconds:s peak:B first:s speed:.2f failed")


if __name__ == "__main__":
    main()
