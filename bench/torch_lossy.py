"""What a lossy codec for activations does to a training run: a small character model, with and without.

The same model learns the same batches of the source of a standard module, every block's saved tensors compressed by
the codec. Draws the loss curves over each other (`docs/torch-lossy.png`) and prints their ends.
"""

import argparse
import inspect
from pathlib import Path
from typing import Any

from harness import Report, arg, benchmark

CODECS = (None, "cast:bfloat16", "bounded:1e-2", "bounded:1e-1")
LENGTH, BATCH, WIDTH, SMOOTH = 64, 8, 64, 10


def train(codec: str | None, text: Any, letters: int, steps: int) -> tuple[list[float], float]:
    import torch
    from cases.nets import Characters

    from forebay.torch import fit, plan_of

    torch.manual_seed(0)
    model = Characters(letters, WIDTH, LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    fit(model, "1GB", codec=codec, choice="keep" if codec is None else "compress")
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(text) - LENGTH - 1, (BATCH,))
        batch = torch.stack([text[start : start + LENGTH + 1] for start in starts])
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    metrics = plan_of(model).metrics
    return losses, metrics.mean_ratio if metrics.ratios else 1.0


@benchmark(arg("--steps", type=int, default=200, tiny=3), needs=("torch", "matplotlib"))
def main(asked: Any, report: Report) -> None:
    import torch
    from matplotlib.figure import Figure

    source = inspect.getsource(argparse)
    numbers = {letter: number for number, letter in enumerate(sorted(set(source)))}
    text = torch.tensor([numbers[letter] for letter in source])
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for codec in CODECS:
        losses, ratio = train(codec, text, len(numbers), asked.steps)
        report.add({"codec": codec or "none", "ratio": ratio, "last_20": sum(losses[-20:]) / len(losses[-20:])})
        windows = (losses[max(0, n - SMOOTH) : n + 1] for n in range(asked.steps))
        label = f"{codec or 'no codec'}, {ratio:.1f} times smaller"
        axes.plot([sum(window) / len(window) for window in windows], label=label, linewidth=1.2)
    report.table("loss of the last 20 steps", "codec ratio:.2f last_20:.4f")
    axes.set(xlabel="step", ylabel=f"loss, mean of {SMOOTH} steps")
    axes.legend()
    if not asked.tiny:
        figure.savefig(Path(__file__).parents[1] / "docs" / "torch-lossy.png", dpi=110)


if __name__ == "__main__":
    main()
