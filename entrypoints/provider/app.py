"""The provider's HTTP surface: list an area, fetch a tile, upload a batch.

Beside it there is the face of a plain tile server: the same pictures with the same faults, for
everybody who knows their numbers.
"""

import hmac
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

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
from tileferry.entrypoints.provider.answers import Answer, RefusalError, json_answer, problem
from tileferry.entrypoints.provider.faults import Call, Options, PageFault, RequestFault
from tileferry.entrypoints.provider.faults.plan import Asked, FaultPlan
from tileferry.entrypoints.provider.imagery import CONTENT_TYPE, Imagery
from tileferry.entrypoints.provider.listing import SOURCE, Query, moment
from tileferry.entrypoints.provider.record import Record, as_dicts
from tileferry.entrypoints.provider.settings import ProviderSettings
from tileferry.entrypoints.provider.signatures import verified
from tileferry.entrypoints.provider.uploads import UploadDesk
from tileferry.entrypoints.provider.wire import Connections

LOGGER = logging.getLogger("tileferry.provider")
TILES = "/api/satellite/tiles"
PLAIN = "/xyz/{z}/{x}/{y}.jpg"
"""As a template has it, and as a route does."""
_COUNTED_MAX = 1_000_000

Handler = Callable[[Request], Awaitable[Answer]]


