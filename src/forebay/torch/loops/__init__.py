"""How `checkpointed` differentiates a loop: its steps run, recorded, planned, and joined to autograd as one node."""
