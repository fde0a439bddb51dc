"""Who an operator is, as the audit log will tell."""

import getpass
import os
import socket

import pytest

from tileferry.entrypoints.cli.options.overriding import operator_name


def test_an_operator_is_a_user_at_a_host() -> None:
    assert operator_name() == f"{getpass.getuser()}@{socket.gethostname()}"


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    assert operator_name() == f"uid-54321@{socket.gethostname()}"


def test_a_name_cannot_command_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann\x1b[31m")
    assert operator_name() == f"ann\\x1b[31m@{socket.gethostname()}"
