"""Memory that outgrows the card: unified memory behind several libraries, and a pool of arrays that pages itself."""

from forebay.memory.adopt import AllocatorWarning as AllocatorWarning
from forebay.memory.advise import Where as Where
from forebay.memory.advise import advise as advise
from forebay.memory.advise import managed_empty as managed_empty
from forebay.memory.advise import prefetch as prefetch
from forebay.memory.advise import where as where
from forebay.memory.blocks import Lease as Lease
from forebay.memory.guard import OversubscriptionWarning as OversubscriptionWarning
from forebay.memory.hooks import prefetch_hooks as prefetch_hooks
from forebay.memory.pool import Pool as Pool
from forebay.memory.report import report as report
from forebay.memory.resident import Resident as Resident
from forebay.memory.spill import SpillWarning as SpillWarning
from forebay.memory.thrash import ThrashWarning as ThrashWarning
from forebay.memory.unify import Unified as Unified
from forebay.memory.unify import unify as unify
