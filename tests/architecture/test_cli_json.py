"""What commands print for scripts: every form has a file, a row and an example, and holds."""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.contract_pages import ROOT
from support.json_forms import COMMON, documents, exit_codes, forms, problems_of, rows

from tileferry.domain.archives import ArchiveFormat
from tileferry.domain.audit import EVENT_KINDS, ChainProblem, IdempotencyAction
from tileferry.domain.health import Verdict
from tileferry.domain.partitions import BackfillAction, GivenUp, PartitionStatus, SkipReason
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
    SectorClass,
    TileUploadStatus,
    UploadOutcome,
)
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.tree import leaves
from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.config.policies import named_policies
from tileferry.entrypoints.provider.faults import Call

_FORM = re.compile(r"tileferry\.[a-z_.]+\.v\d+")


def test_every_form_in_the_code_has_its_file_and_its_row() -> None:
    code = {
        form
        for file in (ROOT / "entrypoints").rglob("*.py")
        for form in _FORM.findall(file.read_text(encoding="utf-8"))
    }
    assert sorted(code) == sorted(forms()) == sorted(exit_codes())


def test_every_command_is_in_the_table_and_no_other() -> None:
    named = {
        words
        for commands, *_ in rows()
        for words in re.findall(r"`([a-z][a-z -]*)`", commands)
        if not words.startswith("--")
    }
    assert named == {" ".join(words) for words, _ in leaves()}


def test_every_command_has_the_option() -> None:
    without = [
        words for words, command in leaves() if not any("--json" in p.opts for p in command.params)
    ]
    assert without == []


def test_the_exit_codes_of_the_table_are_exit_codes() -> None:
    assert set().union(*exit_codes().values()) == set(ExitCode)
    assert exit_codes()["tileferry.error.v1"] == set(ExitCode) - {0, 130}


# The files


@pytest.mark.parametrize("name", documents())
def test_a_file_is_a_schema_by_its_own_name_and_describes_every_key(name: str) -> None:
    document = documents()[name]
    Draft202012Validator.check_schema(document)
    assert document["$id"] == name
    assert document["title"]
    if name != COMMON:
        assert document["properties"]["schema"]["const"] == name.removesuffix(".json")
        assert next(iter(document["properties"])) == "schema"
    keys = [*_keys(document)]
    assert [key for key, about in keys if not about.get("description")] == []
    assert all(len(about["description"]) < 100 for _, about in keys)


@pytest.mark.parametrize("name", documents())
def test_a_file_leaves_no_object_open_but_those_that_are(name: str) -> None:
    free = {"payload", "additional_context", "value"}  # what others put there
    shared = {"retry_policy", "audit_event", "audit_entry", "run", "partition"}  # closed where used
    assert set(_open_objects(documents()[name])) <= free | (shared if name == COMMON else set())


@pytest.mark.parametrize("form", forms())
def test_the_example_of_a_form_holds_and_nothing_can_be_added_or_left_out(form: str) -> None:
    (example,) = documents()[f"{form}.json"]["examples"]
    assert problems_of(example, form) == []
    assert problems_of({**example, "surprise": 1}, form)
    for key in example.keys() - _optional(form):
        assert problems_of({name: one for name, one in example.items() if name != key}, form), key
        other = [None] if isinstance(example[key], dict) else {"of": "another type"}
        assert problems_of({**example, key: other}, form), key


def _optional(form: str) -> set[str]:
    document = documents()[f"{form}.json"]
    return set(document["properties"]) - set(document["required"])


def test_keys_that_may_be_missing_are_those_the_page_names() -> None:
    optional = {
        key
        for document in documents().values()
        for node in _objects(document)
        for key in set(node["properties"]) - set(node.get("required", []))
    }
    assert optional == {
        *{"error", "why", "audit", "attribution"},
        *{"additional_context", "retry_after_s"},  # of the audit log's events
    }


# Values


