"""Runs a command that stops when stdin closes: its parent has ended, or was killed."""

import os
import signal
import sys
import threading

from tileferry.entrypoints.cli.main import main

_PIECE_BYTES = 1_024


def terminate_on_eof() -> None:
    """Wait until stdin closes, then stop this process as an operator would."""
    while os.read(sys.stdin.fileno(), _PIECE_BYTES):  # a buffer's lock would block the exit
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=terminate_on_eof, daemon=True).start()
    main()
