"""The declaration of commands, and the options that all of them have.

``--help`` and shell completion need only the declarations, so a module of commands imports nothing
heavy at its top: each command imports what it needs when it runs.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

_EXAMPLE_CHARS_MAX = 70
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Configuration file (default: tileferry.toml in this folder, if there is one). It"
        " overrides the user's own.",
        dir_okay=False,
        exists=True,
    ),
]


class HelpGroup(TyperGroup):
    """A group whose flags have a default; without one, typer would import pydantic."""

    def get_params(self, ctx: Any) -> Any:
        """Return the flags; a group has no other options."""
        flags = super().get_params(ctx)
        for flag in flags:
            flag.default = False
        return flags


class HelpCommand(TyperCommand):
    """A command whose help shows arguments as they are typed, without braces and types."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for parameter in self.params:
            _keep_default(parameter)

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters; ``--help`` gets a default, as in ``HelpGroup``."""
        parameters = super().get_params(ctx)
        for flag in parameters[len(self.params) :]:
            flag.default = False
        return parameters

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage after the command's name."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the help of each argument and option."""
        rows: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                rows[parameter.param_type_name].append((record[0].split(" <")[0], record[1]))
        for kind, described in rows.items():
            if described:
                with formatter.section(f"{kind.title()}s"):
                    formatter.write_dl(described)


def _keep_default(parameter: Any) -> None:
    """Let a command use a default as it is declared: to convert it, typer imports pydantic."""
    convert = parameter.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        source = ctx.get_parameter_source(parameter.name)
        is_default = source is not None and source.name == "DEFAULT"
        if is_default and not parameter.required and parameter.callback is None:
            return value
        return convert(ctx, value)

    parameter.process_value = process_value


class CommandGroup(typer.Typer):
    """A group whose commands use ``HelpCommand``."""

    def command(self, name: str | None = None, **settings: Any) -> Any:
        """Return the decorator that turns a function into a command."""
        return super().command(name, cls=HelpCommand, **settings)


def declare_group(text: str) -> typer.Typer:
    """Return a group of commands."""
    return CommandGroup(
        help=text, cls=HelpGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )


def declare_command() -> typer.Typer:
    """Return a top-level command without subcommands."""
    return CommandGroup(add_completion=False, rich_markup_mode=None)


def format_examples(*lines: str) -> str:
    """Return the examples of a command's help, ready to paste into a shell."""
    title = "Examples:" if len(lines) > 1 else "Example:"
    return "\n".join(["\b", title, *(f"  {_fold_line(line)}" for line in lines)])


def _fold_line(line: str) -> str:
    """Break a long line before an option, with a backslash, to fit into 80 columns."""
    begin, *options = line.split(" --")
    rows = [begin]
    for option in options:
        if len(rows[-1]) + len(option) > _EXAMPLE_CHARS_MAX:
            rows.append(f"  --{option}")
        else:
            rows[-1] += f" --{option}"
    return " \\\n  ".join(rows)
