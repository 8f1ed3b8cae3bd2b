"""Whole training steps: a head of 128,000 words, and AdamW whose states do not fit, beside what PyTorch offers.

Parts: loss, a transformer with a tied head, its logits whole and some at a time; adamw, one with bfloat16 parameters
and float32 masters and states: all on the device, under FSDP2's `CPUOffloadPolicy` on this one card with checkpoints,
and under `fit` and `offloaded`, within a budget. Each way is a process of its own. `first` is what steps took that
settle, which are not in the median but in the peak. On a CPU figures mean nothing.
"""

from typing import Any

from harness import Report, arg, benchmark, child, median, no_gpu, seconds
from harness.benchmark import TINY

from forebay import Budget

LOSSES = ("whole logits", "linear_cross_entropy", "linear_cross_entropy, fit at a half")
WAYS = ("FSDP2 CPUOffloadPolicy", "fit and offloaded", "all on the device")
GPU = not TINY and not no_gpu()


def whole(way: str, words: int, width: int, depth: int, shape: list[int], budget: int) -> dict[str, Any]:
    """Time steps of a language model, with an optimizer or without; an eighth of the budget is for its states."""
    import torch
    from cases.nets import Causal

    from forebay.torch import fit, offloaded, plan_of, states_of

    torch.manual_seed(0)
    with torch.device("cuda" if GPU else "cpu"):
        model = Causal(width, depth, words, way != LOSSES[0]).to(torch.float32 if way == WAYS[0] else torch.bfloat16)
        tokens = torch.randint(words, (shape[0], shape[1] + 1))
    count, optimizer = sum(p.numel() for p in model.parameters()), None
    if way == WAYS[0]:
        shard(model)
    if way in WAYS:
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    if optimizer and way != WAYS[0]:
        offloaded(optimizer, Budget(device=10**12 if way == WAYS[2] else budget // 8, host="110GB"), master=True)
    if "fit" in way:
        fit(model, Budget(device=budget if GPU else "1GB", host="8GB" if GPU else "1GB"))

    def step() -> None:
        model.zero_grad()
        model(tokens).backward()
        if optimizer:
            optimizer.step()
        if GPU:
            torch.cuda.synchronize()

    if GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    first = seconds(lambda: [step() for _ in range(9 if GPU and "fit" in way else 2)])
    taken = median([seconds(step) for _ in range(3 if optimizer else 10)])
    told = (plan_of(model).explain() if "fit" in way else "", states_of(optimizer).explain() if way == WAYS[1] else "")
    peak = torch.cuda.max_memory_allocated() if GPU else 0
    return {"seconds": taken, "first": first, "peak": peak, "parameters": count, "told": told}


def shard(model: Any) -> None:
    """Have FSDP2 keep parameters, gradients and states on the host, and checkpoint the blocks."""
    import torch
    from torch.distributed import HashStore, init_process_group
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    from torch.utils.checkpoint import checkpoint

    init_process_group("cpu:gloo,cuda:nccl" if GPU else "gloo", store=HashStore(), rank=0, world_size=1)
    how = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16), "offload_policy": CPUOffloadPolicy(pin_memory=GPU)}
    for block in model.blocks:
        block.forward = lambda x, call=block.forward: checkpoint(call, x, use_reentrant=False)
        fully_shard(block, **how)
    fully_shard(model, **how)


@benchmark(
    arg("parts", nargs="*", default=["loss", "adamw"]),
    arg("--width", type=int, default=2560, tiny=32, help="of the transformer whose optimizer is timed"),
    arg("--budget", type=float, default=16e9, tiny=4e6, help="bytes of the device"),
    needs=("torch",),
)
def main(asked: Any, report: Report) -> None:
    large, shape = {"loss": (128_000, 2048, 8), "adamw": (32_000, asked.width, 32)}, [4, 2048] if GPU else [2, 16]
    for part in asked.parts:
        budget, base = int(asked.budget), WAYS[0] if part == "adamw" else LOSSES[0]
        for way in WAYS if part == "adamw" else LOSSES:
            figures = child(whole, way, *(large[part] if GPU else (1000, 32, 3)), shape, budget)
            report.say("\n".join(figures.pop("told", ())))
            report.add({"part": part, "way": way} | figures)
            budget = figures.get("peak", 0) // 2 if way == LOSSES[0] else budget
        for row in report.rows:
            if row["part"] == part and "seconds" in row:
                row["speed"] = (report.find(way=base) or {}).get("seconds", 0) / row["seconds"]
    report.table("whole steps", "part way seconds:s peak:B first:s speed:.2f failed")


if __name__ == "__main__":
    main()
