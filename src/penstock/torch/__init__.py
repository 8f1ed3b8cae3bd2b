"""PyTorch: time loops and training steps that need more memory than there is."""

from penstock.torch.checkpointed import checkpointed as checkpointed
from penstock.torch.fit import fit as fit
from penstock.torch.fit import plan_of as plan_of
from penstock.torch.fit import unfit as unfit
from penstock.torch.offload import offload as offload
from penstock.torch.offload import release as release
