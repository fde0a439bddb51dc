"""The provider's key: from the environment or a file that only its owner may read."""

import os
import stat
from pathlib import Path

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.config.sections import C11Config

_KEY_BYTES_MAX = 4_096
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def service_api_key(config: C11Config) -> str:
    """Return the key; that it is missing, or open to others, is an error that never shows it."""
    if config.service_api_key_file is not None:
        return key_in(config.service_api_key_file, field="c11.service_api_key_file")
    if config.service_api_key is not None:
        return config.service_api_key.get_secret_value()
    raise InvalidValueError(
        field="c11.service_api_key",
        value=None,
        problem="is not set",
        remedy="put the key into a file with mode 0600 and name it in c11.service_api_key_file, "
        "or set TILEFERRY_C11_SERVICE_API_KEY",
    )


def key_in(path: Path, *, field: str) -> str:
    """Read the key that a file holds; ``field`` is what named the file."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_KEY_BYTES_MAX + 1)  # no more: it may be a device without end
    except OSError as error:
        raise InvalidValueError(
            field=field, value=str(path), problem=f"cannot be read: {error.strerror}"
        ) from error
    if mode & _OTHERS:
        raise InvalidValueError(
            field=field,
            value=str(path),
            problem=f"is open to others (mode {stat.S_IMODE(mode):o})",
            remedy=f"chmod 600 {path}",
        )
    try:
        key = content.decode("ascii").strip()
    except UnicodeDecodeError:
        key = ""
    if key and len(content) <= _KEY_BYTES_MAX:
        return key
    if not content.strip():
        raise InvalidValueError(
            field=field, value=str(path), problem="is empty", remedy=f"write the key into {path}"
        )
    raise InvalidValueError(field=field, value=str(path), problem="does not hold a key")
