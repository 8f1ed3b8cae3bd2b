"""Arrays of JAX; loaded where a program uses them.

They are immutable, and JAX takes aligned memory of others as its own. So an array that is given out is always a copy:
one that looked onto a slot would change when the slot is written again. On an accelerator JAX computes on streams of
its own, and uses memory again in their order. So what is kept is kept on the host, once it is computed; what is given
out is put back to its device.
"""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from forebay.errors import StateError
from forebay.machine.spec import ArraySpec, JaxKind


class JaxArrays:
    """JAX."""

    name = "JAX"

    def device(self, array: Any) -> None:
        """Return None: they are kept on the host."""

    def view(self, array: Any) -> NDArray[Any]:
        """Return the elements, once they are computed; those on an accelerator are copied."""
        self.leaf_spec(array)
        return np.asarray(np.asarray(array), order="C")  # on an accelerator they may lie in another order

    def copy(self, array: Any) -> Any:
        """Copy an array: who is given it may give its memory away."""
        return jax.numpy.array(array, copy=True)

    def on_host(self, array: Any) -> bool:
        """Return True: they are kept there."""
        return True

    def leaf_spec(self, array: Any) -> ArraySpec:
        """Describe an array, refusing one that is not there yet, or on several devices."""
        if isinstance(array, jax.core.Tracer):
            raise StateError(
                "it is an array that JAX has traced, and not there yet: call outside of jax.jit and jax.grad, or use "
                "forebay.jax.checkpointed"
            )
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
            raise StateError(f"an array of {array.dtype} has no bytes of its own: give jax.random.key_data(key)")
        if array.is_deleted():
            raise StateError("its memory was given away (donated): return the array that was computed from it")
        devices = array.devices()
        if len(devices) > 1 or not array.is_fully_addressable:
            raise StateError(
                "arrays of JAX are kept from one device, and this one is spread over several, or another process has "
                "it: use forebay.jax.checkpointed, or jax.device_put(x, jax.devices()[0])"
            )
        if array.weak_type:
            raise StateError(f"its type is weak, as that of a number: give jax.numpy.asarray(x, {array.dtype})")
        return ArraySpec(array.shape, np.dtype(array.dtype), JaxKind(next(iter(devices))))

    def signature(self, array: Any) -> Any:
        """Return shape, type and device, once the elements are computed: what follows is timed and copied."""
        array.block_until_ready()
        return array.shape, array.dtype, array.devices(), array.weak_type

    def like(self, array: Any, spec: ArraySpec) -> tuple[Any, Any]:
        """Return the class and the signature of arrays of a spec."""
        return type(array), (spec.shape, spec.dtype, {spec.kind.device}, False)

    def fit(self, array: Any, spec: ArraySpec) -> Any:
        """Return the array: it has no strides."""
        return array

    def copy_as(self, array: Any, spec: ArraySpec) -> Any:
        """Copy an array."""
        return self.copy(array)

    def strides(self, array: Any) -> tuple[int, ...]:
        """Return those of C order."""
        return self.leaf_spec(array).all_strides

    def references(self, array: Any) -> int:
        """Return 0: they are copies, and may be kept."""
        return 0

    def address(self, array: Any) -> None:
        """Return None: nobody can write to them."""


def from_numpy(array: NDArray[Any], kind: JaxKind) -> Any:
    """Return a copy of an array as one of JAX, of the very same type."""
    made = jax.device_put(np.array(array), kind.device)
    if made.dtype != array.dtype:
        raise StateError(f"JAX makes {made.dtype} of an array of {array.dtype}: set jax_enable_x64 for the whole run")
    return made
