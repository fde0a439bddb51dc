"""Partitions: a calendar of each query, one partition with its history, retries and backfills."""

from calendar import day_name, month_name, monthrange
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from starlette.responses import Response

from tileferry.application.ports.work import PartitionFilter, PartitionQuery
from tileferry.domain.errors import InvalidValueError, NotFoundError, Remedy
from tileferry.domain.partitions import Partition, PartitionKey, PartitionStatus
from tileferry.domain.runs import RunKind
from tileferry.domain.text import printable
from tileferry.domain.tiles import SectorClass
from tileferry.domain.work import AcquirePartition, parse_work
from tileferry.entrypoints.cli.audit_entries import format_entry
from tileferry.entrypoints.cli.state import collect_explanation
from tileferry.entrypoints.cli.work_lines import TERMINAL_REASONS, build_partition_facts
from tileferry.entrypoints.web import partition_changes
from tileferry.entrypoints.web.filters import encode_filters, read_name
from tileferry.entrypoints.web.site import Feed, Page, PageRequest, PageRoute

_PATH = "/partitions"
_QUERIES_MAX = 50
_FAILED_MAX = 20
_AUDIT_MAX = 50
_QUERY_FIELDS = ("source", "customer", "query")
_YEARS = range(1970, 2101)
_STATES = {
    "success": ("ok", "✓", "success"),
    "review": ("warning", "!", "success, needs review"),
    "pending": ("active", "…", "pending"),
    "failed": ("failed", "✗", "failed, will be retried"),
    "terminal": ("failed", "■", "failed, not retried automatically"),
}
"""The colour, symbol and meaning of a day; the symbol carries the meaning without the colour."""


def show_partitions(request: PageRequest) -> Response:
    query = _read_query(request.query)
    if query is not None:
        return _show_calendar(request, query)
    reader = request.installation.work_reader
    after = request.query.get("after")
    found = reader.list_queries(
        after=None if after is None else _parse_query(after), limit=_QUERIES_MAX + 1
    )
    wanted = PartitionFilter(statuses=[PartitionStatus.FAILED])
    failed = list(reader.find_partitions(wanted, limit=_FAILED_MAX))
    now = reader.now()
    return request.render(
        "partitions.html",
        {
            "title": "Partitions",
            "queries": found[:_QUERIES_MAX],
            "first": "" if after else None,
            "next": encode_filters({}, (), after=str(found[_QUERIES_MAX - 1][0]))
            if len(found) > _QUERIES_MAX
            else None,
            "failed": [_describe(request, one, now) for one in failed],
            "failed_max": _FAILED_MAX,
        },
    )


def _show_calendar(request: PageRequest, query: PartitionQuery) -> Response:
    view = _build_calendar(request, query)
    return request.render(
        "partition_calendar.html",
        {
            "title": f"Partitions of {query}",
            "query": query,
            "live_query": encode_filters(request.query, (*_QUERY_FIELDS, "year")),
            "states": _STATES.values(),
            "sectors": [one.value for one in SectorClass],
            "area": _read_area(request, view["newest"]),
            **view,
        },
    )


def render_calendar(request: PageRequest) -> str:
    query = _read_query(request.query)
    if query is None:
        raise InvalidValueError(field="query", value=None, problem="must name a query")
    return request.render_text("_calendar.html", _build_calendar(request, query))


def _build_calendar(request: PageRequest, query: PartitionQuery) -> dict[str, Any]:
    reader = request.installation.work_reader
    year = _read_year(request)
    wanted = PartitionFilter(
        source=query.source,
        customer_id=query.customer_id,
        query_name=query.query_name,
        first=date(year, 1, 1),
        last=date(year, 12, 31),
    )
    found = {one.key.logical_date: one for one in reader.find_partitions(wanted)}
    now = reader.now()
    days = {day: _describe(request, one, now) for day, one in found.items()}
    months = [
        {
            "name": month_name[month],
            "days": [
                (day, days.get(day))
                for day in (
                    date(year, month, number) for number in range(1, monthrange(year, month)[1] + 1)
                )
            ],
        }
        for month in range(1, 13)
    ]
    counts = {
        words: sum(one["meaning"] == words for one in days.values())
        for _, _, words in _STATES.values()
    }
    address = f"{_PATH}?{encode_filters(_to_fields(query), _QUERY_FIELDS)}"
    return {
        "months": months,
        "weekdays": [name[:2] for name in day_name],
        "year": year,
        "counts": counts,
        "address": address,
        "newest": found[max(found)] if found else None,
    }


