"""Another machine with tileferry, reached with the ssh program of this one."""

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from attrs import frozen

from tileferry.application.ports.packs import PeerReport
from tileferry.domain.errors import InvalidValueError, PeerError, Remedy
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.text import printable

_APPLIED = (0, 3)
"""3: the verdict differs, as it does until the last pack is applied."""
_SAID_CHARS_MAX = 500
_ANSWER_BYTES_MAX = 64 * 1024


@frozen(kw_only=True)
class SshPeer:
    """Runs ``tileferry pack`` on the other machine, under the identity that ssh is set up for."""

    destination: str
    folder: Path
    inventory_command: Sequence[str]
    """Reads a pack from its input, and writes the inventory."""
    apply_command: Sequence[str]
    """Reads a pack from its input, and writes a report as JSON."""

    def fetch_inventory(self, like: str, name: str) -> None:
        """Store an inventory of the areas of a pack."""
        with (self.folder / name).open("wb") as output:
            self._run(self.inventory_command, like, output)

    def apply(self, name: str) -> PeerReport:
        """Send a pack, and have it applied."""
        said = self._run(self.apply_command, name, subprocess.PIPE, _APPLIED)
        try:
            answer = parse_json(said, field="answer", bytes_max=_ANSWER_BYTES_MAX)
            found = JsonObject.from_value(answer, "answer")
            return PeerReport(
                is_go=found.get("verdict", str) == "GO",
                tiles_imported=found.get("tiles_imported", int),
                bytes_imported=found.get("bytes_imported", int),
                entries_refused=found.get("entries_refused", int),
            )
        except InvalidValueError as error:
            raise self._error(f"answered {printable(said.decode('utf-8', 'replace'))!r}") from error

    def _run(
        self, words: Sequence[str], name: str, output: int | IO[bytes], codes: Sequence[int] = (0,)
    ) -> bytes:
        # "--": a destination that begins with a dash is not an option.
        command = ["ssh", "-o", "BatchMode=yes", "--", self.destination, shlex.join(words)]
        try:
            with (self.folder / name).open("rb") as content:
                done = subprocess.run(  # noqa: S603  # the user's own ssh
                    command, stdin=content, stdout=output, stderr=subprocess.PIPE, check=False
                )
        except OSError as error:
            raise self._error(f"cannot start ssh: {error.strerror}") from error
        if done.returncode not in codes:
            said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
            raise self._error(printable(said, limit=_SAID_CHARS_MAX))
        return done.stdout or b""

    def _error(self, problem: str) -> PeerError:
        return PeerError(
            destination=self.destination,
            problem=problem,
            remedy=Remedy.CHECK_PEER,
        )
