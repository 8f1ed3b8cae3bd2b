"""What all tests share."""

import os
import signal

from hypothesis import settings

# Shared machines are slow at times: no example fails for its duration.
settings.register_profile("default", deadline=None, print_blob=True)
settings.load_profile("default")

# Code that Devito compiles with -ffast-math makes the thread that loads it flush denormal numbers to zero from then on,
# in all that it computes.
os.environ.setdefault("DEVITO_SAFE_MATH", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: the processes that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
