"""A process that runs commands with one failing file call each, every one in a fork of its own.

Started with ``LD_PRELOAD`` set to the library of ``call_faults.c``. It imports the product once,
reads one request per line from stdin and answers each with the wait status of the fork.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from typing import Any, NoReturn


def import_product() -> None:
    """Import what commands need, so that no fork has to."""
    import sqlalchemy.dialects.postgresql.psycopg  # noqa: PLC0415, F401

    import tileferry.entrypoints.container  # noqa: PLC0415, F401
    from tileferry.entrypoints.cli.main import main  # noqa: PLC0415

    for words in (["config", "show"], ["download", "--help"]):
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(SystemExit):
            main(words)


def run_command(request: dict[str, Any]) -> int:
    """Run a command in this process, whose calls fail from now on as requested."""
    from tileferry.entrypoints.cli.main import main  # noqa: PLC0415

    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
    os.chdir(request["home"])
    os.environ.update(request["environment"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
    log = os.open(request["log"], flags, 0o600)
    faults = ctypes.CDLL(None)
    faults.arm_call_faults(
        request["home"].encode(),
        log,
        request["kind"],
        ctypes.c_long(request["fail_at"]),
        int(request["permanently"]),
    )
    sys.argv = ["tileferry", *request["arguments"]]
    try:
        main(request["arguments"])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def end(code: int) -> NoReturn:
    """End a fork as a program ends, but without taking apart all that it has imported."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def serve() -> None:
    """Answer requests until stdin ends; each command runs in a fork."""
    import_product()
    answers = os.dup(1)
    os.write(answers, b"ready\n")
    while line := sys.stdin.readline():
        gc.freeze()  # so that forks share it
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            os.close(reader)
            before = set(sys.modules)
            code = run_command(json.loads(line))
            os.write(writer, " ".join(sorted(set(sys.modules) - before)).encode())
            end(code)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as pipe:
            import_names(pipe.read().split())
        os.write(answers, f"{os.waitpid(pid, 0)[1]}\n".encode())


def import_names(names: list[str]) -> None:
    """Import what a command imported on its way, so that the next one has it."""
    for name in names:
        with suppress(Exception):  # not all of them are files
            importlib.import_module(name)


if __name__ == "__main__":
    serve()
