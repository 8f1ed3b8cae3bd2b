"""What all tests share."""

from hypothesis import settings

# Shared machines are slow at times: no example fails for its duration.
settings.register_profile("default", deadline=None, print_blob=True)
settings.load_profile("default")
