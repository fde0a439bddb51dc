"""``tileferry pack`` and ``push``: the tiles and the verdict of a flight on another machine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from attrs import evolve
from support.backup_env import create_restored, list_rows
from support.crash_processes import SOAK_FACTOR
from support.download_env import DERKACHI, ZOOM
from support.download_operator import DOWNLOAD, DownloadOperator
from support.scripted_provider import ScriptedProvider, tile_content, tile_path

from tileferry.application import packs
from tileferry.domain.tiles import TileCoverage

REFUSED, USAGE, UNREACHABLE = 4, 2, 7
SSH = """#!{python}
import os, shlex, subprocess, sys
destination, command = sys.argv[-2:]
if destination != "pilot@aircraft":
    sys.exit("ssh: Could not resolve hostname")
environment = {{**os.environ, **{environment!r}}}
words = shlex.split(command)[1:]
sys.exit(subprocess.call([*{tileferry!r}, *words], env=environment, cwd={home!r}))
"""
"""Stands for ssh: runs the command as the other operator."""


AREA = TileCoverage(bbox=DERKACHI, zoom_levels=[ZOOM])


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider.for_area(DERKACHI, ZOOM, AREA.count)


@pytest.fixture
def aircraft(operator: DownloadOperator, tmp_path: Path) -> Iterator[DownloadOperator]:
    with create_restored(operator, tmp_path / "aircraft") as other:
        assert other.run_in_process("db", "upgrade").code == 0
        key = operator.run_in_process("pack", "key").out.strip()
        other.settings["TILEFERRY_PACK_TRUSTED_KEYS"] = key
        yield other


@pytest.fixture
def _downloaded(operator: DownloadOperator) -> None:
    assert operator.run_in_process(*DOWNLOAD).code == 0
    assert operator.run_in_process("flight", "pin", "F1").code == 0


def create(operator: DownloadOperator, name: str, *options: str) -> Any:
    ran = operator.run_in_process("pack", "create", name, "--flight", "F1", "--json", *options)
    assert ran.code in {0, 3}, ran
    return ran.json


def apply(other: DownloadOperator, path: Path) -> Any:
    ran = other.run_in_process("pack", "apply", str(path), "--json")
    assert ran.code == 0, ran
    return ran.json


@pytest.mark.usefixtures("_downloaded")
def test_applied_pack_has_the_same_verdict_and_is_idempotent(
    operator: DownloadOperator, aircraft: DownloadOperator
) -> None:
    created = create(operator, "F1.pack")
    assert (created["tiles"], created["verdict"], created["complete"]) == (AREA.count, "GO", True)
    path = operator.home / "F1.pack"
    assert path.stat().st_size <= 1.05 * int(str(created["bytes_packed"])) + AREA.count * 400
    applied = apply(aircraft, path)
    assert (applied["tiles_imported"], applied["verdict"], applied["verdict_at_origin"]) == (
        AREA.count,
        "GO",
        "GO",
    )
    assert list_rows(aircraft) == list_rows(operator)
    assert "pinned" in aircraft.run_in_process("flight", "show", "F1").out
    assert aircraft.run_in_process("cache", "verify", "--flight", "F1").code == 0
    again = apply(aircraft, path)
    assert (again["tiles_imported"], again["tiles_unchanged"]) == (0, AREA.count)
    entries = aircraft.run_in_process("audit", "tail", "--json").out
    assert str(created["sha256"]) in entries


@pytest.mark.usefixtures("_downloaded")
def test_every_flipped_byte_is_refused(
    operator: DownloadOperator, aircraft: DownloadOperator
) -> None:
    create(operator, "F1.pack")
    path = operator.home / "F1.pack"
    whole = path.read_bytes()
    places = [0, 1, len(whole) - 1, len(whole) - 40, len(whole) - 180, whole.index(b"\n")]
    chance = Random(1)  # noqa: S311  # which bytes are flipped
    for place in [*places, *(chance.randrange(len(whole)) for _ in range(10 * SOAK_FACTOR))]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        ran = aircraft.run_in_process("pack", "apply", str(path))
        assert ran.code == REFUSED, (place, ran)
    for cut in (whole[:-1], whole[:5_000], b"", whole + b"x"):
        path.write_bytes(cut)
        assert aircraft.run_in_process("pack", "apply", str(path)).code == REFUSED
    assert list_rows(aircraft) == []
    assert aircraft.run_in_process("flight", "list", "--json").json["flights"] == []


@pytest.mark.usefixtures("_downloaded")
def test_pack_of_an_unknown_key_is_refused(
    operator: DownloadOperator, aircraft: DownloadOperator
) -> None:
    create(operator, "F1.pack")
    stranger = evolve(aircraft, settings={})
    ran = stranger.run_in_process("pack", "apply", str(operator.home / "F1.pack"))
    assert (ran.code, "pack.trusted_keys" in ran.err) == (REFUSED, True)
    assert list_rows(aircraft) == []


@pytest.mark.usefixtures("_downloaded")
def test_delta_has_only_what_is_missing(
    operator: DownloadOperator, aircraft: DownloadOperator, provider: ScriptedProvider
) -> None:
    create(operator, "1.pack")
    apply(aircraft, operator.home / "1.pack")
    other = provider.tiles[4]
    provider.always[tile_path(provider.tiles[3])] = lambda _: httpx.Response(
        200,
        content=tile_content(other),
        headers={
            "content-type": "image/png",
            "x-resolution-m-per-px": "0.6",
            "x-produced-at": provider.produced_at,
        },
    )
    assert operator.run_in_process(*DOWNLOAD, "--again").code == 0
    delta = create(operator, "2.pack", "--since", "1.pack")
    assert (delta["tiles"], delta["tiles_known"]) == (1, AREA.count - 1)
    inventory = aircraft.run_in_process("pack", "inventory", "have.pack", "--flight", "F1")
    assert inventory.code == 0
    same = create(operator, "3.pack", "--since", str(aircraft.home / "have.pack"))
    assert (same["tiles"], same["bytes_packed"]) == (1, delta["bytes_packed"])
    assert apply(aircraft, operator.home / "2.pack")["tiles_imported"] == 1
    refused = aircraft.run_in_process("pack", "apply", "have.pack")
    assert (refused.code, "is an inventory" in refused.err) == (REFUSED, True)


@pytest.mark.usefixtures("_downloaded")
def test_large_flight_is_split_into_packs(
    operator: DownloadOperator, aircraft: DownloadOperator
) -> None:
    options: list[str] = []
    for number in range(1, 21):
        name = f"{number}.pack"
        created = create(operator, name, "--max-size", "30k", *options)
        options += ["--since", name]
        aircraft.run_in_process("pack", "apply", str(operator.home / name))
        if created["complete"]:
            break
    assert 1 < number < 20
    assert list_rows(aircraft) == list_rows(operator)
    assert aircraft.run_in_process("cache", "verify", "--flight", "F1").code == 0


@pytest.fixture
def _ssh(aircraft: DownloadOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        SSH.format(
            python=sys.executable,
            environment=aircraft.environment,
            tileferry=aircraft.command(),
            home=str(aircraft.home),
        )
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("_downloaded", "_ssh")
def test_push_sends_what_is_missing(
    operator: DownloadOperator, aircraft: DownloadOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "PUSH_BYTES_MAX", 60_000)
    ran = operator.run_in_process("push", "pilot@aircraft", "--flight", "F1", "--json")
    assert ran.code == 0, ran
    assert (ran.json["verdict"], ran.json["tiles_imported"]) == ("GO", AREA.count)
    assert ran.json["packs"] > 1
    assert list_rows(aircraft) == list_rows(operator)
    again = operator.run_in_process("push", "pilot@aircraft", "--flight", "F1")
    assert (again.code, "verdict there" in again.out) == (0, True)
    lost = operator.run_in_process("push", "pilot@nowhere", "--flight", "F1")
    assert (lost.code, "Could not resolve hostname" in lost.err) == (UNREACHABLE, True)


@pytest.mark.usefixtures("_downloaded")
def test_export_of_a_flight_has_its_areas(operator: DownloadOperator) -> None:
    ran = operator.run_in_process("cache", "export", "F1.mbtiles", "--flight", "F1", "--json")
    assert (ran.code, ran.json["tiles_exported"]) == (0, AREA.count)
    both = operator.run_in_process("cache", "export", "x.mbtiles", "--flight", "F1", "--zoom", "15")
    assert (both.code, "their own zoom levels" in both.err) == (USAGE, True)


@pytest.mark.usefixtures("_downloaded")
def test_bad_input_is_explained(operator: DownloadOperator) -> None:
    unknown = operator.run_in_process("pack", "create", "x.pack", "--flight", "F9")
    assert (unknown.code, "flight list" in unknown.err) == (USAGE, True)
    both = operator.run_in_process("pack", "inventory", "x.pack")
    assert (both.code, "--like" in both.err) == (USAGE, True)
    size = operator.run_in_process(
        "pack", "create", "x.pack", "--flight", "F1", "--max-size", "huge"
    )
    assert (size.code, "--max-size" in size.err) == (USAGE, True)
    (operator.home / "notes").write_text("mine")
    kept = operator.run_in_process("pack", "create", "notes", "--flight", "F1", "--replace")
    assert (kept.code, (operator.home / "notes").read_text()) == (REFUSED, "mine")
    missing = operator.run_in_process(
        "pack", "create", "x.pack", "--flight", "F1", "--since", "none.pack"
    )
    assert (missing.code, "none.pack: is not a file" in missing.err) == (REFUSED, True)
    assert not (operator.home / "x.pack").exists()


@pytest.mark.parametrize("command", ["", "'tileferry"])
def test_command_that_cannot_be_split_is_refused(operator: DownloadOperator, command: str) -> None:
    ran = operator.run_in_process("push", "a@b", "--flight", "F1", "--remote-command", command)
    assert (ran.code, "is empty or has an open quote" in ran.err) == (USAGE, True), ran
