"""The engine: carries plans out on arrays."""

from penstock.engine.reverse import Result as Result
from penstock.engine.reverse import reverse as reverse
