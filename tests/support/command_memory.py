"""``python -m support.command_memory ARGUMENTS…``: run a command, print its peak of memory last.

The peak of a process counts from its start; what starts it has no part in it.
"""

import atexit
import sys

from tileferry.entrypoints.cli.main import main


def print_peak() -> None:
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123  # fewer imports
        peak = next(line for line in status if line.startswith("VmHWM:"))
    sys.stderr.write(f"\n{peak.split()[1]}\n")


if __name__ == "__main__":
    atexit.register(print_peak)
    main(sys.argv[1:])