def _values(kind: type[Enum]) -> list[Any]:
    return [one.value for one in kind]


CODES = [code.value for code in ExitCode if code is not ExitCode.DONE]
POLICIES = list(named_policies(load_config(None)))


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
        ("tileferry.state.inspect.v1.json terminal_reason", [*_values(GivenUp), None]),
        ("tileferry.state.inspect.v1.json verdicts.outcome", _values(VerdictOutcome)),
        ("tileferry.state.terminal.v1.json partitions.terminal_reason", _values(GivenUp)),
        ("tileferry.download.v1.json outcome", _values(DownloadOutcome)),
        ("tileferry.upload.v1.json outcome", _values(UploadOutcome)),
        ("tileferry.upload.v1.json per_tile_status.status", _values(TileUploadStatus)),
        ("tileferry.cache.readiness.v1.json sector_class", _values(SectorClass)),
        ("tileferry.cache.readiness.v1.json examples.kind", _values(Flaw)),
        ("tileferry.cache.export.v1.json format", _values(ArchiveFormat)),
        ("tileferry.cache.import.v1.json format", _values(ArchiveFormat)),
        ("tileferry.audit.verify.v1.json problem", [*_values(ChainProblem), None]),
        ("tileferry.policy.explain.v1.json category", POLICIES),
        ("tileferry.policy.explain.v1.json error", [*ERROR_CODES]),
        ("tileferry.policy.explain.v1.json ends_by", _values(GiveUpReason)),
        ("tileferry.policy.explain.v1.json waits.reason", _values(RetryReason)),
        ("tileferry.policy.simulate.v1.json category", POLICIES),
        ("tileferry.doctor.v1.json findings.verdict", _values(Verdict)),
    ],
)
def test_values_are_those_of_the_domain(place: str, values: list[Any]) -> None:
    file, _, path = place.partition(" ")
    assert _at(documents()[file], path.split("."))["enum"] == values


def test_counted_kinds_are_those_of_the_domain() -> None:
    plan, listed = documents()["tileferry.backfill.plan.v1.json"], "tileferry.runs.list.v1.json"
    assert [*_at(plan, ["actions"])["properties"]] == _values(BackfillAction)
    assert _at(plan, ["skipped"])["propertyNames"]["enum"] == _values(SkipReason)
    assert [*_at(documents()[listed], ["counts"])["properties"]] == _values(RunStatus)
    coverage = documents()["tileferry.coverage.v1.json"]
    assert [*_at(coverage, ["zooms", "stale"])["properties"]] == _values(SectorClass)
    shown = documents()["tileferry.policy.show.v1.json"]
    assert _at(shown, ["categories"])["propertyNames"]["enum"] == POLICIES
    faults = documents()["tileferry.provider.faults.v1.json"]
    assert _at(faults, ["faults", "calls"])["items"]["enum"] == _values(Call)


def test_events_are_those_of_the_domain() -> None:
    events = documents()[COMMON]["$defs"]["audit_event"]["oneOf"]
    assert [one["properties"]["event_type"]["const"] for one in events] == [*EVENT_KINDS]
    action = events[[*EVENT_KINDS].index("idempotency")]["properties"]["action"]
    assert action["enum"] == _values(IdempotencyAction)
    retry, give_up = documents()[COMMON]["$defs"]["decision"]["oneOf"]
    assert retry["properties"]["reason"]["enum"] == _values(RetryReason)
    assert give_up["properties"]["reason"]["enum"] == _values(GiveUpReason)


# Walking through a schema


def _at(document: Mapping[str, Any], path: Iterable[str]) -> Any:
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
        is_object = "object" in [*_listed(node.get("type"))]
        closed = {"additionalProperties", "unevaluatedProperties"} & node.keys()
        if is_object and not closed:
            yield named.get(id(node), "")


def _listed(types: Any) -> list[str]:
    return [types] if isinstance(types, str) else types or []
