"""Fields that are paged through windows of any place, and the same in one piece."""

from dataclasses import dataclass, replace

import numpy as np

from forebay.machine.lanes import Lanes
from forebay.wave import Acoustic
from forebay.wave.kernels.points import scatter
from forebay.wave.kernels.rows import Rows
from forebay.wave.paged.cpu import CpuSteps
from forebay.wave.paged.gpu import GpuSteps, WindowKernels
from forebay.wave.paged.kernels import PagedKernels
from forebay.wave.paged.lanes import VirtualLanes
from forebay.wave.paged.pages import Window
from forebay.wave.paged.plan import LinkRates, PagingPlan


@dataclass
class VirtualPlace:
    """A place of some devices whose lanes a seed orders, and which may leave out a wait; or of emulated GPUs."""

    seed: int = 0
    without: str | None = None
    device: object = None
    count: int = 1
    kernels: object = None
    queues: object = None

    @property
    def rates(self):
        return LinkRates(1e9, 1e10, self.count)

    def rows(self, grid, radius, dtype):
        if self.device is None:
            return Rows()
        self.kernels = WindowKernels(grid, radius, dtype, device=self.device)
        return self.kernels.rows

    def zeros(self, nbytes):
        return np.zeros(nbytes, np.uint8)

    def lanes(self, nbytes):
        self.queues = Lanes(self.seed, self.without)
        return [VirtualLanes(nbytes, self.queues, number) for number in range(self.count)]

    def steps(self, propagator, plan, memory, points, back, device):
        if self.device is None:
            return CpuSteps(propagator, plan.window, memory, points, back)
        memory = memory._replace(pointer=memory.bytes.ctypes.data)
        return GpuSteps(self.kernels, propagator, plan.window, memory, points, back)

    def reach(self, regions):
        pass

    def scatter(self, field, points, values, factors):
        if self.device is None:
            about = points.touched, points.shares, points.sharers, points.share_weights
            scatter[0](field.reshape(-1), *about, values, factors)
            return
        flat, there = field.reshape(-1), field.reshape(-1)[points.touched]
        some = replace(points, touched=np.arange(len(there))).moved(self.kernels.put)
        self.kernels.add(there, some, values, factors)
        flat[points.touched] = there

    def close(self):
        pass


def paged(model, dt, place, budget, *, order=8, dtype=np.float32, case=None):
    """Return a propagator whose fields are paged, by the plan that a budget has or by a case that is given."""

    def make(grid, radius, dtype):
        kernels = PagedKernels(grid, radius, dtype, budget, place)
        if case is not None:
            steps, slab, room = case
            window = Window(kernels._pages[None], dtype.itemsize, room)
            kernels._plans[None, None] = PagingPlan(window, kernels._planes, steps, slab, budget, budget, 0, 1.0, 1.0)
        return kernels

    return Acoustic(model, dt, order, dtype, paging=make)
