"""The contract documents, and the tables in them."""

import json
import re
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tileferry.domain.tiles import (
    TileId,
)

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "_docs/02_document/contracts"
TILE_STORE = "c6_tile_cache/tile_store.md"
METADATA_STORE = "c6_tile_cache/tile_metadata_store.md"
FDR_RECORDS = "shared_fdr_client/fdr_record_schema.md"
LOG_RECORDS = "shared_logging/log_record_schema.md"

TILE_DOWNLOADER = "c11_tilemanager/tile_downloader.md"
TILE_UPLOADER = "c11_tilemanager/tile_uploader.md"
RUN_QUEUE = "c12_control_plane/run_queue.md"
CLI_JSON = "c12_operator/cli_json.md"

VERSIONS = {
    TILE_DOWNLOADER: "1.3.0",
    TILE_UPLOADER: "1.2.0",
    RUN_QUEUE: "1.1.0",
    CLI_JSON: "1.11.0",
    TILE_STORE: "1.4.0",
    METADATA_STORE: "1.3.0",
    FDR_RECORDS: "1.0.0",
    LOG_RECORDS: "1.6.0",
}
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
TILE = TileId(source="cam", zoom=15, x=19_000, y=11_000)
"""The tile in the documented statements."""


def read_page(document: str) -> str:
    return (CONTRACTS / document).read_text(encoding="utf-8")


def read_table(document: str, name: str) -> list[list[str]]:
    """Return the rows of a table between its markers, a list of cells each."""
    table = read_page(document).split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]
    return [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in table.strip().splitlines()[2:]
    ]


def list_changelog_versions(document: str) -> list[str]:
    """Return the versions in a Change Log, as they stand there."""
    log = read_page(document).split("## Change Log")[1]
    return re.findall(r"^\| v?(\d+\.\d+\.\d+) \|", log, re.MULTILINE)


SCHEMA_FOLDER = (CONTRACTS / CLI_JSON).parent / "json"
COMMON_SCHEMA = "common.json"
"""What several forms have in common; it is no form itself."""


@cache
def load_schemas() -> dict[str, dict[str, Any]]:
    """Return all files by their names."""
    files = sorted(SCHEMA_FOLDER.glob("*.json"))
    return {file.name: json.loads(file.read_text(encoding="utf-8")) for file in files}


def list_schemas() -> list[str]:
    """Return the names of all forms."""
    return [name.removesuffix(".json") for name in load_schemas() if name != COMMON_SCHEMA]


@cache
def get_validator(form: str) -> Draft202012Validator:
    """Return what knows a form."""
    found = {name: Resource.from_contents(body) for name, body in load_schemas().items()}
    assert f"{form}.json" in found, f"the form {form} is not documented"
    registry: Registry[Any] = Registry().with_resources(found.items())
    return Draft202012Validator(load_schemas()[f"{form}.json"], registry=registry)


def find_schema_problems(printed: Any, form: str) -> list[str]:
    """Return what is not as the form has it."""
    return [f"{one.json_path}: {one.message}" for one in get_validator(form).iter_errors(printed)]


@cache
def read_exit_codes() -> dict[str, set[int]]:
    """Return how a command may end that has printed a form, as the page says it."""
    return {
        form.strip("`"): {*map(int, codes.split())} for _, form, codes, _ in read_schema_table()
    }


def read_schema_table() -> list[list[str]]:
    """Return the page's table of forms, where each links to its file."""
    return [
        [commands, form.strip("[").partition("]")[0], codes, about]
        for commands, form, codes, about in read_table(CLI_JSON, "forms")
    ]


def parse_output(line: str, code: int | None = None) -> Any:
    """Return the object that a command printed, which must have its documented form.

    ``code`` is how the command ended, for those that have.
    """
    _check_output(line, code)
    return json.loads(line)


@lru_cache(maxsize=256)  # tests look at the same object again and again
def _check_output(line: str, code: int | None) -> None:
    printed = json.loads(line)
    form = printed["schema"]
    problems = find_schema_problems(printed, form)
    assert not problems, f"{form}: {problems}"
    if code is None:
        return
    assert code in read_exit_codes()[form], f"{form} is not documented to end with {code}"
    if "error" in printed and isinstance(printed["error"], dict):
        assert printed["error"]["exit_code"] == code
