"""How much the cache holds, and what limits it."""

from pathlib import Path

from tileferry.domain.text import in_bytes
from tileferry.entrypoints.cli.output import facts, opened_books, people, print_json
from tileferry.entrypoints.holding import make_folder


def counted(config: Path | None, *, json: bool) -> None:
    """Show the cache's books beside the disk that it lies on."""
    with opened_books(config) as container:
        make_folder(Path(container.cache_root()))
        budget = container.budget_enforcer()
        ledger = container.cache_ledger()
        with ledger.exclusively() as books:
            used, reserved = books.used_bytes(), books.reserved_bytes()
        body = {
            "cache_root": str(container.cache_root()),
            "tiles": container.metadata_store().count(),
            "used_bytes": used,
            "reserved_bytes": reserved,
            "budget_bytes": budget.budget_bytes,
            "free_disk_bytes": container.disk().free_bytes(),
            "free_space_reserve_bytes": budget.free_space_reserve_bytes,
            "pinned_flights": (pinned := list(ledger.pinned_flights())),
        }
    if json:
        print_json("tileferry.cache.stats.v1", body)
        return
    shown = {
        name.removesuffix("_bytes").replace("_", " "): in_bytes(value)
        if name.endswith("_bytes") and isinstance(value, int)
        else value
        for name, value in body.items()
    }
    shown["pinned flights"] = ", ".join(pinned) or "none"
    people.print(facts("Cache", shown))
