"""What another machine may answer to a push."""

from pathlib import Path

import pytest

from tileferry.adapters.system.ssh_peer import SshPeer
from tileferry.domain.errors import PeerError

COUNTS = b'"tiles_imported":1,"bytes_imported":%b,"entries_refused":0}'


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshPeer:
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\nexec cat {tmp_path}/answer\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "1.pack").touch()
    return SshPeer(
        destination="pilot@aircraft", folder=tmp_path, inventory_command=["a"], apply_command=["b"]
    )


def test_answer_is_read(peer: SshPeer) -> None:
    (peer.folder / "answer").write_bytes(b'{"verdict":"GO",' + COUNTS % b"2")
    report = peer.apply("1.pack")
    assert (report.is_go, report.bytes_imported) == (True, 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b"Welcome!\x1b[2J",
        b"{" + COUNTS % b"2",
        b'{"verdict":"GO",' + COUNTS % b"1e999",
        b'{"verdict":"GO",' + COUNTS % (b"9" * 5_000),
    ],
)
def test_other_answer_is_an_error_of_that_machine(peer: SshPeer, answer: bytes) -> None:
    (peer.folder / "answer").write_bytes(answer)
    with pytest.raises(PeerError, match="pilot@aircraft: answered") as raised:
        peer.apply("1.pack")
    assert "\x1b" not in str(raised.value)
