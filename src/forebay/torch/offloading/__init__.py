"""How `offload` moves saved tensors: their order learned, and those that fit only counted."""
