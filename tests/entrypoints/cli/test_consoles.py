"""The consoles of commands."""

from tileferry.entrypoints.cli.consoles import stderr, stdout


def test_text_between_colons_is_printed_as_it_is() -> None:
    for console in (stdout, stderr):
        with console.capture() as printed:
            console.print("reason :warning: by ops")
        assert printed.get() == "reason :warning: by ops\n"
