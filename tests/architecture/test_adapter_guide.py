"""The guide to adding an adapter: its example works, and what it names is there."""

import re
from pathlib import Path
from typing import Any

from tileferry.application.ports import AuditSink

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "_docs/adding-an-adapter.md").read_text(encoding="utf-8")


def test_example_audit_sink_works() -> None:
    made: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(example, "adding-an-adapter.md", "exec"), made)  # noqa: S102  # the page's own
    assert isinstance(made["SyslogAuditSink"](handler=made["Kept"]()), AuditSink)
    assert len(made["kept"]) == 2


def test_paths_named_in_guide_exist() -> None:
    for path in re.findall(r"`((?:application|adapters|entrypoints|tests)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path
