"""How `offload` moves saved tensors: their order learned, and iterations in steady state left alone."""
