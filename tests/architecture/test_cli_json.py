"""What commands print for scripts: every form has a file, a row and an example, and holds."""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.contracts import (
    COMMON_SCHEMA,
    ROOT,
    find_schema_problems,
    list_schemas,
    load_schemas,
    read_exit_codes,
    read_schema_table,
)

from tileferry.domain.archives import ArchiveFormat
from tileferry.domain.audit import (
    EVENT_KINDS,
    ChainProblem,
    IdempotencyAction,
    IdempotencyOutcome,
)
from tileferry.domain.health import CheckStatus
from tileferry.domain.partitions import (
    BackfillAction,
    PartitionGiveUpReason,
    PartitionStatus,
    SkipReason,
)
from tileferry.domain.retry import BackoffKind, GiveUpReason, RetryReason
from tileferry.domain.runs import (
    ERROR_CODES,
    AttemptOutcome,
    RunKind,
    RunPriority,
    RunStatus,
    VerdictOutcome,
)
from tileferry.domain.tiles import (
    DownloadOutcome,
    Flaw,
    FlightStatus,
    SectorClass,
    TileUploadStatus,
    UploadOutcome,
)
from tileferry.entrypoints.cli.exit_codes import ExitCode
from tileferry.entrypoints.cli.tree import iter_commands
from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.config.policies import list_policies
from tileferry.entrypoints.provider.faults import Call

_FORM = re.compile(r"tileferry\.[a-z_.]+\.v\d+")


def test_every_schema_in_code_has_file_and_table_row() -> None:
    code = {
        form
        for file in (ROOT / "entrypoints").rglob("*.py")
        for form in _FORM.findall(file.read_text(encoding="utf-8"))
    }
    assert sorted(code) == sorted(list_schemas()) == sorted(read_exit_codes())


def test_table_lists_exactly_the_commands() -> None:
    named = {
        words
        for commands, *_ in read_schema_table()
        for words in re.findall(r"`([a-z][a-z -]*)`", commands)
        if not words.startswith("--")
    }
    assert named == {" ".join(words) for words, _ in iter_commands()}


def test_every_command_has_json_option() -> None:
    without = [
        words
        for words, command in iter_commands()
        if not any("--json" in p.opts for p in command.params)
    ]
    assert without == []


def test_table_exit_codes_are_valid() -> None:
    assert set().union(*read_exit_codes().values()) == set(ExitCode)
    assert read_exit_codes()["tileferry.error.v1"] == set(ExitCode) - {0, 130}


# The files


@pytest.mark.parametrize("name", load_schemas())
def test_schema_file_is_valid_and_describes_every_key(name: str) -> None:
    document = load_schemas()[name]
    Draft202012Validator.check_schema(document)
    assert document["$id"] == name
    assert document["title"]
    if name != COMMON_SCHEMA:
        assert document["properties"]["schema"]["const"] == name.removesuffix(".json")
        assert next(iter(document["properties"])) == "schema"
    keys = [*_keys(document)]
    assert [key for key, about in keys if not about.get("description")] == []
    assert all(len(about["description"]) < 100 for _, about in keys)


@pytest.mark.parametrize("name", load_schemas())
def test_schema_objects_are_closed_unless_listed(name: str) -> None:
    free = {"payload", "additional_context", "value"}  # what others put there
    shared = {"retry_policy", "audit_event", "audit_entry", "run", "partition"}  # closed where used
    assert set(_open_objects(load_schemas()[name])) <= free | (
        shared if name == COMMON_SCHEMA else set()
    )


@pytest.mark.parametrize("form", list_schemas())
def test_schema_example_is_valid_and_exact(form: str) -> None:
    (example,) = load_schemas()[f"{form}.json"]["examples"]
    assert find_schema_problems(example, form) == []
    assert find_schema_problems({**example, "surprise": 1}, form)
    for key in example.keys() - _optional_keys(form):
        assert find_schema_problems(
            {name: one for name, one in example.items() if name != key}, form
        ), key
        other = [None] if isinstance(example[key], dict) else {"of": "another type"}
        assert find_schema_problems({**example, key: other}, form), key


def _optional_keys(form: str) -> set[str]:
    document = load_schemas()[f"{form}.json"]
    return set(document["properties"]) - set(document["required"])


def test_optional_keys_are_the_documented_ones() -> None:
    optional = {
        key
        for document in load_schemas().values()
        for node in _objects(document)
        for key in set(node["properties"]) - set(node.get("required", []))
    }
    assert optional == {
        *{"error", "why", "audit", "attribution", "license"},
        *{"areas", "more"},  # of several areas
        *{"additional_context", "retry_after_s"},  # of the audit log's events
        *{
            "policy_name",
            "function_version",
            "budget_wait_s",
            "outcome",
        },  # of the same; older entries lack them
        *{"complete", "lost_events", "gaps", "undelivered"},  # older versions lack them
    }


# Values


def _values(kind: type[Enum]) -> list[Any]:
    return [one.value for one in kind]


