"""``python -m benchmarks [part …]``: measure, print a table, write ``build/bench.json``."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
from rich.console import Console
from rich.table import Table

from benchmarks import (
    audit,
    cache,
    download,
    export,
    idempotency,
    link,
    memory,
    pages,
    queue,
    retry,
    startup,
    upload,
)
from benchmarks.harness import Ratio

PARTS: dict[str, Callable[[], Iterator[Ratio]]] = {
    "startup": startup.run,
    "retry": retry.run,
    "cache": cache.run,
    "audit": audit.run,
    "idempotency": idempotency.run,
    "download": download.run,
    "upload": upload.run,
    "queue": queue.run,
    "export": export.run,
    "pages": pages.run,
    "memory": memory.run,
    "link": link.run,
}
REPORT = Path("build/bench.json")


def table_of(ratios: list[Ratio]) -> Table:
    """Lay the results out for a terminal."""
    table = Table(title="tileferry against its peers, medians of one run")
    for heading in ("name", "ratio", "goal", ""):
        table.add_column(heading, justify="right" if heading in {"ratio", "goal"} else "left")
    for item in ratios:
        goal = f"{'≥' if item.at_least else '≤'} {item.goal:g}"
        name = f"{item.name}\n[dim]{item.detail}[/dim]" if item.detail else item.name
        table.add_row(name, f"{item.ratio:.2f}", goal, "met" if item.met else "[red]missed[/red]")
    return table


def main(names: list[str]) -> int:
    """Run the named parts, or all."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no benchmark named {unknown[0]}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    ratios = [ratio for name in names or PARTS for ratio in PARTS[name]()]
    Console().print(table_of(ratios))
    REPORT.parent.mkdir(exist_ok=True)
    lines = [{**attrs.asdict(ratio), "met": ratio.met} for ratio in ratios]
    REPORT.write_text(
        json.dumps({"version": 1, "ratios": lines}, indent=2) + "\n", encoding="utf-8"
    )
    return 0 if all(ratio.met for ratio in ratios) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
