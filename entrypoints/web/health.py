"""Health: the checks of the doctor, repeated while the page is open."""

import threading
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from attrs import define, field, frozen
from starlette.responses import Response

from tileferry.domain.health import CheckResult, CheckStatus
from tileferry.entrypoints.cli.doctor import describe_finding, summarize_findings
from tileferry.entrypoints.health import check_health
from tileferry.entrypoints.web.site import Feed, Page, PageRequest, PageRoute

_REPEAT = timedelta(seconds=30)
_LABELS = {
    CheckStatus.OK: "ok",
    CheckStatus.WARNING: "warning",
    CheckStatus.FAILED: "failed",
    CheckStatus.NOT_SEEN: "skipped",
}


@frozen(kw_only=True)
class Finding:
    """One line of the page."""

    subject: str
    status: str
    found: str
    cure: str | None


@define
class HealthMonitor:
    """Runs the checks in its own thread, because one may wait many seconds for a provider."""

    config_file: Path | None = None
    findings: Sequence[CheckResult] = field(default=(), init=False)
    checked_at: datetime | None = field(default=None, init=False)
    _guard: threading.Lock = field(factory=threading.Lock, init=False)
    _is_running: bool = field(default=False, init=False)

    @property
    def is_running(self) -> bool:
        return self._is_running

    def refresh(self) -> None:
        """Start the checks unless they are running or recent."""
        now = datetime.now(UTC)
        with self._guard:
            is_recent = self.checked_at is not None and now - self.checked_at < _REPEAT
            if self._is_running or is_recent:
                return
            self._is_running = True
        threading.Thread(target=self._check, name="health", daemon=True).start()

    def _check(self) -> None:
        found: list[CheckResult] = []
        is_first = self.checked_at is None
        try:
            for result in check_health(self.config_file):
                found.append(result)
                if is_first:
                    self.findings = tuple(found)
        finally:
            self.findings, self.checked_at = tuple(found), datetime.now(UTC)
            self._is_running = False


def show_health(request: PageRequest) -> Response:
    return request.render("health.html", _build_view(request))


def render_findings(request: PageRequest) -> str:
    return request.render_text("_findings.html", _build_view(request))


def _build_view(request: PageRequest) -> dict[str, object]:
    config_file = request.site.settings.config_file
    monitor = request.site.get_state(HealthMonitor, lambda: HealthMonitor(config_file))
    monitor.refresh()
    results = monitor.findings
    counts = Counter(result.verdict for result in results)
    return {
        "title": "Health",
        "summary": summarize_findings(results) if monitor.checked_at else "Checking …",
        "status": _find_worst(counts) if monitor.checked_at else "skipped",
        "checked_at": monitor.checked_at,
        "findings": [_to_finding(result) for result in results],
    }


def _find_worst(counts: Counter[CheckStatus]) -> str:
    for status in (CheckStatus.FAILED, CheckStatus.WARNING):
        if counts[status]:
            return _LABELS[status]
    return _LABELS[CheckStatus.OK]


def _to_finding(result: CheckResult) -> Finding:
    found, cure = describe_finding(result)
    return Finding(subject=result.subject, status=_LABELS[result.verdict], found=found, cure=cure)


PAGE = Page(
    title="Health",
    path="/health",
    routes=(PageRoute("/health", show_health),),
    feeds=(Feed(name="health", render=render_findings, every_s=1.0),),
)
