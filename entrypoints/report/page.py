"""A page for people, in one file: its style and its parts. It follows the reader's light or dark
theme, and the browser loads nothing.

The colours are those of Okabe and Ito, which are distinguishable with any kind of colour vision.
"""

from collections.abc import Mapping, Sequence

from tileferry.entrypoints.report.markup import Markup, element, escape_text

STYLE = Markup("""
:root {
  --ground: #fbfbf9; --raised: #ffffff; --text: #1d2327; --quiet: #59636b; --rule: #d5dade;
  --blue: #0072b2; --green: #009e73; --orange: #e69f00; --red: #d55e00; --purple: #cc79a7;
  --sky: #56b4e9; --black: #444c52; --mark: #ffffff; --missing: #8a949c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14181b; --raised: #1d2327; --text: #e8ebed; --quiet: #a3adb5; --rule: #3a434a;
    --blue: #3d9bd6; --green: #1fb88c; --orange: #f0b429; --red: #ef7d3b; --purple: #d99abd;
    --sky: #7cc6f0; --black: #c3cad0; --mark: #14181b; --missing: #76828b;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 4rem; background: var(--ground);
  color: var(--text); font: 16px/1.5 system-ui, "Liberation Sans", sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 0 0 .75rem; }
header p { margin: 0 0 1.5rem; max-width: 46rem; color: var(--quiet); }
section {
  background: var(--raised); border: 1px solid var(--rule); border-radius: .5rem;
  padding: 1rem 1.1rem; margin: 0 0 1rem; break-inside: avoid; min-width: 0;
}
section > p { margin: 0 0 .6rem; }
.quiet { color: var(--quiet); font-size: .875rem; }
code { font-size: .85em; overflow-wrap: anywhere; }

.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem;
  margin: 0 0 1rem;
}
.figures > div {
  background: var(--raised); border: 1px solid var(--rule); border-radius: .5rem; padding: .8rem;
  break-inside: avoid;
}
.figures > div:first-child { border-color: var(--green); border-width: 2px; }
dt { font-size: .875rem; }
dd { margin: 0; }
dd.value { font-size: 1.75rem; font-weight: 650; line-height: 1.2; }

.timeline { list-style: none; margin: 0; padding: 0; }
.timeline li { padding: .3rem 0; }
.timeline strong { font-weight: 600; margin-right: .6rem; white-space: pre-wrap; }
.track { position: relative; height: .8rem; background: var(--ground); border-radius: .2rem; }
.track i {
  position: absolute; top: 0; bottom: 0; min-width: 3px; background: var(--blue);
  border-right: 1px solid var(--raised);
}
.track i.killed { background: var(--red); }
.track b { position: absolute; top: -.25rem; bottom: -.25rem; width: 3px; background: var(--text); }
.swatch { width: 1rem; height: .7rem; background: var(--blue); border-radius: .1rem; }
.swatch.killed { background: var(--red); }
.swatch.kill { width: 3px; height: 1.1rem; background: var(--text); }
.scale { position: relative; height: 1.4rem; font-size: .8rem; color: var(--quiet); }
.scale span {
  position: absolute; border-left: 1px solid var(--rule); padding-left: .2rem; white-space: nowrap;
}

.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); gap: 1rem; }
figure { margin: 0; break-inside: avoid; }
figcaption { margin: 0 0 .3rem; }
figure p { margin: .2rem 0 0; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 13px; fill: var(--quiet); }
svg text.strong { fill: var(--text); font-weight: 600; }
.cell.stored { fill: var(--blue); }
.cell.downgraded { fill: var(--orange); }
.cell.missing { fill: none; stroke: var(--missing); stroke-width: .7; }
.cell.delivered { fill: var(--green); }
.cell.given-up { fill: var(--red); }
.mark { fill: none; stroke: var(--mark); stroke-width: 1.6; stroke-linecap: round; }
.mark.missing { stroke: var(--missing); stroke-width: 2; }

.legend {
  display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none;
  margin: .8rem 0 0; padding: 0;
}
.legend li { display: flex; align-items: center; gap: .4rem; font-size: .875rem; }
.legend svg { width: 1rem; height: 1rem; flex: none; }

.pair {
  display: grid; gap: 0 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
}
.verdict {
  border: 3px solid var(--red); border-radius: .5rem; padding: .9rem 1.1rem; margin: 0 0 1rem;
  background: var(--raised); break-inside: avoid;
}
.verdict.go { border-color: var(--green); }
.verdict strong { display: block; font-size: 2.6rem; line-height: 1.1; color: var(--red); }
.verdict.go strong { color: var(--green); }
.verdict ul { margin: .5rem 0 0; padding-left: 1.2rem; }
.verdict + .figures > div:first-child { border: 1px solid var(--rule); }
.imagery { max-width: 46rem; margin: 0 0 .8rem; }
.imagery svg { border: 1px solid var(--rule); border-radius: .3rem; }
.imagery .cell { stroke: #000000; stroke-width: 1; }
.imagery .cell.hole { fill: #ffffff; fill-opacity: .75; stroke: #d55e00; stroke-width: 3; }
.imagery .mark.hole { stroke: #d55e00; stroke-width: 14; }
.imagery .cell.stale, .legend .stale { fill: #e69f00; fill-opacity: .7; }
.imagery .cell.sub-spec, .legend .sub-spec { fill: #cc79a7; fill-opacity: .7; }
.imagery .cell.damaged, .legend .damaged { fill: #d55e00; fill-opacity: .85; }
.imagery .cell.downgraded, .legend .downgraded { fill: #56b4e9; fill-opacity: .55; }
.imagery .mark, .legend .mark.over { stroke: #000000; stroke-width: 1.4; }
.legend .cell.hole { fill: none; stroke: var(--missing); }
.legend + table { margin-top: .6rem; }
.grid { stroke: var(--rule); }
.axis { stroke: var(--quiet); }
.bar.downloaded { fill: var(--blue); }
.bar.uploaded { fill: var(--green); }
.band { stroke: var(--quiet); stroke-width: 2; }
.stick { stroke-width: 2.5; stroke-opacity: .55; }
.reason-0 { fill: var(--blue); stroke: var(--blue); }
.reason-1 { fill: var(--orange); stroke: var(--orange); }
.reason-2 { fill: var(--green); stroke: var(--green); }
.reason-3 { fill: var(--purple); stroke: var(--purple); }
.reason-4 { fill: var(--black); stroke: var(--black); }
.reason-5 { fill: var(--sky); stroke: var(--sky); }
.sign { stroke: none; }
.kill { stroke: var(--red); stroke-width: 1.5; stroke-dasharray: 4 3; }
svg text.kill-text { fill: var(--red); font-weight: 600; }

table { border-collapse: collapse; width: 100%; font-size: .925rem; }
th, td {
  text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; overflow-wrap: anywhere;
}
th { font-weight: 600; color: var(--quiet); }
@media (max-width: 40rem) {
  thead { display: none; }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--rule); }
  td { display: block; border: 0; padding: .05rem 0; }
  td::before { content: attr(data-title) ": "; color: var(--quiet); }
  td:empty { display: none; }
  .pair svg text { font-size: 17px; }
}
@media print {
  :root {
    --ground: #ffffff; --raised: #ffffff; --text: #000000; --quiet: #444444; --rule: #bbbbbb;
    --blue: #0072b2; --green: #009e73; --orange: #e69f00; --red: #d55e00; --purple: #cc79a7;
    --sky: #56b4e9; --black: #444c52; --mark: #ffffff; --missing: #777777;
  }
  body {
    padding: 0; font-size: 11pt; max-width: none;
    print-color-adjust: exact; -webkit-print-color-adjust: exact;
  }
  .pair { grid-template-columns: 1fr 1fr; }
  .maps { grid-template-columns: repeat(3, 1fr); }
}
""")


_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
"""The browser loads and runs nothing, even if markup was injected; pictures are in the page."""


def render_page(title: str, header: Sequence[Markup], sections: Sequence[Markup]) -> str:
    """Return one HTML document."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", escape_text(title)),
        element("style", STYLE),
    )
    body = element("body", element("header", *header), element("main", *sections))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def render_section(title: str, *inside: Markup) -> Markup:
    return element("section", element("h2", escape_text(title)), *inside)


def render_figures(cards: Mapping[str, tuple[str, str]]) -> Markup:
    """Return cards with a name, a value and a remark each."""
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", escape_text(name)),
                element("dd", escape_text(value), class_="value"),
                element("dd", escape_text(more), class_="quiet"),
            )
            for name, (value, more) in cards.items()
        ),
        class_="figures",
    )


def render_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    head = element("tr", *(element("th", escape_text(title), scope="col") for title in titles))
    body = [
        element(
            "tr",
            *(
                element("td", escape_text(cell), data_title=title)
                for title, cell in zip(titles, row, strict=True)
            ),
        )
        for row in rows
    ]
    return element("table", element("thead", head), element("tbody", *body))
