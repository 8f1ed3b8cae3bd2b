"""The number that torch counts up when a tensor is changed in place: read, and compared when it is needed again."""

import torch


def version_of(tensor: torch.Tensor) -> int | None:
    """Return the number that grows when a tensor is changed in place; nobody counts for those made for inference."""
    return None if tensor.is_inference() else tensor._version


def check_version(tensor: torch.Tensor, version: int) -> None:
    """Raise as autograd does where a tensor was changed in place after it was saved."""
    if tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a saved "
            f"tensor is at version {tensor._version}; expected version {version} instead. Use the operation that makes "
            "a new tensor, or clone before it"
        )
