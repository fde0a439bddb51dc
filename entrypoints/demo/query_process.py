"""Runs commands with ``--json`` in one long-lived process, which avoids a start per query."""

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
    """A process that reads commands from a pipe and writes their JSON output to another."""

    questions: IO[str]
    answers: IO[str]

    def query(self, *arguments: str) -> dict[str, Any]:
        """Run a command and return the JSON object that it prints."""
        self.questions.write(json.dumps(arguments) + "\n")
        self.questions.flush()
        answer: dict[str, Any] = json.loads(self.answers.readline())
        return answer


@contextmanager
def start_query_process(home: Path, environment: Mapping[str, str]) -> Iterator[QueryProcess]:
    """Start a query process for a block; it opens nothing before the first query."""
    process = subprocess.Popen(  # noqa: S603  # runs this module
        [sys.executable, "-m", __name__],
        env=environment,
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the terminal already shows the messages for people
        text=True,
    )
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both are pipes")
    with process:
        yield QueryProcess(process.stdin, process.stdout)


def serve_queries() -> None:
    """Answer queries until stdin closes."""
    for question in sys.stdin:
        try:
            main([*json.loads(question), "--json"])
        except SystemExit:
            sys.stdout.flush()


if __name__ == "__main__":
    serve_queries()
