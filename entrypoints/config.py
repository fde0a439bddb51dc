"""The configuration: one declaration of every field, its default, and where it may come from.

First ``tileferry.toml``, then the environment (``TILEFERRY_…``, one name a field), then flags.
"""

import re
from pathlib import Path

import typed_settings as ts
from attrs import field, frozen, validators
from platformdirs import user_data_path

from tileferry.domain.checks import integer
from tileferry.domain.errors import InvalidValueError

APP = "tileferry"
CONFIG_FILE = "tileferry.toml"
ENV_PREFIX = "TILEFERRY_"


def _own_data(name: str) -> Path:
    return user_data_path(APP) / name


@frozen(kw_only=True)
class C6Config:
    """The tile cache."""

    budget_bytes: int | None = field(default=None, validator=validators.optional(integer(0)))
    """How large the cache may grow; by default half of its disk."""
    free_space_reserve_bytes: int | None = field(
        default=None, validator=validators.optional(integer(0))
    )
    """What stays free on the disk, whatever the budget says; by default a twentieth of it."""


@frozen(kw_only=True)
class C11Config:
    """The tile manager."""

    cache_root: Path = field(factory=lambda: _own_data("cache"))
    """The folder of the cache."""


@frozen(kw_only=True)
class Config:
    """Everything that can be set."""

    database_url: ts.Secret[str] | None = None
    """``postgresql://user:password@host:port/database``; without it an embedded server is used."""
    data_dir: Path = field(factory=lambda: _own_data("postgres"))
    """Where the embedded server keeps its data."""
    c11: C11Config = field(factory=C11Config)
    c6: C6Config = field(factory=C6Config)


def load_config(file: Path | None = None) -> Config:
    """Read the configuration; what cannot be is refused by the field's name."""
    try:
        return ts.load(
            Config, appname=APP, config_files=[file or Path(CONFIG_FILE)], env_prefix=ENV_PREFIX
        )
    except ts.exceptions.InvalidSettingsError as error:
        raise _first_problem(error) from None  # its own text may quote a secret
    except (ts.exceptions.TsError, OSError) as error:
        raise InvalidValueError(
            field=CONFIG_FILE, value=str(file or CONFIG_FILE), problem=f"cannot be read: {error}"
        ) from error


def _first_problem(error: ts.exceptions.InvalidSettingsError) -> InvalidValueError:
    """Name the first field that is wrong, by its path, without what was given for it.

    The library hands on texts only: of a value that it could not convert, and of a refusal by one
    of our validators.
    """
    text = str(error.exceptions[0])
    named = re.search(r"option '([^']+)'|field='([^']+)'", text)
    problem = re.search(r"problem='([^']+)'", text)
    return InvalidValueError(
        field=next(filter(None, named.groups())) if named else CONFIG_FILE,
        value="***",
        problem=problem.group(1) if problem else "cannot be read as what it should be",
        remedy=f"correct it in {CONFIG_FILE}, or in its variable {ENV_PREFIX}…",
    )
