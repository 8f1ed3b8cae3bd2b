"""A 2-D acoustic pulse, run forward and then backward inside a budget that needs recomputation and the disk.

The adjoint wave starts from the final field and runs back through the same medium; where both waves meet, the image
lights up. ``forebay demo`` does it with a source, receivers and reflectors.

Run ``python examples/reverse_a_pulse.py [FOLDER]``; where a folder is named, picture and trace are written there.
"""

import sys
from pathlib import Path

import numba
import numpy as np

import forebay as fb

POINTS = 300
STEPS = 640


@numba.njit(parallel=True)
def advance(p, p_old, v):
    """Take one step in place: p_old becomes the new field."""
    for i in numba.prange(1, p.shape[0] - 1):
        for j in range(1, p.shape[1] - 1):
            laplace = p[i - 1, j] + p[i + 1, j] + p[i, j - 1] + p[i, j + 1] - 4 * p[i, j]
            p_old[i, j] = 2 * p[i, j] - p_old[i, j] + v[i, j] * laplace


def medium():
    """Lay a slow layer over a fast one with a bump, as squares of (velocity dt / dx)."""
    x, depth = np.meshgrid(np.arange(POINTS), np.arange(POINTS))
    bump = 30 * np.exp(-(((x - 150) / 40) ** 2))
    return np.where(depth > 190 - bump, 0.36, 0.16).astype(np.float32)


def pulse():
    """Make a smooth bump at rest, near the top."""
    x, depth = np.meshgrid(np.arange(POINTS), np.arange(POINTS))
    field = np.exp(-(((x - 150) ** 2 + (depth - 40) ** 2) / 30)).astype(np.float32)
    return {"p": field, "p_old": field.copy()}


def main(folder):
    """Reverse the pulse, tell how, and draw the image."""
    v = medium()
    image = np.zeros((POINTS, POINTS), np.float32)
    adjoint = [np.zeros((POINTS, POINTS), np.float32), np.zeros((POINTS, POINTS), np.float32)]

    def forward(state, start, stop):
        p, p_old = state["p"], state["p_old"]
        for _ in range(start, stop):
            advance(p, p_old, v)
            p, p_old = p_old, p
        return {"p": p, "p_old": p_old}

    def turn(state):
        adjoint[0][:], adjoint[1][:] = state["p"], state["p_old"]
        adjoint[0][80:], adjoint[1][80:] = 0, 0  # what came back to the surface

    def backward(state, step):
        advance(adjoint[0], adjoint[1], v)
        adjoint.reverse()
        image[:] += state["p"] * adjoint[0]

    budget = fb.Budget(host="6MB", disk="40MB")
    result = fb.reverse(forward, backward, pulse(), STEPS, budget=budget, turn=turn)
    print(result.explain())
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        result.metrics.write_trace(folder / "trace.json")
        draw(image, v, folder / "pulse.png")


def draw(image, v, path):
    """Draw the image over the medium."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 6), layout="constrained")
    limit = np.quantile(np.abs(image), 0.99) or 1.0
    axis.imshow(image, cmap="RdBu", vmin=-limit, vmax=limit)
    axis.contour(v, levels=[0.26], colors="black", linewidths=0.7)
    axis.set_title("where the two waves met")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
