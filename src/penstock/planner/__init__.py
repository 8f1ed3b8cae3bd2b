"""The planner: when and where snapshots move, decided from costs and budget. It knows no arrays."""

from penstock.planner.costs import MACHINES as MACHINES
from penstock.planner.costs import CodecCost as CodecCost
from penstock.planner.costs import Costs as Costs
from penstock.planner.costs import Link as Link
from penstock.planner.make import check_budget as check_budget
from penstock.planner.make import plan as plan
from penstock.planner.plan import Plan as Plan
