"""A command that ends with whoever started it, even if that was killed: its input ends then."""

import os
import signal
import sys
import threading

from tileferry.entrypoints.cli.main import main


def end_with_the_other() -> None:
    """Wait for the end of the input, and stop this process as an operator would."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_other, daemon=True).start()
    main()
