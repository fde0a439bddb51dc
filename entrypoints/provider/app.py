"""The reference provider's settings, routes and request handlers."""

import hmac
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, time, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from pathlib import Path

from attrs import converters, field, frozen, validators
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tileferry.domain.addresses import is_loopback
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId
from tileferry.domain.tiles.capture import compute_ground_resolution
from tileferry.domain.validation import as_float, aware, integer, positive, text
from tileferry.entrypoints.provider.faults import Call, Options, PageFault, RequestFault
from tileferry.entrypoints.provider.faults.rules import FaultPlan, FaultRule, RequestInfo
from tileferry.entrypoints.provider.imagery import CONTENT_TYPE, ESTIMATED_BYTES, TileImageCache
from tileferry.entrypoints.provider.listing import (
    SOURCE,
    ListedTile,
    ListingQuery,
    format_time,
    parse_day,
)
from tileferry.entrypoints.provider.request_record import RequestRecord, to_dicts
from tileferry.entrypoints.provider.responses import (
    Connections,
    ProviderResponse,
    RefusalError,
    error_response,
    json_response,
)
from tileferry.entrypoints.provider.uploads import UploadReceiver, verify_signature

DEFAULT_M_PER_PX: float | None = 0.6
PAGE_SIZE_MAX = 100_000
_AGE = timedelta(days=30)


def get_default_produced_at() -> datetime:
    """Return midnight thirty days ago, so that every start on one day gives the same date."""
    return (datetime.now(UTC) - _AGE).replace(hour=0, minute=0, second=0, microsecond=0)


@frozen(kw_only=True)
class ProviderSettings:
    """All settings except the listen address."""

    api_key: str = field(repr=False, validator=text)
    resolution_m_per_px: float | None = field(
        default=DEFAULT_M_PER_PX,
        converter=converters.optional(as_float),
        validator=validators.optional(positive),
    )
    """Resolution reported for every tile; ``None`` derives it from zoom and latitude."""
    produced_at: datetime = field(factory=get_default_produced_at, validator=aware)
    page_size: int = field(default=1_000, validator=integer(1, PAGE_SIZE_MAX))
    upload_bytes_max: int = field(default=128 * 1024 * 1024, validator=integer(1))
    rules: tuple[FaultRule, ...] = ()
    seed: int = field(default=0, validator=integer(0))
    record: Path | None = None

    def describe_tile(self, tile: TileId, day: date | None = None) -> ListedTile:
        """Return the facts to report for a tile: of the current imagery, or of a day's."""
        resolution = self.resolution_m_per_px
        dated = None if day is None else datetime.combine(day, time.min, UTC)
        return ListedTile(
            tile=tile,
            produced_at=dated or self.produced_at,
            resolution_m_per_px=_round_resolution(tile) if resolution is None else resolution,
            estimated_bytes=ESTIMATED_BYTES,
        )


def _round_resolution(tile: TileId) -> float:
    return max(round(compute_ground_resolution(tile), 2), 0.01)


LOGGER = logging.getLogger("tileferry.provider")
TILES_ROUTE = "/api/satellite/tiles"
XYZ_ROUTE = "/xyz/{z}/{x}/{y}.jpg"
"""The route in the form that URL templates use."""
_COUNTED_MAX = 1_000_000

Handler = Callable[[Request], Awaitable[ProviderResponse]]


