"""Start a command and tell the peak of its resident memory: run by path in a bare interpreter, as small as one can be.

A process inherits the size of the one that started it, so that no command reads lower than this one. Prints the
command's exit status, its peak and its seconds, and the peak of this process, which is the least that can be told.
"""

import os
import sys
import time


def main(words: list[str]) -> None:
    """Run the command to its end, without its output."""
    own = 0
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status") as figures:
            own = next(int(line.split()[1]) for line in figures if line.startswith("VmHWM"))
    silent = os.open(os.devnull, os.O_WRONLY)
    start = time.perf_counter()
    process = os.posix_spawnp(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, silent, 1)])
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - start
    unit = 1 if sys.platform == "darwin" else 1024
    print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * unit, seconds, own * 1024)


if __name__ == "__main__":
    main(sys.argv[1:])
