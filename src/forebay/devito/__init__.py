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

Forward, Run = OperatorForward, OperatorRun
"""The names under which users know them; `Forward` alone is an action of a schedule."""
