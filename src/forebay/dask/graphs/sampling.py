"""What tasks of a graph need and take, asked of a worker."""

from collections.abc import Sequence
from uuid import uuid4

import cloudpickle
import distributed

from forebay.dask.graphs.apart import run_apart
from forebay.dask.graphs.nodes import TaskGraph, named
from forebay.dask.graphs.running import TaskSample, run_pickled
from forebay.errors import BudgetError


def sample(
    graph: TaskGraph, given: Sequence[int], client: distributed.Client, *, apart: bool = False
) -> list[TaskSample]:
    """Run tasks on a worker, one after the other, and return what each needed.

    Apart from the worker, in a process beside it, tasks may be of any size: one that outgrows the worker ends that.
    """
    keys = graph.persisted
    payload = cloudpickle.dumps((graph.nodes, graph.kinds, list(given), keys))
    persisted = [distributed.Future(key, client) for key in keys]
    run = run_apart if apart else run_pickled
    ran = client.submit(run, payload, persisted, key=f"forebay-sampling-{uuid4().hex}")
    samples: list[TaskSample] | str = ran.result()
    if isinstance(samples, str):
        raise BudgetError(
            f"{named(samples)} outgrows a worker, with nothing beside it: cut the array into smaller chunks, or give "
            "workers more memory"
        )
    return samples
