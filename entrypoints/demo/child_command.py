"""A command that ends with whoever started it, even if that was killed: its input ends then."""

import os
import signal
import sys
import threading

from tileferry.entrypoints.cli.main import main

_PIECE_BYTES = 1_024


def terminate_on_eof() -> None:
    """Wait for the end of the input, and stop this process as an operator would."""
    while os.read(sys.stdin.fileno(), _PIECE_BYTES):  # not through a buffer, whose lock outlives us
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=terminate_on_eof, daemon=True).start()
    main()
