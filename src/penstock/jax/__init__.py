"""JAX: time loops differentiated inside a budget."""

from penstock.jax.checkpointed import checkpointed as checkpointed
