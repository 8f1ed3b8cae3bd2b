"""The engine: carries plans out on arrays."""

from penstock.engine.result import Result as Result
from penstock.engine.reverse import reverse as reverse