class Provider:
    """One provider, with all that it remembers."""

    def __init__(self, settings: ProviderSettings, connections: Connections) -> None:
        self._settings = settings
        self._connections = connections
        self._imagery = Imagery()
        self._asked: OrderedDict[str, int] = OrderedDict()
        self.plan = FaultPlan(settings.rules, seed=settings.seed)
        self.record = Record(settings.record)
        self._desk = UploadDesk(self.record)

    @property
    def app(self) -> Starlette:
        """The application for a server."""
        tile = TILES + "/{z}/{x}/{y}"
        return Starlette(
            routes=[
                Route(TILES, self._endpoint(self._call(Call.LISTING)), methods=["GET"]),
                Route(TILES, self._endpoint(self._call(Call.UPLOAD)), methods=["POST"]),
                Route(tile, self._endpoint(self._call(Call.TILE)), methods=["GET"]),
                Route(PLAIN, self._endpoint(self._call(Call.TILE, plain=True)), methods=["GET"]),
                Route("/_provider/record", self._endpoint(self._requests), methods=["GET"]),
                Route("/_provider/uploads", self._endpoint(self._uploads), methods=["GET"]),
            ],
            exception_handlers={HTTPException: _not_routed},
        )

    def forget(self) -> None:
        """Forget what was asked and uploaded, as if just started."""
        self._asked.clear()
        self.record.clear()
        self._desk = UploadDesk(self.record)

    def _endpoint(self, handle: Handler) -> "Endpoint":
        return Endpoint(handle, self._connections)

    def _call(self, call: Call, *, plain: bool = False) -> Handler:
        async def handle(request: Request) -> Answer:
            asked = self._counted(call, request)
            fault: RequestFault | PageFault | None = None
            try:
                if not plain:
                    self._authorise(request)
                tile = _tile(request) if call is Call.TILE else None
                asked = Asked(call=call, target=asked.target, tile=tile, attempt=asked.attempt)
                chosen = self.plan.for_request(asked)
                fault = chosen[0] if chosen else None
                answer = await self._served(asked, request, chosen, plain=plain)
            except RefusalError as refusal:
                answer = refused(refusal)
            self._write_down(asked, request, answer, fault)
            return answer

        return handle

    async def _served(
        self,
        asked: Asked,
        request: Request,
        chosen: tuple[RequestFault | PageFault, Options] | None,
        *,
        plain: bool,
    ) -> Answer:
        body = await self._body(request) if asked.call is Call.UPLOAD else b""
        fault, options = chosen or (None, {})
        if isinstance(fault, RequestFault) and not fault.acts:
            return fault.spoil(Answer(), options)
        if asked.call is Call.LISTING:
            answer = self._list(request, *(chosen or (None, {})))
        elif asked.tile is not None:
            answer = await self._fetch(asked.tile, plain=plain)
        else:
            answer = self._take(request, body)
        return fault.spoil(answer, options) if isinstance(fault, RequestFault) else answer

    def _list(
        self, request: Request, fault: RequestFault | PageFault | None, options: Options
    ) -> Answer:
        given = request.query_params
        query = Query.of(dict(given), len(given.multi_items()))
        page = query.page(
            self._settings.page_size,
            lambda tile: self.plan.spoiled(self._settings.facts(tile), Call.LISTING),
        )
        return (fault.spoil(page, options) if isinstance(fault, PageFault) else page).answer

    async def _fetch(self, tile: TileId, *, plain: bool) -> Answer:
        facts = self.plan.spoiled(self._settings.facts(tile), Call.TILE)
        picture = self._imagery.kept(tile)
        if picture is None:
            picture = await run_in_threadpool(self._imagery.drawn, tile)
        if plain:
            return Answer(headers={"Content-Type": CONTENT_TYPE}, body=picture.content)
        return Answer(
            headers={
                "Content-Type": CONTENT_TYPE,
                "X-Resolution-M-Per-Px": repr(facts.resolution_m_per_px),
                "X-Produced-At": moment(facts.produced_at),
                "Repr-Digest": picture.repr_digest,
            },
            body=picture.content,
        )

    def _take(self, request: Request, body: bytes) -> Answer:
        upload = verified(request.method, request.url.path, request.headers, body)
        content_type = request.headers.get("content-type", "")
        return self._desk.take(upload, content_type, self._refusal_of)

    def _refusal_of(self, tile: TileId) -> str | None:
        target = f"{TILES}#{tile}"
        attempt = self._count(target)
        asked = Asked(call=Call.UPLOAD, target=target, tile=tile, attempt=attempt)
        refusal = self.plan.refusal(asked)
        return None if refusal is None else refusal[1]

    async def _body(self, request: Request) -> bytes:
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

    def _counted(self, call: Call, request: Request) -> Asked:
        path, query = request.url.path, request.url.query
        target = f"{path}?{query}" if query else path
        if call is Call.UPLOAD:
            target = f"{path}#{request.headers.get('idempotency-key', '')}"
        return Asked(call=call, target=target, attempt=self._count(f"{call} {target}"))

    def _count(self, what: str) -> int:
        number = self._asked.pop(what, 0) + 1
        self._asked[what] = number
        if len(self._asked) > _COUNTED_MAX:
            self._asked.popitem(last=False)
        return number

    def _write_down(
        self, asked: Asked, request: Request, answer: Answer, fault: RequestFault | PageFault | None
    ) -> None:
        self.record.request(
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

    async def _requests(self, request: Request) -> Answer:
        _check_local(request)
        return json_answer({"requests": as_dicts(self.record.requests)})

    async def _uploads(self, request: Request) -> Answer:
        _check_local(request)
        return json_answer({"tiles": as_dicts(self.record.uploads)})


class Endpoint:
    """Brings a handler's answer to the client over the wire that belongs to it."""

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
            answer = refused(refusal)
        except Exception:
            LOGGER.exception("the provider failed by itself, not by a fault")
            answer = problem(500, "bug", "the provider failed; see its log")
        await answer.deliver(self._connections.wire(scope, receive, send))


def refused(refusal: RefusalError) -> Answer:
    """Return the answer to a request that cannot be served."""
    answer = problem(refusal.status, refusal.code, refusal.message)
    if refusal.status != 401:  # noqa: PLR2004  # the one status with a header of its own
        return answer
    return problem(refusal.status, refusal.code, refusal.message, WWW_Authenticate="Bearer")


def _tile(request: Request) -> TileId:
    parts = request.path_params
    try:
        return TileId.parse(f"{SOURCE}/{parts['z']}/{parts['x']}/{parts['y']}")
    except InvalidValueError as error:
        raise RefusalError(400, "bad_tile", str(error)) from error


def _check_local(request: Request) -> None:
    if request.client is None or not is_loopback(request.client.host):
        raise RefusalError(403, "not_local", "this is for the provider's own machine")


async def _not_routed(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    answer = problem(status, "no_such_call", "there is no such call; see the provider's surface")
    return Response(answer.body, status, {"Content-Type": "application/json"})
