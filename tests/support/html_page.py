"""What a browser would make of a page: its elements, their attributes, its text."""

from html.parser import HTMLParser

from attrs import define, field


@define
class ParsedPage(HTMLParser):
    """A page that was read; what was opened must be closed, in order."""

    tags: list[str] = field(factory=list)
    attributes: list[tuple[str, str]] = field(factory=list)
    texts: list[str] = field(factory=list)
    open_tags: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note that one has ended."""
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note what is to be read."""
        self.texts.append(data)


def parse_page(html: str) -> ParsedPage:
    """Read a whole page."""
    page = ParsedPage()
    page.feed(html)
    page.close()
    assert page.open_tags == []
    return page
