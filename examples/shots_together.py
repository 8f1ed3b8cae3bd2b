"""Shots in two dimensions that advance together, beside a large grid and beside the same ones in turn.

A GPU is larger than one such shot, and the host cannot ask for steps as fast as it takes them. Given all shots at once,
`simulate` and `migrate` fill it; each shot gives the bits that it gives in turn. Layers of 20 points come on top of the
shapes, and count.

Run ``python examples/shots_together.py``: on a GPU where CuPy finds one, else on small grids. Each speed is the best of
three calls by the clock, in billions of points a second, both ways of a migration counted; its plan is given.
"""

import time
from importlib.util import find_spec

import numpy as np

import forebay as fb
from forebay import wave
from forebay.cuda.available import gpu_count

SIZES = {True: ((3960, 3960), (351, 901), 64, 1000), False: ((60, 70), (30, 40), 4, 120)}
"""Of the large grid, of a shot, how many shots, and steps; on a GPU and on a CPU."""
LAYER = 20


def best_of_three(call):
    """Return the fewest seconds of three calls after a first one, and what they return."""
    returned, seconds = call(), []
    for _ in range(3):
        begun = time.perf_counter()
        returned = call()
        seconds.append(time.perf_counter() - begun)
    return min(seconds), returned


def survey(arrays, shape, count, steps):
    """Make a model of two layers, and shots along its surface."""
    velocity = arrays.full(shape, 2000.0, "float32")
    velocity[shape[0] // 2 :] = 2400.0
    model = wave.AcousticModel(velocity, wave.Grid(shape, 10.0, absorb=LAYER))
    dt = 0.7 * wave.largest_dt(model)
    line = np.linspace(0.0, model.grid.end[1], 201)
    wavelet, receivers = wave.ricker(12.0, dt, steps), [(40.0, x) for x in line]
    return model, [wave.Shot((40.0, x), receivers, wavelet, dt) for x in line[5 :: 190 // count][:count]]


def measured(model, shots, together, budget):
    """Return the seconds of modelling and of migrating shots, the data and the images."""
    dt = shots[0].dt

    def each(call, several):
        return call(several) if together else [call(shot) for shot in several]

    modelling, data = best_of_three(lambda: each(lambda given: wave.simulate(given, model, dt=dt), shots))
    shots = [shot.with_data(heard) for shot, heard in zip(shots, data, strict=True)]
    first = wave.migrate(shots if together else shots[0], model, dt=dt, budget=budget)
    plan = (first[0] if together else first).result.plan
    migrating, images = best_of_three(lambda: each(lambda given: wave.migrate(given, model, dt=dt, plan=plan), shots))
    return modelling, migrating, data, images


def main():
    on_gpu = gpu_count() > 0 and find_spec("cupy") is not None
    arrays = __import__("cupy") if on_gpu else np
    budget = fb.Budget(device="40GB", host="8GB") if on_gpu else fb.Budget(host="1GB")
    large, small, count, steps = SIZES[on_gpu]
    print(f"{'shots':<28}{'simulate':>10}{'migrate':>10}")
    kept, speeds = {}, {}
    for name, shape, number in (("large grid", large, 1), ("together", small, count), ("in turn", small, count)):
        modelling, migrating, *kept[name] = measured(*survey(arrays, shape, number, steps), name == "together", budget)
        points = number * steps * np.prod(np.add(shape, 2 * LAYER)) / 1e9
        speeds[name] = points / modelling, 2 * points / migrating
        title = f"{number} of {shape[0]} x {shape[1]}, {name}"
        print(f"{title:<28}" + "".join(f"{speed:>10.3g}" for speed in speeds[name]), flush=True)
    pairs = [*zip(kept["together"], kept["in turn"], strict=True)]
    equal = all(map(np.array_equal, *pairs[0])) and all(
        np.array_equal(one.image, other.image) for one, other in zip(*pairs[1], strict=True)
    )
    shares = (own / whole for own, whole in zip(speeds["together"], speeds["large grid"], strict=True))
    print("together, as a share of the large grid: {:.2f} and {:.2f}".format(*shares))
    print("data and images are those of shots in turn, bit for bit:", equal)


if __name__ == "__main__":
    main()