class ReferenceProvider:
    """One provider and its state."""

    def __init__(self, settings: ProviderSettings, connections: Connections) -> None:
        self._settings = settings
        self._connections = connections
        self._imagery = TileImageCache()
        self._asked: OrderedDict[str, int] = OrderedDict()
        self.plan = FaultPlan(settings.rules, seed=settings.seed)
        self.record = RequestRecord(settings.record)
        self._desk = UploadReceiver(self.record)

    @property
    def app(self) -> Starlette:
        """The ASGI application."""
        tile = TILES_ROUTE + "/{z}/{x}/{y}"
        return Starlette(
            routes=[
                Route(
                    TILES_ROUTE,
                    self._build_endpoint(self._build_handler(Call.LISTING)),
                    methods=["GET"],
                ),
                Route(
                    TILES_ROUTE,
                    self._build_endpoint(self._build_handler(Call.UPLOAD)),
                    methods=["POST"],
                ),
                Route(tile, self._build_endpoint(self._build_handler(Call.TILE)), methods=["GET"]),
                Route(
                    XYZ_ROUTE,
                    self._build_endpoint(self._build_handler(Call.TILE, plain=True)),
                    methods=["GET"],
                ),
                Route(
                    "/_provider/record", self._build_endpoint(self._show_requests), methods=["GET"]
                ),
                Route(
                    "/_provider/uploads", self._build_endpoint(self._show_uploads), methods=["GET"]
                ),
            ],
            exception_handlers={HTTPException: _handle_unknown_route},
        )

    def reset(self) -> None:
        """Forget all requests and uploads, as after a start."""
        self._asked.clear()
        self.record.clear()
        self._desk = UploadReceiver(self.record)

    def _build_endpoint(self, handle: Handler) -> "Endpoint":
        return Endpoint(handle, self._connections)

    def _build_handler(self, call: Call, *, plain: bool = False) -> Handler:
        async def handle(request: Request) -> ProviderResponse:
            asked = self._count_request(call, request)
            fault: RequestFault | PageFault | None = None
            try:
                if not plain:
                    self._authorise(request)
                tile = _parse_tile(request) if call is Call.TILE else None
                asked = RequestInfo(
                    call=call, target=asked.target, tile=tile, attempt=asked.attempt
                )
                chosen = self.plan.find_request_fault(asked)
                fault = chosen[0] if chosen else None
                answer = await self._serve(asked, request, chosen, plain=plain)
                answer = answer_condition(request, answer)
            except RefusalError as refusal:
                answer = to_error_response(refusal)
            self._record_request(asked, request, answer, fault)
            return answer

        return handle

    async def _serve(
        self,
        asked: RequestInfo,
        request: Request,
        chosen: tuple[RequestFault | PageFault, Options] | None,
        *,
        plain: bool,
    ) -> ProviderResponse:
        body = await self._read_body(request) if asked.call is Call.UPLOAD else b""
        fault, options = chosen or (None, {})
        if isinstance(fault, RequestFault) and not fault.acts:
            return fault.spoil(ProviderResponse(), options)
        if asked.call is Call.LISTING:
            answer = self._list(request, *(chosen or (None, {})))
        elif asked.tile is not None:
            day = None if plain else parse_day(request.query_params)
            answer = await self._fetch(asked.tile, day, plain=plain)
        else:
            answer = self._receive_upload(request, body)
        return fault.spoil(answer, options) if isinstance(fault, RequestFault) else answer

    def _list(
        self, request: Request, fault: RequestFault | PageFault | None, options: Options
    ) -> ProviderResponse:
        given = request.query_params
        query = ListingQuery.parse(dict(given), len(given.multi_items()))
        page = query.build_page(
            self._settings.page_size,
            lambda tile: self.plan.spoil_tile(
                self._settings.describe_tile(tile, query.day), Call.LISTING
            ),
        )
        return (fault.spoil(page, options) if isinstance(fault, PageFault) else page).response

    async def _fetch(self, tile: TileId, day: date | None, *, plain: bool) -> ProviderResponse:
        facts = self.plan.spoil_tile(self._settings.describe_tile(tile, day), Call.TILE)
        picture = self._imagery.find(tile)
        if picture is None:
            picture = await run_in_threadpool(self._imagery.get_or_draw, tile)
        if plain:
            return ProviderResponse(
                headers={
                    "Content-Type": CONTENT_TYPE,
                    "ETag": f'"{facts.produced_at:%Y%m%d%H%M}-{picture.repr_digest[9:25]}"',
                    "Last-Modified": format_datetime(facts.produced_at, usegmt=True),
                },
                body=picture.content,
            )
        return ProviderResponse(
            headers={
                "Content-Type": CONTENT_TYPE,
                "X-Resolution-M-Per-Px": repr(facts.resolution_m_per_px),
                "X-Produced-At": format_time(facts.produced_at),
                "Repr-Digest": picture.repr_digest,
            },
            body=picture.content,
        )

    def _receive_upload(self, request: Request, body: bytes) -> ProviderResponse:
        upload = verify_signature(request.method, request.url.path, request.headers, body)
        content_type = request.headers.get("content-type", "")
        return self._desk.receive(upload, content_type, self._find_refusal)

    def _find_refusal(self, tile: TileId) -> str | None:
        target = f"{TILES_ROUTE}#{tile}"
        attempt = self._count(target)
        asked = RequestInfo(call=Call.UPLOAD, target=target, tile=tile, attempt=attempt)
        refusal = self.plan.find_refusal(asked)
        return None if refusal is None else refusal[1]

    async def _read_body(self, request: Request) -> bytes:
        body, limit = bytearray(), self._settings.upload_bytes_max
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > limit:
            raise RefusalError(413, "too_large", f"an upload has at most {limit} bytes")
        async for piece in request.stream():
            body += piece
            if len(body) > limit:
                raise RefusalError(413, "too_large", f"an upload has at most {limit} bytes")
        return bytes(body)

    def _authorise(self, request: Request) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise RefusalError(401, "unauthorized", "Authorization: Bearer <key> is missing")
        if not hmac.compare_digest(key.encode(), self._settings.api_key.encode()):
            raise RefusalError(403, "forbidden", "the key is not good for this provider")

    def _count_request(self, call: Call, request: Request) -> RequestInfo:
        path, query = request.url.path, request.url.query
        target = f"{path}?{query}" if query else path
        if call is Call.UPLOAD:
            target = f"{path}#{request.headers.get('idempotency-key', '')}"
        return RequestInfo(call=call, target=target, attempt=self._count(f"{call} {target}"))

    def _count(self, what: str) -> int:
        number = self._asked.pop(what, 0) + 1
        self._asked[what] = number
        if len(self._asked) > _COUNTED_MAX:
            self._asked.popitem(last=False)
        return number

    def _record_request(
        self,
        asked: RequestInfo,
        request: Request,
        answer: ProviderResponse,
        fault: RequestFault | PageFault | None,
    ) -> None:
        self.record.add_request(
            call=asked.call.value,
            method=request.method,
            path=request.url.path,
            query=request.url.query,
            tile=None if asked.tile is None else str(asked.tile).removeprefix(f"{SOURCE}/"),
            idempotency_key=request.headers.get("idempotency-key"),
            attempt=asked.attempt,
            status=None if answer.says_nothing else answer.status,
            fault=None if fault is None else fault.name,
        )

    async def _show_requests(self, request: Request) -> ProviderResponse:
        _check_local(request)
        return json_response({"requests": to_dicts(self.record.requests)})

    async def _show_uploads(self, request: Request) -> ProviderResponse:
        _check_local(request)
        return json_response({"tiles": to_dicts(self.record.uploads)})


