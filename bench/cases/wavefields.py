"""Wavefields to compress: made on the GPU, as a reverse-time migration would have them at an early and at late times.

Acoustic: 8th order in space, 2nd in time; dx 10 m, dt 0.9 ms; eight undulating layers of 1500 to 4500 m/s with 60 m/s
of smooth lateral variation and an ellipsoid of 4480 m/s; a 15 Hz Ricker wavelet at a depth of 120 m in the middle; a
sponge of 24 points on all faces but the top. Elastic: the same model and source, velocity-stress on staggered grids,
vs = vp / sqrt(3), dt 0.8 ms.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).parents[1] / "wavefields.cu"
SPACING, FREQUENCY, DEPTH = 10.0, 15.0, 12
ACOUSTIC = {"early": 1360, "middle": 1900, "late": 2280}
"""Steps at which the acoustic wave fills about 16, 63 and 96 % of 512^3 points."""
CHUNK = 32


def ricker(step: int, dt: float) -> float:
    phase = (math.pi * FREQUENCY * (step * dt - 1.2 / FREQUENCY)) ** 2
    return (1 - 2 * phase) * math.exp(-phase)


def acoustic(n: int = 512, steps: dict[str, int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the pressure at some steps, under their names."""
    import cupy

    dt = 0.9e-3
    module, stream, velocity = _model(n)
    p, old = cupy.zeros((n, n, n), "float32"), cupy.zeros((n, n, n), "float32")
    cupy.cuda.get_current_stream().synchronize()
    wanted = {step: name for name, step in (steps or ACOUSTIC).items()}
    grid = (-(-n // 32), -(-n // 8), -(-n // CHUNK))
    for step in range(max(wanted) + 1):
        args = (p, old, velocity, n, CHUNK, dt / SPACING, _source(n), ricker(step, dt))
        module.launch("acoustic", grid, (32, 8), args, stream)
        p, old = old, p
        if step in wanted:
            stream.sync()
            field = p.copy()
            cupy.cuda.get_current_stream().synchronize()
            yield wanted[step], field


def elastic(n: int = 384, step: int = 1400) -> Iterator[tuple[str, Any]]:
    """Yield the vertical velocity, a normal and a shear stress at a late step."""
    import cupy

    dt = 0.8e-3
    module, stream, velocity = _model(n)
    fields = cupy.zeros((9, n, n, n), "float32")
    cupy.cuda.get_current_stream().synchronize()
    grid = (-(-(n - 8) // 32), -(-(n - 8) // 8), n - 8)
    for at in range(step):
        module.launch("velocities", grid, (32, 8), (fields, n, dt / SPACING), stream)
        args = (fields, velocity, n, dt / SPACING, _source(n), 1e6 * ricker(at, dt))
        module.launch("stresses", grid, (32, 8), args, stream)
    stream.sync()
    for name, index in (("vz", 0), ("sxx", 5), ("szx", 7)):
        yield name, fields[index].copy()


def _model(n: int) -> tuple[Any, Any, Any]:
    import cupy

    from forebay.cuda.kernels import load
    from forebay.cuda.stream import create_streams

    stream = create_streams().compute
    module = load(SOURCE)
    velocity = cupy.empty((n, n, n), "float32")
    cupy.cuda.get_current_stream().synchronize()
    module.launch("model", (-(-n // 128), n, n), 128, (velocity, n), stream)
    return module, stream, velocity


def _source(n: int) -> np.int64:
    return np.int64((DEPTH * n + n // 2) * n + n // 2)
