"""How many examples Hypothesis tries where all of them take long: `make test-slow` tries all, other runs fewer."""

import os

from hypothesis import settings

ALL = os.environ.get("FOREBAY_SLOW_TESTS") == "1"


def fewer(count: int, of: int = settings.default.max_examples) -> settings:
    """Make a test try `count` examples; in `make test-slow` as many as `of` says, or as Hypothesis does."""
    return settings(max_examples=of if ALL else count)
