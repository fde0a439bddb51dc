"""The list of licences and the SBOM match the lock, and every licence is allowed.

``make lock`` writes all three.
"""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
SBOM_TEXT = (ROOT / "sbom.cdx.json").read_text(encoding="utf-8")
SBOM: dict[str, Any] = json.loads(SBOM_TEXT)
PAGE = (ROOT / "_docs/licences.md").read_text(encoding="utf-8")
ROWS = [row.strip("| ").split(" | ") for row in PAGE.split("| --- |\n")[1].splitlines()]

PERMISSIVE = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0",
    "MIT-CMU", "PSF-2.0", "Zlib",
}  # fmt: skip
# Their terms apply to changed copies of their own files, and we change none.
WEAK_COPYLEFT = {"LGPL-2.1-or-later", "LGPL-3.0-only", "MPL-2.0"}


def test_sbom_and_licences_list_exactly_what_is_locked() -> None:
    locked = re.findall(r"^([\w.-]+)==([^\s\\;]+)", LOCK, re.MULTILINE)
    assert len(locked) == len(set(locked)) > 0
    components = SBOM["components"]
    assert sorted((each["name"], each["version"]) for each in components) == sorted(locked)
    assert [(name, version) for name, version, *_ in ROWS] == locked
    purls = {f"pkg:pypi/{name}@{version}" for name, version in locked}
    assert {each["purl"] for each in components} == purls
    assert {each["bom-ref"] for each in components} == purls


def test_sbom_and_page_agree_on_licence_and_scope() -> None:
    installed = {
        "required": "always",
        "optional": "with an extra",
        "excluded": "development only",
    }
    in_sbom = {
        (each["name"], each["version"], licence["expression"], installed[each["scope"]])
        for each in SBOM["components"]
        for licence in each["licenses"]
    }
    assert in_sbom == {tuple(row) for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_every_licence_is_known_and_allowed(row: list[str]) -> None:
    allowed = PERMISSIVE | WEAK_COPYLEFT
    # Of licences joined by OR, we choose; all that are joined by AND apply.
    assert any(set(choice.split(" AND ")) <= allowed for choice in row[2].split(" OR "))


def test_lists_name_no_index_machine_or_time() -> None:
    for text in (SBOM_TEXT.replace(SBOM["$schema"], ""), PAGE):
        assert "://" not in text
        assert str(ROOT) not in text
        assert socket.gethostname() not in text
    assert not {"serialNumber", "timestamp"} & {*SBOM, *SBOM["metadata"]}
