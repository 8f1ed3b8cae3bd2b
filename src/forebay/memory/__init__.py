"""Memory that outgrows the card: unified memory behind several libraries, and a pool of arrays that pages itself."""

from forebay.memory.pool.pool import Pool as Pool
from forebay.memory.pool.resident import Resident as Resident
from forebay.memory.pool.thrash import ThrashWarning as ThrashWarning
from forebay.memory.pool.uses import Lease as Lease
from forebay.memory.unified.adopt import AllocatorWarning as AllocatorWarning
from forebay.memory.unified.advise import Where as Where
from forebay.memory.unified.advise import advise as advise
from forebay.memory.unified.advise import managed_empty as managed_empty
from forebay.memory.unified.advise import prefetch as prefetch
from forebay.memory.unified.advise import where as where
from forebay.memory.unified.guard import OversubscriptionWarning as OversubscriptionWarning
from forebay.memory.unified.hooks import prefetch_hooks as prefetch_hooks
from forebay.memory.unified.report import report as report
from forebay.memory.unified.resources import SpillWarning as SpillWarning
from forebay.memory.unified.unify import Unified as Unified
from forebay.memory.unified.unify import unify as unify
