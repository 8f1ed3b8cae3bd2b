"""Devito: fields that stay on the device between operators, and operators reversed inside a budget."""

from penstock.devito.allocator import UnifiedAllocator as UnifiedAllocator
from penstock.devito.allocator import unified as unified
from penstock.devito.building import outside as outside
from penstock.devito.residency import resident as resident
from penstock.devito.residency import sync_device as sync_device
from penstock.devito.residency import sync_host as sync_host
from penstock.devito.residency import view as view
from penstock.devito.stepping import Forward as Forward
from penstock.devito.stepping import Run as Run
from penstock.devito.support import DevitoError as DevitoError
