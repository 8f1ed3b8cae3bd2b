"""Devito: fields that stay on the device between operators, and operators reversed inside a budget."""

from forebay.devito.allocator import UnifiedAllocator as UnifiedAllocator
from forebay.devito.allocator import unified as unified
from forebay.devito.building import outside as outside
from forebay.devito.residency import resident as resident
from forebay.devito.residency import sync_device as sync_device
from forebay.devito.residency import sync_host as sync_host
from forebay.devito.residency import view as view
from forebay.devito.stepping import OperatorForward, OperatorRun
from forebay.devito.support import DevitoError as DevitoError

# The names that users know them by; a `Forward` of a schedule is an action.
Forward = OperatorForward
Run = OperatorRun
