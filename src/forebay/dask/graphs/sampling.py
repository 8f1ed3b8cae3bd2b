"""What tasks of a graph need and take, asked of a worker."""

from collections.abc import Sequence
from uuid import uuid4

import cloudpickle
import distributed

from forebay.dask.graphs.apart import run_apart
from forebay.dask.graphs.nodes import TaskGraph, named
from forebay.dask.graphs.running import TaskSample, run_pickled
from forebay.errors import BudgetError
from forebay.units import to_text

PERSISTED_SHARE = 0.25
"""The part of a worker's memory that persisted inputs may have: it holds them, and tasks are given copies."""


def sample(
    graph: TaskGraph, given: Sequence[int], client: distributed.Client, *, apart: bool = False
) -> list[TaskSample]:
    """Run tasks on a worker, one after the other, and return what each needed.

    Apart from the worker, in a process beside it, tasks may be of any size: one that outgrows the worker ends that.
    Of what a cluster has persisted tasks are given copies: they may change what they are given.
    """
    keys = graph.persisted
    payload = cloudpickle.dumps((graph.nodes, graph.kinds, list(given), keys))
    persisted = [distributed.Future(key, client) for key in keys]
    if persisted:
        distributed.wait(persisted)  # nobody knows their sizes before
        _check_inputs(keys, client)
    run = run_apart if apart else run_pickled
    ran = client.submit(run, payload, persisted, key=f"forebay-sampling-{uuid4().hex}")
    try:
        samples: list[TaskSample] | str = ran.result()
    except distributed.KilledWorker:
        raise BudgetError(
            "workers were ended as they ran a small corner of the array: give them more memory, or store the array in "
            "smaller chunks. Their output may tell more"
        ) from None
    if isinstance(samples, str):
        raise BudgetError(
            f"{named(samples)} outgrows a worker, beside what that holds: cut the array into smaller chunks, or give "
            "workers more memory"
        )
    return samples


def _check_inputs(keys: Sequence[object], client: distributed.Client) -> None:
    """Refuse to bring more to one worker than it can hold beside copies of it."""
    size = sum(client.nbytes(keys, summary=False).values())
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    least = min((worker["memory_limit"] for worker in workers if worker["memory_limit"]), default=None)
    if least is not None and size > PERSISTED_SHARE * least:
        raise BudgetError(
            f"the first tasks of each kind read {to_text(size)} that the cluster has persisted, too much to bring to "
            f"one worker of {to_text(least)}: persist the array in smaller chunks, or ask before you persist it"
        )
