"""Memory that outgrows the card: unified memory behind several libraries, and a pool of arrays that pages itself."""

from penstock.memory.adopt import AllocatorWarning as AllocatorWarning
from penstock.memory.advise import Where as Where
from penstock.memory.advise import advise as advise
from penstock.memory.advise import managed_empty as managed_empty
from penstock.memory.advise import prefetch as prefetch
from penstock.memory.advise import where as where
from penstock.memory.blocks import Lease as Lease
from penstock.memory.guard import OversubscriptionWarning as OversubscriptionWarning
from penstock.memory.hooks import prefetch_hooks as prefetch_hooks
from penstock.memory.pool import Pool as Pool
from penstock.memory.report import report as report
from penstock.memory.resident import Resident as Resident
from penstock.memory.spill import SpillWarning as SpillWarning
from penstock.memory.thrash import ThrashWarning as ThrashWarning
from penstock.memory.unify import Unified as Unified
from penstock.memory.unify import unify as unify
