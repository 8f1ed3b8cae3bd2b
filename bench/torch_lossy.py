"""What a lossy codec for activations does to a training run: a small character model, with and without.

    python bench/torch_lossy.py [--steps 200]

The same model learns the same batches of the source of a standard module, every block's saved tensors compressed by
the codec. Draws the loss curves over each other (`docs/torch-lossy.png`) and prints their ends.
"""

import argparse
import inspect
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional
from torch_nets import Block

from forebay.torch import fit, plan_of

CODECS = (None, "cast:bfloat16", "bounded:1e-2", "bounded:1e-1")
LENGTH, BATCH, WIDTH, SMOOTH = 64, 8, 64, 10


class Characters(nn.Module):
    """Predicts the next character."""

    def __init__(self, letters):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.last = nn.Sequential(*(Block(WIDTH, 2) for _ in range(3))), nn.Linear(WIDTH, letters)

    def forward(self, x):
        """Give the scores of all letters."""
        return self.last(self.blocks(self.letters(x) + self.places.weight))


def train(codec, text, letters, steps):
    torch.manual_seed(0)
    model = Characters(letters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    fit(model, "1GB", codec=codec, choice="keep" if codec is None else "compress")
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(text) - LENGTH - 1, (BATCH,))
        batch = torch.stack([text[start : start + LENGTH + 1] for start in starts])
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    metrics = plan_of(model).metrics
    return losses, metrics.mean_ratio if metrics.ratios else 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    source = inspect.getsource(argparse)
    known = {letter: number for number, letter in enumerate(sorted(set(source)))}
    text = torch.tensor([known[letter] for letter in source])
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for codec in CODECS:
        losses, ratio = train(codec, text, len(known), steps)
        smooth = [
            sum(losses[max(0, n - SMOOTH) : n + 1]) / len(losses[max(0, n - SMOOTH) : n + 1]) for n in range(steps)
        ]
        last = sum(losses[-20:]) / 20
        print(f"{codec or 'none':16} {ratio:.2f} times smaller, loss of the last 20 steps {last:.4f}", flush=True)
        axes.plot(smooth, label=f"{codec or 'no codec'}, {ratio:.1f} times smaller", linewidth=1.2)
    axes.set(xlabel="step", ylabel=f"loss, mean of {SMOOTH} steps")
    axes.legend()
    figure.savefig(Path(__file__).parents[1] / "docs" / "torch-lossy.png", dpi=110)


if __name__ == "__main__":
    main()
