"""What the provider answers: a value that faults can spoil before it is sent."""

import json
from collections.abc import Mapping
from typing import Any

from attrs import define, field, frozen

from tileferry.entrypoints.provider.wire import Delivery, Wire, send_whole


@frozen(kw_only=True)
class Answer:
    """A response, and how it goes over the wire."""

    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes = b""
    delivery: Delivery = send_whole
    says_nothing: bool = False
    """Whether not even a status goes out."""

    async def deliver(self, wire: Wire) -> None:
        """Send it."""
        await self.delivery(wire, self.status, list(self.headers.items()), self.body)


@define(eq=False)
class RefusalError(Exception):
    """A request that cannot be served; ``code`` is for programs, ``message`` for people."""

    status: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"


def json_answer(body: Mapping[str, Any], status: int = 200, **headers: str) -> Answer:
    """Answer with one JSON object."""
    return Answer(
        status=status,
        headers={"Content-Type": "application/json", **_named(headers)},
        body=json.dumps(body).encode("ascii"),
    )


def problem(status: int, code: str, message: str, **headers: str) -> Answer:
    """Answer with an error in the provider's one form."""
    return json_answer({"error": code, "message": message}, status, **headers)


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
