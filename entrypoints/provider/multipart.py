"""The parts of an upload's body, in their order."""

from attrs import define, field, frozen
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from tileferry.entrypoints.provider.answers import RefusalError

PARTS_MAX = 1_001
_HEADER_BYTES_MAX = 4_096


@frozen
class Part:
    """One part: what it is called, of what type, and its bytes."""

    name: str
    content_type: str
    content: bytes


@define
class _Reader:
    """Takes what the parser finds, piece by piece."""

    parts: list[Part] = field(factory=list)
    ended: bool = False
    _name: bytearray = field(factory=bytearray)
    _value: bytearray = field(factory=bytearray)
    _headers: dict[bytes, bytes] = field(factory=dict)
    _content: bytearray = field(factory=bytearray)

    def on_part_begin(self) -> None:
        if len(self.parts) == PARTS_MAX:
            raise RefusalError(413, "too_many_parts", f"a batch has at most {PARTS_MAX - 1} tiles")
        self._headers, self._content = {}, bytearray()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]
        self._check(self._name)

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._check(self._value)

    def on_header_end(self) -> None:
        self._headers[bytes(self._name).lower()] = bytes(self._value)
        self._name, self._value = bytearray(), bytearray()

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]

    def on_part_end(self) -> None:
        disposition, options = parse_options_header(self._headers.get(b"content-disposition"))
        if disposition != b"form-data" or b"name" not in options:
            raise RefusalError(400, "bad_multipart", "a part has no name")
        name = options[b"name"].decode("latin-1")
        kind = self._headers.get(b"content-type", b"").decode("latin-1")
        self.parts.append(Part(name, kind, bytes(self._content)))

    def on_end(self) -> None:
        self.ended = True

    def _check(self, text: bytearray) -> None:
        if len(text) > _HEADER_BYTES_MAX:
            raise RefusalError(400, "bad_multipart", "a part's header is too long")


def parts_of(content_type: str, body: bytes) -> list[Part]:
    """Split the body of a ``multipart/form-data`` request."""
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        message = "an upload is multipart/form-data with a boundary"
        raise RefusalError(415, "bad_content_type", message)
    reader = _Reader()
    names = (name for name in dir(reader) if name.startswith("on_"))
    parser = MultipartParser(options[b"boundary"], {name: getattr(reader, name) for name in names})  # type: ignore[arg-type]  # a TypedDict of these names
    try:
        parser.write(body)
        parser.finalize()
    except MultipartParseError as error:
        raise RefusalError(400, "bad_multipart", str(error)) from error
    if not reader.ended:
        raise RefusalError(400, "bad_multipart", "the body ends before its last boundary")
    return reader.parts
