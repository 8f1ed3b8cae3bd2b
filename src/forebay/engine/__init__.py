"""The engine: carries plans out on arrays."""

from forebay.engine.online import Ended as Ended
from forebay.engine.result import Result as Result
from forebay.engine.reversal import Reversal as Reversal
from forebay.engine.reverse import prepare as prepare
from forebay.engine.reverse import reverse as reverse
from forebay.engine.trees import register_state as register_state
from forebay.tier.kept import forget_costs as forget_costs
