"""The gradient of one shot in three dimensions, by Deepwave in its storage modes and by Forebay in ever less memory.

Both differentiate half the sum of squared data with respect to the velocity of a salt body, at the same points and
time steps, with absorbing layers of 20 points. Each call is timed by the clock around it, the first one and the best of
three more; "taken" is what is gone of the device's free memory at most meanwhile, and "alike" is the correlation with
Deepwave's own gradient below the source.

Run ``python examples/beside_deepwave.py`` on a GPU, with CuPy, torch and deepwave.
"""

import threading
import time

import cupy
import deepwave
import numpy as np
import torch

import forebay as fb
from forebay import wave
from forebay.units import to_text
from forebay.wave.earth.builtin import make

SHAPE, STEPS, SPACING, FREQUENCY = (160, 200, 200), 600, 10.0, 12.0
MODES = {
    "Deepwave, on the device": {"storage_mode": "device"},
    "Deepwave, on the device, 8 bits": {"storage_mode": "device", "storage_compression": True},
    "Deepwave, on the host": {"storage_mode": "cpu"},
    "Deepwave, 24 segments": {"checkpoint_segments": 24},
}
SHARES = ((1, None), (5, None), (10, None), (10, "bounded:1e-4"))
"""Of what Deepwave takes on the device: one over this; and the codec."""


class Taken:
    """What is taken of the device at most, asked again and again."""

    def __init__(self, before):
        self.before, self.most, self.ended = before, 0, threading.Event()

    def __enter__(self):
        torch.cuda.empty_cache()
        cupy.get_default_memory_pool().free_all_blocks()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        """Look until it is over."""
        while not self.ended.wait(0.005):
            self.most = max(self.most, self.before - free())

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def free():
    """Return the free bytes of the device."""
    return cupy.cuda.runtime.memGetInfo()[0]


def measured(call, before):
    """Return the seconds of a first call, the fewest of three more, the bytes taken, and what was returned last."""
    seconds = []
    with Taken(before) as taken:
        for _ in range(4):
            begun = time.perf_counter()
            slope = call()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
    return seconds[0], min(seconds[1:]), taken.most, slope


def main():
    velocity = make("salt", shape=SHAPE).values
    dt = 0.3 * SPACING / float(velocity.max())  # which neither divides
    source, across = (2, SHAPE[1] // 2, SHAPE[2] // 2), range(SHAPE[2])
    receivers = [(2, SHAPE[1] // 2, x) for x in across]
    wavelet = wave.ricker(FREQUENCY, dt, STEPS)

    speed = torch.tensor(velocity, device="cuda", requires_grad=True)
    sources, heard = (torch.tensor([points], device="cuda") for points in ([source], receivers))
    amplitudes = torch.tensor(np.asarray(wavelet, np.float32), device="cuda")[None, None]

    def by_deepwave(**mode):
        speed.grad = None
        places = {"source_amplitudes": amplitudes, "source_locations": sources, "receiver_locations": heard}
        data = deepwave.scalar(speed, SPACING, dt, accuracy=8, pml_width=20, pml_freq=FREQUENCY, **places, **mode)[-1]
        (0.5 * data.square().sum()).backward()
        return speed.grad.clone()

    model = wave.AcousticModel(cupy.asarray(velocity), wave.Grid(SHAPE, SPACING, absorb=20))
    places = SPACING * np.array([source, *receivers], float)
    shot = wave.Shot(places[0], places[1:], wavelet, dt).with_data(np.zeros((STEPS, len(receivers))))

    def by_forebay(nbytes, codec):
        budget = fb.Budget(device=nbytes, host="64GB")
        result = wave.gradient(shot, model, dt=dt, budget=budget, codec=codec, progress=False)
        device.append(result.result.metrics.seconds)
        return result.gradient

    first, exact, device = None, None, []
    print("| way | of its memory | first call | later calls | on the device | times faster | taken | alike |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")

    before = free()  # the models are there, and the libraries

    def tell(way, share, call):
        nonlocal first, exact
        begun, later, taken, slope = measured(call, before)
        slope = cupy.asarray(slope)[12:].ravel().astype("float64")
        exact, first = (slope, (later, taken)) if first is None else (exact, first)
        alike = float(slope @ exact / cupy.linalg.norm(slope) / cupy.linalg.norm(exact))
        events = f"{min(device[1:]):.3f} s" if device else ""
        device.clear()
        seconds = f"{begun:.2f} s | {later:.3f} s | {events}"
        numbers = f"{seconds} | {first[0] / later:.1f} | {to_text(taken)} | {alike:.5f}"
        print(f"| {way} | {share} | {numbers} |", flush=True)
        return taken

    for way, mode in MODES.items():
        tell(way, "", lambda mode=mode: by_deepwave(**mode))
    small = first[1] // 20
    fixed = tell("Forebay, exact", "1/20 and what is there anyway", lambda: by_forebay(small, None)) - small
    for share, codec in SHARES:
        nbytes = first[1] // share - fixed
        tell(f"Forebay, {codec or 'exact'}", f"1/{share}", lambda n=nbytes, c=codec: by_forebay(n, c))


if __name__ == "__main__":
    main()