CODES = [code.value for code in ExitCode if code is not ExitCode.DONE]
POLICIES = list(list_policies(load_config(None)))


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("common.json run.kind", _values(RunKind)),
        ("common.json run.status", _values(RunStatus)),
        ("common.json run.priority", [one.name.lower() for one in RunPriority]),
        ("common.json run.error_class", [*ERROR_CODES, None]),
        ("common.json run_attempt.outcome", _values(AttemptOutcome)),
        ("common.json partition.status", _values(PartitionStatus)),
        ("common.json retry_policy.backoff", _values(BackoffKind)),
        ("common.json error.exit_code", CODES),
        ("tileferry.runs.why.v1.json status", _values(RunStatus)),
        (
            "tileferry.state.inspect.v1.json terminal_reason",
            [*_values(PartitionGiveUpReason), None],
        ),
        ("tileferry.state.inspect.v1.json verdicts.outcome", _values(VerdictOutcome)),
        (
            "tileferry.state.terminal.v1.json partitions.terminal_reason",
            _values(PartitionGiveUpReason),
        ),
        ("tileferry.download.v1.json outcome", _values(DownloadOutcome)),
        ("tileferry.upload.v1.json outcome", _values(UploadOutcome)),
        ("tileferry.upload.v1.json per_tile_status.status", _values(TileUploadStatus)),
        ("tileferry.cache.readiness.v1.json sector_class", _values(SectorClass)),
        ("tileferry.cache.readiness.v1.json examples.kind", _values(Flaw)),
        ("tileferry.flight.show.v1.json status", _values(FlightStatus)),
        ("tileferry.flight.show.v1.json areas.sector_class", _values(SectorClass)),
        ("tileferry.cache.export.v1.json format", _values(ArchiveFormat)),
        ("tileferry.cache.import.v1.json format", _values(ArchiveFormat)),
        ("tileferry.audit.verify.v1.json problem", [*_values(ChainProblem), None]),
        ("tileferry.policy.explain.v1.json category", POLICIES),
        ("tileferry.policy.explain.v1.json error", [*ERROR_CODES]),
        ("tileferry.policy.explain.v1.json ends_by", _values(GiveUpReason)),
        ("tileferry.policy.explain.v1.json waits.reason", _values(RetryReason)),
        ("tileferry.policy.simulate.v1.json category", POLICIES),
        ("tileferry.doctor.v1.json findings.verdict", _values(CheckStatus)),
    ],
)
def test_schema_enums_match_domain(place: str, values: list[Any]) -> None:
    file, _, path = place.partition(" ")
    assert _get_node(load_schemas()[file], path.split("."))["enum"] == values


def test_schema_count_keys_match_domain() -> None:
    plan, listed = load_schemas()["tileferry.backfill.plan.v1.json"], "tileferry.runs.list.v1.json"
    assert [*_get_node(plan, ["actions"])["properties"]] == _values(BackfillAction)
    assert _get_node(plan, ["skipped"])["propertyNames"]["enum"] == _values(SkipReason)
    assert [*_get_node(load_schemas()[listed], ["counts"])["properties"]] == _values(RunStatus)
    coverage = load_schemas()["tileferry.coverage.v1.json"]
    assert [*_get_node(coverage, ["zooms", "stale"])["properties"]] == _values(SectorClass)
    shown = load_schemas()["tileferry.policy.show.v1.json"]
    assert _get_node(shown, ["categories"])["propertyNames"]["enum"] == POLICIES
    faults = load_schemas()["tileferry.provider.faults.v1.json"]
    assert _get_node(faults, ["faults", "calls"])["items"]["enum"] == _values(Call)


def test_schema_events_match_domain() -> None:
    events = load_schemas()[COMMON_SCHEMA]["$defs"]["audit_event"]["oneOf"]
    assert [one["properties"]["event_type"]["const"] for one in events] == [*EVENT_KINDS]
    action = events[[*EVENT_KINDS].index("idempotency")]["properties"]["action"]
    assert action["enum"] == _values(IdempotencyAction)
    outcome = events[[*EVENT_KINDS].index("idempotency")]["properties"]["outcome"]
    assert outcome["enum"] == _values(IdempotencyOutcome)
    retry, give_up = load_schemas()[COMMON_SCHEMA]["$defs"]["decision"]["oneOf"]
    assert retry["properties"]["reason"]["enum"] == _values(RetryReason)
    assert give_up["properties"]["reason"]["enum"] == _values(GiveUpReason)


# Walking through a schema


def _get_node(document: Mapping[str, Any], path: Iterable[str]) -> Any:
    node: Any = {"properties": document.get("$defs", {})} if "$defs" in document else document
    for key in path:
        node = node.get("items", node)["properties"][key]
    return node


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema within a schema; examples are none."""
    if not isinstance(node, dict):
        return
    yield node
    for group in ("properties", "$defs"):
        for below in node.get(group, {}).values():
            yield from _nodes(below)
    for below in (node.get("items"), node.get("additionalProperties")):
        yield from _nodes(below)
    for below in (*node.get("anyOf", []), *node.get("oneOf", [])):
        yield from _nodes(below)


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    return (node for node in _nodes(document) if "properties" in node)


def _keys(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in _objects(document):
        yield from node["properties"].items()


def _open_objects(document: Any) -> Iterator[str]:
    """Yield the names of objects to which anything may be added."""
    named = {id(node): key for key, node in _keys(document)}
    named |= {id(node): key for key, node in document.get("$defs", {}).items()}
    for node in _nodes(document):
        is_object = "object" in [*_to_list(node.get("type"))]
        closed = {"additionalProperties", "unevaluatedProperties"} & node.keys()
        if is_object and not closed:
            yield named.get(id(node), "")


def _to_list(types: Any) -> list[str]:
    return [types] if isinstance(types, str) else types or []
