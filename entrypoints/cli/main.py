"""``tileferry``: the operator's commands. Data goes to stdout, everything else to stderr.

Modules that only errors need are imported on an error, to keep the help fast.
"""

import gc

# A command imports more than 100,000 lasting objects; frequent collections over them are slow.
gc.set_threshold(100_000)

import io  # noqa: E402  # not before
import signal  # noqa: E402  # as above
import sys  # noqa: E402  # as above
from collections.abc import Sequence  # noqa: E402  # as above

from tileferry.entrypoints.cli.tree import APP_NAME, app  # noqa: E402  # as above


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; any failure becomes one line and an exit code."""
    for stream in (sys.stdout, sys.stderr):  # accept characters that its encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # SIGTERM ends a command like Ctrl-C; commands with data to flush install their own handler.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = app(arguments, prog_name=APP_NAME, standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # reported to the operator
        from tileferry.entrypoints.cli.failures import report_failure  # see the module docstring

        words = sys.argv[1:] if arguments is None else arguments
        code = report_failure(error, as_json="--json" in words)
    except SystemExit as end:  # by typer: shell completion, or a closed pipe while it shows help
        from tileferry.entrypoints.cli.exit_codes import ExitCode  # see the module docstring

        code = ExitCode.FATAL if end.code else ExitCode.DONE
    finally:
        signal.signal(signal.SIGTERM, before)
    # At exit, Python searches all objects twice for cycles: a sixth of a short command's time.
    gc.freeze()
    sys.exit(code if isinstance(code, int) else 0)
