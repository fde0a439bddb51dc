"""The consoles of commands: data goes to stdout, everything else to stderr."""

from rich.console import Console


class DataConsole(Console):
    """The console for data. Rich would exit on a broken pipe; here the caller handles it."""

    def on_broken_pipe(self) -> None:
        """Re-raise the error."""
        raise  # noqa: PLE0704  # rich calls this while it handles the error


stdout = DataConsole(highlight=False, emoji=False)
stderr = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
"""For everything that is not data."""
