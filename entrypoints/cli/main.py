"""``tileferry``: the operator's commands. Data goes to stdout, everything else to stderr.

What only an error needs is imported when there is one: the help must not wait for it.
"""

import gc
import io
import signal
import sys
from collections.abc import Sequence

from tileferry.entrypoints.cli.tree import APP_NAME, app

_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""A command imports more than twice as many, and all stay: looking at them each time is slow."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; whatever goes wrong becomes one line and its exit code."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    for stream in (sys.stdout, sys.stderr):  # a terminal or a file of any encoding will do
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Told to end, a command ends as by Ctrl-C; those that have something to make safe do more.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = app(arguments, prog_name=APP_NAME, standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the operator gets to know
        from tileferry.entrypoints.cli.failures import report_failure  # as above

        words = sys.argv[1:] if arguments is None else arguments
        code = report_failure(error, as_json="--json" in words)
    except SystemExit as end:  # typer's own: it told how to complete, or nobody reads its help
        from tileferry.entrypoints.cli.exit_codes import ExitCode  # as above

        code = ExitCode.FATAL if end.code else ExitCode.DONE
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(code if isinstance(code, int) else 0)