def _describe(request: PageRequest, partition: Partition, now: datetime) -> dict[str, object]:
    """Return how a partition is shown on one line or in one cell."""
    inspector = request.installation.inspector
    terminal = inspector.find_terminal_reason(partition, now)
    state = "review" if partition.needs_review else partition.status.value
    colour, symbol, meaning = _STATES[state if terminal is None else "terminal"]
    attempts = partition.attempt_count
    parts = [f"{partition.key.logical_date}: {meaning}"]
    if terminal is not None:
        parts.append(TERMINAL_REASONS[terminal])
    parts.append(f"{attempts} attempt{'' if attempts == 1 else 's'}")
    if partition.error_message is not None:
        parts.append(printable(partition.error_message))
    return {
        "partition": partition,
        "colour": colour,
        "symbol": symbol,
        "meaning": meaning,
        "text": ", ".join(parts),
    }


def _read_area(request: PageRequest, newest: Partition | None) -> dict[str, str]:
    """Return the area of a partition's newest run, to fill in the form of a backfill."""
    nothing = {"bbox": "", "zoom": "", "sector": "", "shape": ""}
    if newest is None:
        return nothing
    run = request.installation.inspector.run(newest.last_run_id).run
    try:
        work = parse_work(RunKind.ACQUIRE_PARTITION, run.payload)
    except InvalidValueError:
        return nothing
    assert isinstance(work, AcquirePartition)  # noqa: S101  # the kind of the run
    return {
        "bbox": str(work.area.bbox),
        "zoom": ",".join(map(str, work.area.zoom_levels)),
        "sector": work.area.sector_class.value,
        "shape": "" if work.area.shape is None else str(work.area.shape),
    }


def _read_year(request: PageRequest) -> int:
    value = request.query.get("year", "")
    if not value:
        return request.installation.work_reader.now().year
    if not (value.isascii() and value.isdecimal() and len(value) == 4 and int(value) in _YEARS):  # noqa: PLR2004  # digits of a year
        problem = f"must be a year from {_YEARS[0]} to {_YEARS[-1]}"
        raise InvalidValueError(field="year", value=value, problem=problem)
    return int(value)


def _read_query(fields: Mapping[str, str]) -> PartitionQuery | None:
    names = [read_name(fields, name) for name in _QUERY_FIELDS]
    source, customer, query = names
    if source is None or customer is None or query is None:
        if any(names):
            missing = _QUERY_FIELDS[names.index(None)]
            raise InvalidValueError(field=missing, value="", problem="is missing")
        return None
    return PartitionQuery(source=source, customer_id=customer, query_name=query)


def _parse_query(text: str) -> PartitionQuery:
    parts = text.split("/")
    if len(parts) != len(_QUERY_FIELDS):
        raise InvalidValueError(field="after", value=text, problem="is not a query")
    found = _read_query(dict(zip(_QUERY_FIELDS, parts, strict=True)))
    if found is None:
        raise InvalidValueError(field="after", value=text, problem="is not a query")
    return found


def _to_fields(query: PartitionQuery) -> dict[str, str]:
    values = (query.source, query.customer_id, query.query_name)
    return dict(zip(_QUERY_FIELDS, values, strict=True))


def show_partition(request: PageRequest) -> Response:
    view = _build_partition(request, request.params["key"])
    reader = request.installation.audit_reader
    entries = list(reader.find_about(view["partition"].subject))
    return request.render(
        "partition.html",
        {
            "title": f"Partition {request.params['key']}",
            "entries": [format_entry(one).plain for one in entries[-_AUDIT_MAX:]],
            **view,
        },
    )


def render_partition(request: PageRequest) -> str:
    view = _build_partition(request, request.query.get("partition", ""))
    return request.render_text("_partition.html", view)


def _build_partition(request: PageRequest, key: str) -> dict[str, Any]:
    found = request.installation.inspector.find_partition(PartitionKey.parse(key))
    if found is None:
        raise NotFoundError(what="partition", name=key, remedy=Remedy.LIST_PARTITIONS)
    partition = found.partition
    query = PartitionQuery(
        source=partition.key.source,
        customer_id=partition.key.customer_id,
        query_name=partition.key.query_name,
    )
    year = str(partition.key.logical_date.year)
    return {
        **_describe(request, partition, found.now),
        "query": query,
        "calendar": f"{_PATH}?{encode_filters(_to_fields(query), _QUERY_FIELDS, year=year)}",
        "story": collect_explanation(request.installation, found),
        "facts": build_partition_facts(found),
        "verdicts": found.verdicts,
        "newest": found.newest,
        "can_retry": partition.active_run_id is None and found.has_raw,
        "can_mark": partition.status is PartitionStatus.FAILED
        and partition.terminal_marker is None,
    }


PAGE = Page(
    title="Partitions",
    path=_PATH,
    routes=(
        PageRoute(_PATH, show_partitions),
        PageRoute(f"{_PATH}/{{key:path}}", show_partition),
        *partition_changes.ROUTES,
    ),
    feeds=(
        Feed(name="partitions", render=render_calendar),
        Feed(name="partition", render=render_partition, every_s=1.0),
    ),
)
