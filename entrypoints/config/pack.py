"""Packs: the key of this machine, and the keys that it trusts."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.config.fields import data_path, doc

if TYPE_CHECKING:
    from attrs import Attribute


def _check_keys(_instance: object, _attribute: "Attribute[list[str]]", keys: list[str]) -> None:
    for key in keys:
        if not re.fullmatch("[0-9a-f]{64}", key):
            raise InvalidValueError(
                field="PackConfig.trusted_keys",
                value=key,
                problem="is not a public key",
                remedy="use the 64 digits that `tileferry pack key` shows on the other machine",
            )


@frozen(kw_only=True)
class PackConfig:
    """Packs, which carry the tiles of a flight to another machine."""

    key_file: Path = field(
        factory=lambda: data_path("pack.key"),
        metadata=doc("File with the key that signs packs; it is created when it is first needed."),
    )
    trusted_keys: list[str] = field(
        factory=list,
        validator=_check_keys,
        metadata=doc(
            "Public keys of other machines whose packs are applied here; `tileferry pack key` shows"
            " a machine's key."
        ),
    )
