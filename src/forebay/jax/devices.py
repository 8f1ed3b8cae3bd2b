"""Where the arrays of a loop are: on which devices, what those have room for, and moves to the host and back."""

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from forebay.engine.loop import Trusted
from forebay.errors import StateError

Leaves = Sequence[Any]


def is_traced(leaf: Any) -> bool:
    """Tell whether a leaf stands for arrays that are not there yet."""
    return isinstance(leaf, jax.core.Tracer)


def placed(leaf: Any) -> Any:
    """Return where a leaf has been put; None where JAX may choose."""
    return None if is_traced(leaf) or not leaf.committed else leaf.sharding


def where(leaves: Leaves) -> Hashable:
    """Name where leaves have been put."""
    return tuple(map(placed, leaves))


def device_of(leaves: Leaves) -> Any:
    """Return a device on which a loop will be computed."""
    for leaf in leaves:
        if (sharding := placed(leaf)) is not None:
            return min(sharding.device_set, key=lambda device: device.id)
    default = jax.config.jax_default_device
    return default if isinstance(default, jax.Device) else jax.local_devices(backend=default)[0]


def free_bytes(device: Any) -> int | None:
    """Return what is free on an accelerator; None where nobody knows, as for the host."""
    stats = device.memory_stats() or {}
    return max(0, stats["bytes_limit"] - stats.get("bytes_in_use", 0)) if "bytes_limit" in stats else None


def current_mesh() -> AbstractContextManager[Any]:
    """Set the mesh that is set: JAX does so on the way back, and would compile everything anew for that alone."""
    mesh: AbstractContextManager[Any] = jax.sharding.use_abstract_mesh(jax.sharding.get_abstract_mesh())
    return mesh


def to_host(leaves: Leaves) -> Trusted:
    """Bring arrays to the host once they are computed, all of them at the same time."""
    for leaf in leaves:
        if not leaf.is_fully_addressable:
            raise StateError("the state is spread over several processes: a checkpointed loop works within one")
        if next(iter(leaf.sharding.device_set)).platform != "cpu":
            leaf.copy_to_host_async()
    return Trusted(np.asarray(leaf) for leaf in leaves)


class Places:
    """Where the leaves of a state are, so that they can be put there again."""

    def __init__(self, leaves: Leaves, device: Any) -> None:
        self._shardings = [placed(leaf) for leaf in leaves]
        self._on_host = device.platform == "cpu"

    def put(self, arrays: Sequence[Any]) -> list[Any]:
        """Put arrays of the host there; they may be overwritten afterwards."""
        if self._on_host:  # where JAX would take them as they are
            arrays = [np.array(array) for array in arrays]
        put: list[Any] = jax.device_put(list(arrays), self._shardings)
        return put if self._on_host else jax.block_until_ready(put)
