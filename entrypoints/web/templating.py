"""The templates of the console. Reports use them too, as static pages in one file."""

from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

import jinja2

from tileferry.domain.text import format_bytes, format_utc, printable
from tileferry.entrypoints.report.markup import Markup

_STYLES = ("console.css", "report.css")


def load_templates(*, is_static: bool = False) -> jinja2.Environment:
    """Return the templates: text is escaped, and a missing variable is an error."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("tileferry.entrypoints.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {"is_static": is_static, "now": lambda: datetime.now(UTC)}
    templates.filters |= {
        "bytes": format_bytes,
        "count": lambda number: f"{number:,}",
        "utc": format_utc,
        "printable": printable,
    }
    return templates


@cache
def _load_static_templates() -> jinja2.Environment:
    templates = load_templates(is_static=True)
    folder = files("tileferry.entrypoints.web") / "static"
    styles = "".join((folder / name).read_text(encoding="utf-8") for name in _STYLES)
    templates.globals["style"] = Markup(styles)
    return templates


def render_static_page(template: str, view: dict[str, object]) -> str:
    """Return a page as one file that loads nothing: no script, no link to the console."""
    return _load_static_templates().get_template(template).render(view)
