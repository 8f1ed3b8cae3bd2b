"""A 3-D acoustic loop on a GPU by the kernels of `acoustic.cu`, and what its steps, copies and link cost."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from harness import digest, seconds

import forebay as fb
from cases.machine import Gpu
from forebay.engine.array_memory import memory_of
from forebay.engine.layout import Layout
from forebay.engine.timing.host_costs import host_costs
from forebay.planner import HostCost
from forebay.tier.capacity import PIECE
from forebay.tier.links import measure_links
from forebay.units import to_text

SOURCE = Path(__file__).parents[1] / "acoustic.cu"
REPEATS = 5  # of what is timed on the device
RADIUS = 4  # of the stencil, as in the source
VARIANT = (32, 8, 2, 4)
"""The shape of the kernels: threads in x and y, blocks on a multiprocessor, blocks along z."""
SLOTS = 6
"""States that the device has room for, beside the working one."""
OVERHEAD = 2 * PIECE
"""Bytes of the device that its driver takes beside them: to the end of a piece, and for streams."""
State = tuple[Any, Any]


class Loop:
    """A wave that is advanced in place, and the adjoint wave and the image that its reversal makes."""

    def __init__(self, shape: tuple[int, int, int], steps: int) -> None:
        self.machine = Gpu()
        self.cupy, self.shape = self.machine.arrays, shape
        cupy, (nz, ny, nx) = self.cupy, shape
        z, y, x = (cupy.sin(cupy.arange(extent, dtype="float32") * 0.11) for extent in shape)
        field = 0.1 * z[:, None, None] * y[None, :, None] * x[None, None, :]
        self.clear_edges(field)
        self.start: State = (field, field * cupy.float32(0.9))
        self.adjoint: State = (cupy.empty_like(field), cupy.empty_like(field))
        self.image = cupy.empty_like(field)
        depth = cupy.linspace(0.06, 0.1, nz, dtype="float32")  # (velocity dt / h)^2; stable below 0.2
        self.speed = cupy.ascontiguousarray(cupy.broadcast_to(depth[:, None, None], shape))
        times = np.pi * 0.03 * (np.arange(steps) - 40)
        self.wavelet = ((1 - 2 * times**2) * np.exp(-(times**2))).astype(np.float32)
        self.source = np.int32((nz // 2 * ny + ny // 2) * (nx // 4) + nx // 8)
        self.receiver = np.int32((nz // 4 * ny + ny // 3) * (nx // 4) + nx // 8)
        self.layout = Layout.of(self.start)
        self.snapshot = self.layout.nbytes
        self.initial = digest(*(array.get() for array in self.start))
        self._compile()

    def clear_edges(self, field: Any) -> None:
        """Set to zero what the kernels never write."""
        for axis in range(3):
            edge = self.cupy.moveaxis(field, axis, 0)
            edge[:RADIUS] = edge[-RADIUS:] = 0

    def forward(self, state: State, start: int, stop: int) -> State:
        """Advance in place; the two fields change roles at every step."""
        p, old = state
        for step in range(start, stop):
            fields = (p, old, self.speed)
            self._advance(self._grid, self._block, (*fields, *self._extents, self.source, self.wavelet[step]))
            p, old = old, p
        return p, old

    def backward(self, state: State, step: int) -> None:
        """Advance the adjoint wave and correlate it with the forward one."""
        q, old = self.adjoint
        fields = (q, old, self.speed, state[0], self.image)
        self._advance_and_image(self._grid, self._block, (*fields, *self._extents, self.receiver, self.wavelet[step]))
        self.adjoint = old, q

    def reset(self) -> None:
        """Make the adjoint wave and the image what they are before a reversal."""
        for array, first in zip(self.adjoint, self.start, strict=True):
            array[...] = first
        self.image.fill(0)

    def working(self) -> State:
        """Copy the initial state."""
        p, old = self.start
        return p.copy(), old.copy()

    def seconds(self, call: Callable[[], Any]) -> float:
        """Time work on the device, after a first call that is not counted."""
        call()
        return median(self.machine.timed(call).seconds for _ in range(REPEATS))

    def timer(self, steps: int) -> Callable[[], float]:
        """Return what runs some forward steps and times them."""
        state = self.working()
        return lambda: self.machine.timed(lambda: self.forward(state, 0, steps)).seconds

    def step_seconds(self, steps: int = 20) -> tuple[float, float]:
        """Time a forward and a backward step."""
        steps = min(steps, len(self.wavelet))
        state = self.working()
        forward = self.seconds(lambda: self.forward(state, 0, steps)) / steps
        return forward, self.seconds(lambda: [self.backward(self.start, step) for step in range(steps)]) / steps

    def host_costs(self, steps: int = 50) -> HostCost:
        """Time how long the host takes for operations, and to ask for a forward and a backward step."""
        steps = min(steps, len(self.wavelet))
        state, taken = self.working(), {}
        for name, call in {
            "forward": lambda: self.forward(state, 0, steps),
            "backward": lambda: [self.backward(self.start, step) for step in range(steps)],
        }.items():
            spent = []
            for _ in range(3):
                self.machine.wait()
                spent.append(seconds(call))
            taken[name] = median(spent) / steps
        self.machine.wait()
        make = partial(memory_of(self.start).machine, Path(), False)
        costs = host_costs(make, self.start, ("device", "host"), lambda: self.forward(state, 0, 1), taken["forward"])
        return replace(costs, **taken, ahead=True)

    def _compile(self) -> None:
        block_x, block_y, blocks, deep = VARIANT
        defines = {"BLOCK_X": block_x, "BLOCK_Y": block_y, "BLOCKS": blocks}
        options = tuple(f"-D{name}={value}" for name, value in defines.items())
        module = self.cupy.RawModule(code=SOURCE.read_text(encoding="utf-8"), options=options)
        self._advance = module.get_function("advance")
        self._advance_and_image = module.get_function("advance_and_image")
        nz, ny, nx = self.shape
        chunk = -(-(nz - 2 * RADIUS) // deep)
        self._block = (block_x, block_y, 1)
        self._grid = (-(-(nx // 4 - 2) // block_x), -(-(ny - 2 * RADIUS) // block_y), deep)
        self._extents = tuple(map(np.int32, (nz, ny, nx // 4, chunk)))


def prepared(asked: Any, report: Any, steps: int) -> tuple[Loop, fb.Budget, fb.Costs]:
    """Make the loop and its budget, and time a step each way, a copy on the device and the link, once for all rows."""
    from forebay.cuda.slab import kept_pinned

    loop = Loop((64, 64, 64) if asked.tiny else (310, 676, 676), steps)
    nbytes, runtime = loop.snapshot, loop.cupy.cuda.runtime
    budget = fb.Budget(device=SLOTS * nbytes + OVERHEAD, host=20 * nbytes if asked.tiny else asked.host)
    forward, backward = loop.step_seconds()
    first, second = loop.cupy.zeros(nbytes, "uint8"), loop.cupy.zeros(nbytes, "uint8")

    def copies(*pairs: tuple[int, int]) -> float:
        """Return the seconds of a copy, of several in a row; a pair is a target and a source."""
        stream, kind = loop.cupy.cuda.get_current_stream().ptr, runtime.memcpyDefault
        return loop.seconds(lambda: [runtime.memcpyAsync(*pair, nbytes, kind, stream) for pair in pairs]) / len(pairs)

    device, spare = first.data.ptr, second.data.ptr
    copy = copies((spare, device), (device, spare))
    with kept_pinned(4 * nbytes) as slab:
        places = [slab.pointer + index * nbytes for index in range(4)]
        up = copies(*((device, place) for place in places))
        down = copies(*((place, device) for place in places))
    del first, second
    links = measure_links(None, min(nbytes, 2**28), None if asked.tiny else loop.timer(steps=4))
    both = min(1.0, links.pinned_both / min(links.pinned_up, links.pinned_down))
    loop.machine.release()
    link = fb.Link(up=nbytes / up, down=nbytes / down, both=both, beside=links.beside or 1.0)
    costs = fb.Costs(forward, backward, nbytes / copy, link, operations=loop.host_costs())
    points = math.prod(extent - 2 * RADIUS for extent in loop.shape)
    speeds = {"forward_Gpoints": points / forward / 1e9, "backward_Gpoints": points / backward / 1e9}
    setting = {"shape": loop.shape, "steps": steps, "state_bytes": nbytes, "host_bytes": budget["host"]}
    report.facts |= setting | {"costs": asdict(costs)} | speeds
    report.say(f"a state of {to_text(nbytes)}, {costs}")
    return loop, budget, costs
