"""Asks for facts as a script would: with ``--json``, and all in one process, which is fast."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from attrs import frozen

from tileferry.entrypoints.cli.main import main


@frozen
class QueryProcess:
    """The end of two pipes, behind which questions become commands and answers are their JSON."""

    questions: IO[str]
    answers: IO[str]

    def query(self, *arguments: str) -> dict[str, Any]:
        """Return the one object that a command prints."""
        self.questions.write(json.dumps(arguments) + "\n")
        self.questions.flush()
        answer: dict[str, Any] = json.loads(self.answers.readline())
        return answer


@contextmanager
def start_query_process(home: Path, environment: Mapping[str, str]) -> Iterator[QueryProcess]:
    """Have a clerk for a while; one who was never asked has touched nothing."""
    process = subprocess.Popen(  # noqa: S603  # this very module
        [sys.executable, "-m", __name__],
        env=environment,
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what is for people is on the stage already
        text=True,
    )
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both are pipes")
    with process:
        yield QueryProcess(process.stdin, process.stdout)


def serve_queries() -> None:
    """Answer question after question, until nobody asks any more."""
    for question in sys.stdin:
        try:
            main([*json.loads(question), "--json"])
        except SystemExit:
            sys.stdout.flush()


if __name__ == "__main__":
    serve_queries()
