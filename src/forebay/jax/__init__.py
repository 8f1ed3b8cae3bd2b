"""JAX: time loops differentiated inside a budget."""

from forebay.jax.checkpointed import checkpointed as checkpointed