class Endpoint:
    """Sends a handler's response over its connection."""

    def __init__(self, handle: Handler, connections: Connections) -> None:
        self._handle = handle
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            answer = await self._handle(Request(scope, receive))
        except ClientDisconnect:
            return
        except RefusalError as refusal:
            answer = to_error_response(refusal)
        except Exception:
            LOGGER.exception("the provider failed by itself, not by a fault")
            answer = error_response(500, "bug", "the provider failed; see its log")
        await answer.deliver(self._connections.wire_for(scope, receive, send))


def to_error_response(refusal: RefusalError) -> ProviderResponse:
    """Return the response to a request that cannot be served."""
    answer = error_response(refusal.status, refusal.code, refusal.message)
    if refusal.status != 401:  # noqa: PLR2004  # the only status with an extra header
        return answer
    return error_response(refusal.status, refusal.code, refusal.message, WWW_Authenticate="Bearer")


def answer_condition(request: Request, answer: ProviderResponse) -> ProviderResponse:
    """Return a 304 without a body if the client has the current version already."""
    etag, wanted = answer.headers.get("ETag"), request.headers.get("if-none-match")
    if etag is None or wanted is None or answer.status != HTTPStatus.OK or etag != wanted:
        return answer
    kept = {name: text for name, text in answer.headers.items() if name != "Content-Type"}
    return ProviderResponse(status=HTTPStatus.NOT_MODIFIED, headers=kept)


def _parse_tile(request: Request) -> TileId:
    parts = request.path_params
    try:
        return TileId.parse(f"{SOURCE}/{parts['z']}/{parts['x']}/{parts['y']}")
    except InvalidValueError as error:
        raise RefusalError(400, "bad_tile", str(error)) from error


def _check_local(request: Request) -> None:
    if request.client is None or not is_loopback(request.client.host):
        raise RefusalError(403, "not_local", "this is for the provider's own machine")


async def _handle_unknown_route(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    answer = error_response(
        status, "no_such_call", "there is no such call; see the provider's surface"
    )
    return Response(answer.body, status, {"Content-Type": "application/json"})
