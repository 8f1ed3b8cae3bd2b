"""Wavefields to compress on a CPU: the wave of `wavefields` in a smaller box, and pulses that fill another."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases import wavefields
from forebay.compiled import kept


def acoustic(n: int, steps: dict[str, int]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the pressure at some steps, with layers that undulate and a sponge all around."""
    dt, edge = 0.9e-3, 24
    z, y, x = np.meshgrid(*[np.arange(n) / n] * 3, indexing="ij", sparse=True)
    layer = np.clip(8 * (z + 0.018 * (np.sin(9 * x + 1) + np.cos(11 * y))), 0, 7).astype(int)
    speed = 1500 + layer * 3000 / 7 + 60 * np.sin(12 * x) * np.cos(15 * y)
    courant = ((speed * dt / wavefields.SPACING) ** 2).astype(np.float32)
    depth = np.clip(edge - np.minimum(np.arange(n), n - 1 - np.arange(n)), 0, edge)
    sponge = np.exp(-((0.015 * depth) ** 2)).astype(np.float32)
    p, old = np.zeros((2, n, n, n), np.float32)
    wanted = {step: name for name, step in steps.items()}
    for step in range(max(wanted) + 1):
        p[wavefields.DEPTH, n // 2, n // 2] += wavefields.ricker(step, dt)
        advance(p, old, courant, sponge)
        p, old = old, p
        if step in wanted:
            yield wanted[step], p.copy()


@partial(kept, nogil=True, fastmath=True)
def advance(p: Any, old: Any, courant: Any, sponge: Any) -> None:
    n, one = p.shape[0], np.float32(1)
    weights = (8 * one / 5, -one / 5, 8 * one / 315, -one / 560)
    for z in range(4, n - 4):
        for y in range(4, n - 4):
            damp = sponge[z] * sponge[y]
            for x in range(4, n - 4):
                change = -205 * one / 24 * p[z, y, x]
                for k in range(1, 5):
                    along = p[z, y, x - k] + p[z, y, x + k] + p[z, y - k, x] + p[z, y + k, x]
                    change += weights[k - 1] * (along + p[z - k, y, x] + p[z + k, y, x])
                new = p[z, y, x] + p[z, y, x] - old[z, y, x] + courant[z, y, x] * change
                old[z, y, x] = new * (damp * sponge[x])


def pulses(n: int) -> NDArray[np.float32]:
    """Sum spherical wavelets of many sources: smooth, about ten points a period, strong and weak."""
    rng = np.random.default_rng(5)
    z, y, x = np.meshgrid(*[np.arange(n, dtype=np.float32)] * 3, indexing="ij", sparse=True)
    field = np.zeros((n, n, n), np.float32)
    for _ in range(40):
        cz, cy, cx = rng.uniform(0, n, 3)
        radius, reach = rng.uniform(10, n), np.sqrt((z - cz) ** 2 + (y - cy) ** 2 + (x - cx) ** 2)
        phase = (np.pi * 0.07 * (reach - radius)) ** 2
        field += ((1 - 2 * phase) * np.exp(-phase) / (reach + 5)).astype(np.float32)
    return field
