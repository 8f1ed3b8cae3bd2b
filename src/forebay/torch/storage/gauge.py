"""Time and memory of the place where a model computes: events and the allocator of a GPU, or the clock of a CPU."""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from forebay.machine.machine import Wait
from forebay.planner import Link
from forebay.tier.links import speed
from forebay.torch.storage.mover import Mover, new_storage

PROBE = 2**26
"""Bytes of a copy that measures the link."""


@dataclass(frozen=True)
class HostGauge:
    """A CPU: nobody counts its tensors, so that budgets cover what blocks save and are given, and nothing else."""

    device: torch.device
    counts = False
    clock = staticmethod(time.perf_counter)

    def mark(self) -> Any:
        """Return a moment."""
        return self.clock()

    def seconds(self, start: Any, end: Any) -> float:
        """Return the seconds between two moments."""
        return float(end - start)

    def allocated(self) -> int:
        """Return the bytes of all tensors, where they are counted."""
        return 0

    def peak(self) -> int:
        """Return the most bytes since it was last asked, where they are counted."""
        return 0

    def most(self) -> int:
        """Return the most bytes so far, and go on counting."""
        return 0

    def link(self, mover: Mover) -> Link | None:
        """Time copies between the tiers."""
        nbytes = min(PROBE if self.counts else PROBE // 16, mover.room.budget // 2)
        piece = mover.room.take(nbytes) if nbytes else None
        if piece is None:
            return None
        storage = new_storage(nbytes, mover.device)
        ready = None

        def copy(down: bool) -> float:
            nonlocal ready
            start = self.mark()
            move = mover.down(storage, nbytes, piece) if down else mover.up(piece, storage, nbytes, ready)
            (ready,) = mover.machine.moves("down 1" if down else "up 1", [move])
            mover.machine.hold(Wait("link: copied", ready))
            return self.seconds(start, self.mark())

        down, up = (speed(nbytes, partial(copy, way)) for way in (True, False))
        mover.room.give(piece, [] if ready is None else [ready])
        return Link(up=up, down=down)


class CudaGauge(HostGauge):
    """A GPU: torch's allocator counts every byte, and events on its stream tell the time."""

    counts = True

    def mark(self) -> Any:
        """Record an event."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """Wait for the later event, and read both."""
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def allocated(self) -> int:
        """Ask the allocator, without having the hundred figures that it tells named and sorted."""
        statistics = torch.cuda.memory_stats_as_nested_dict(self.device)  # nothing before there is a context
        return int(statistics["allocated_bytes"]["all"]["current"]) if statistics else 0

    def peak(self) -> int:
        """Ask the allocator, and begin anew."""
        peak = self.most()
        torch.cuda.reset_peak_memory_stats(self.device)
        return peak

    def most(self) -> int:
        """Ask the allocator, for whom others may have begun anew."""
        return int(torch.cuda.max_memory_allocated(self.device))


def gauge_for(device: torch.device) -> HostGauge:
    """Return the gauge of a device."""
    return CudaGauge(device) if device.type == "cuda" else HostGauge(device)
