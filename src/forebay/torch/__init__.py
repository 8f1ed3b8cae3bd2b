"""PyTorch: time loops and training steps that need more memory than there is."""

from forebay.torch.checkpointed import checkpointed as checkpointed
from forebay.torch.fit import fit as fit
from forebay.torch.fit import plan_of as plan_of
from forebay.torch.fit import unfit as unfit
from forebay.torch.offload import offload as offload
from forebay.torch.offload import release as release
from forebay.torch.step.cross_entropy import linear_cross_entropy as linear_cross_entropy
from forebay.torch.step.offloaded import offloaded as offloaded
from forebay.torch.step.offloaded import states_of as states_of
