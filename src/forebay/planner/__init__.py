"""The planner: when and where snapshots move, decided from costs and budget. It knows no arrays."""

from forebay.planner.costs import MACHINES as MACHINES
from forebay.planner.costs import CodecCost as CodecCost
from forebay.planner.costs import Costs as Costs
from forebay.planner.costs import HostCost as HostCost
from forebay.planner.costs import Link as Link
from forebay.planner.make import check_budget as check_budget
from forebay.planner.make import plan as plan
from forebay.planner.plan import Plan as Plan
