"""How the demo shows what it runs."""

import shlex

from tileferry.entrypoints.demo.stage import folded


def test_a_long_command_is_broken_as_a_shell_takes_it() -> None:
    assert folded("$ tileferry db upgrade") == "$ tileferry db upgrade"
    long = "$ tileferry backfill plan " + " ".join(f"--option-{n} value-{n}" for n in range(9))
    shown = folded(long)
    assert max(map(len, shown.splitlines())) <= 98
    assert len(shown.splitlines()) == 3
    joined = shown.replace("\\\n", "")  # as a shell does
    assert shlex.split(joined) == shlex.split(long)
