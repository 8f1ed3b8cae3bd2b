"""Encoded snapshots, whose sizes are known only once they are there: room for them, and what is done when it ends."""

from forebay.engine.spilling.endless import EndlessExecutor as EndlessExecutor
from forebay.engine.spilling.replanning import SpillingExecutor as SpillingExecutor
from forebay.engine.spilling.rooms import Rooms as Rooms
from forebay.engine.spilling.rooms import SnapshotCoding as SnapshotCoding
from forebay.engine.spilling.rooms import check_plan as check_plan
from forebay.engine.spilling.rooms import rooms_of as rooms_of
from forebay.engine.spilling.rooms import rooms_of_budget as rooms_of_budget
