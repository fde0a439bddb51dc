"""Who an operator is, as the audit log will tell."""

import getpass
import os
import socket

import pytest

from tileferry.entrypoints.cli.partition_options import get_operator_name


def test_operator_name_is_user_at_host() -> None:
    assert get_operator_name() == f"{getpass.getuser()}@{socket.gethostname()}"


def test_operator_name_falls_back_to_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    assert get_operator_name() == f"uid-54321@{socket.gethostname()}"


def test_control_characters_in_operator_name_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann\x1b[31m")
    assert get_operator_name() == f"ann\\x1b[31m@{socket.gethostname()}"
