"""Schedules: what is kept and what is recomputed in a reversal, one schedule a file."""

from penstock.schedule.actions import Action as Action
from penstock.schedule.actions import Backward as Backward
from penstock.schedule.actions import Drop as Drop
from penstock.schedule.actions import Forward as Forward
from penstock.schedule.actions import Restore as Restore
from penstock.schedule.actions import Save as Save
from penstock.schedule.actions import Schedule as Schedule
from penstock.schedule.check import check as check
from penstock.schedule.foreign import Foreign as Foreign
from penstock.schedule.foreign import foreign as foreign
from penstock.schedule.names import named as named
from penstock.schedule.revolve import Revolve as Revolve
from penstock.schedule.storeall import StoreAll as StoreAll
from penstock.schedule.twolevel import TwoLevel as TwoLevel
from penstock.schedule.uniform import Uniform as Uniform
from penstock.schedule.zcut import ZCut as ZCut
