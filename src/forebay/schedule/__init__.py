"""Schedules: what is kept and what is recomputed in a reversal, one schedule a file."""

from forebay.schedule.actions import Action as Action
from forebay.schedule.actions import Backward as Backward
from forebay.schedule.actions import Drop as Drop
from forebay.schedule.actions import Forward as Forward
from forebay.schedule.actions import Restore as Restore
from forebay.schedule.actions import Save as Save
from forebay.schedule.actions import Schedule as Schedule
from forebay.schedule.check import check as check
from forebay.schedule.foreign import Foreign as Foreign
from forebay.schedule.foreign import foreign as foreign
from forebay.schedule.hierarchical import Hierarchical as Hierarchical
from forebay.schedule.hierarchical import Level as Level
from forebay.schedule.names import named as named
from forebay.schedule.online import Online as Online
from forebay.schedule.revolve import Revolve as Revolve
from forebay.schedule.storeall import StoreAll as StoreAll
from forebay.schedule.twolevel import TwoLevel as TwoLevel
from forebay.schedule.uniform import Uniform as Uniform
from forebay.schedule.weighted import Weighted as Weighted
from forebay.schedule.zcut import ZCut as ZCut
