"""The architecture page matches the state machines, the layout and the code on its paths."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tileferry.domain.partitions import PARTITION_TRANSITIONS
from tileferry.domain.runs import RUN_TRANSITIONS
from tileferry.domain.state_machine import Transition

PAGE = (Path(__file__).parents[2] / "_docs/architecture.md").read_text(encoding="utf-8")


def format_row(transition: Transition[Any]) -> str:
    moves = ", ".join(f"{source or 'absent'} → {target}" for source, target in transition.moves)
    actors = ", ".join(
        f"{actor} (says why)" if actor in transition.reason_from else str(actor)
        for actor in transition.actors
    )
    return f"| {transition.name} | {moves} | {actors} |"


MACHINES: list[tuple[str, Sequence[Transition[Any]]]] = [
    ("run", RUN_TRANSITIONS),
    ("partition", PARTITION_TRANSITIONS),
]


@pytest.mark.parametrize(("name", "transitions"), MACHINES)
def test_documented_transition_table_matches_code(
    name: str, transitions: Sequence[Transition[Any]]
) -> None:
    table = PAGE.split(f"<!-- {name} transitions -->")[1].split("<!-- end -->")[0]
    rows = table.strip().splitlines()[2:]
    assert rows == [format_row(transition) for transition in transitions]


@pytest.mark.parametrize(("name", "transitions"), MACHINES)
def test_state_diagram_matches_declared_transitions(
    name: str, transitions: Sequence[Transition[Any]]
) -> None:
    drawing = PAGE.split(f"<!-- {name} transitions -->")[0].rsplit("```mermaid", maxsplit=1)[1]
    drawn = set(re.findall(r"(\S+) --> (\S+?):", drawing))
    declared = {
        (str(source) if source else "[*]", str(target))
        for transition in transitions
        for source, target in transition.moves
    }
    moves = {(source, target) for source, target in declared if source != target}
    assert moves <= drawn
    assert drawn <= declared


@pytest.mark.parametrize("layer", ["domain", "application", "adapters", "entrypoints"])
def test_layout_names_every_package_and_module(layer: str) -> None:
    layout = PAGE.split("## Layout")[1].split("```")[1]
    block = re.split(r"\n(?=[a-z]+/ )", layout.split(f"\n{layer}/ ")[1])[0]
    folder = Path(__file__).parents[2] / layer
    rooms = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert all(f"\n  {room}/" in block for room in rooms), rooms
    assert modules <= set(re.findall(r"[a-z_]+", block)), modules


@pytest.mark.parametrize("name", ["download", "upload", "run"])
def test_every_hop_names_code_in_its_file(name: str) -> None:
    table = PAGE.split(f"<!-- hops: {name} -->")[1].split("<!-- end -->")[0]
    rows = [row.strip("| ").split(" | ") for row in table.strip().splitlines()[2:]]
    assert [int(number) for number, *_ in rows] == [*range(1, len(rows) + 1)]
    for _, _, names, file in rows:
        source = (Path(__file__).parents[2] / file.strip("`")).read_text(encoding="utf-8")
        for part in re.findall(r"\w+", names):
            assert re.search(rf"^ *(?:class|def) {part}\b", source, re.MULTILINE), (part, file)
