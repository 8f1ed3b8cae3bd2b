"""What all tests share."""

import signal

from hypothesis import settings

# Shared machines are slow at times: no example fails for its duration.
settings.register_profile("default", deadline=None, print_blob=True)
settings.load_profile("default")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: the processes that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
