"""Peaks of single blocks on Dask's workers, while the graphs run that tasks of a pipeline have built."""

import time
from typing import Any

import distributed

from forebay.footprint.measure.resident import PEAKS, PeakSpan, peaks_can_be_reset

TOPIC = "forebay-blocks"


class BlockGauge(distributed.WorkerPlugin):  # type: ignore[misc]
    """Has a worker log what each block needed that ran alone in its process."""

    name = TOPIC

    def setup(self, worker: Any) -> None:
        """Begin on a worker."""
        self._worker = worker
        self._begun: dict[Any, tuple[PeakSpan, float]] = {}
        self._alone = True

    def transition(self, key: Any, start: str, finish: str, **how: Any) -> None:
        """Note what there is when a block begins, and log the peak when it has ended."""
        if not peaks_can_be_reset():
            return
        if finish == "executing":
            self._alone = not self._begun
            self._begun[key] = PEAKS.begin(), time.perf_counter()
        elif start == "executing" and key in self._begun:
            span, begun = self._begun.pop(key)
            peak = PEAKS.end(span)
            if self._alone and not self._begun and finish == "memory":
                layer = str(key[0] if isinstance(key, tuple) else key)
                self._worker.log_event(TOPIC, {"layer": layer, "bytes": peak, "seconds": time.perf_counter() - begun})


def watch_blocks() -> distributed.Client | None:
    """Have the workers of the current cluster measure blocks; return its client, or None where there is none."""
    try:
        client = distributed.get_client()
    except ValueError:
        return None
    client.register_plugin(BlockGauge())
    return client


def blocks_of(client: distributed.Client) -> list[dict[str, Any]]:
    """List what was logged so far."""
    return [dict(event) for _, event in client.get_events(TOPIC) or ()]
