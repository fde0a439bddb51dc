"""When faults happen: rules from flags and scripts, decided alike in every run.

Chance is a hash of the seed, the fault and what is asked for the how-manieth time, so that it does
not depend on the order in which concurrent requests arrive.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any

from attrs import field, frozen

from tileferry.domain.tiles import TileId
from tileferry.entrypoints.provider.faults.fault import (
    Call,
    Fault,
    Options,
    PageFault,
    RequestFault,
    TileFault,
    UploadedTileFault,
)
from tileferry.entrypoints.provider.listing import TileFacts


@frozen(kw_only=True)
class Asked:
    """One request, as rules see it."""

    call: Call
    target: str
    """Path and query; for an upload its idempotency key stands behind the path."""
    tile: TileId | None = None
    attempt: int = 1
    """The how-manieth request of its kind this is, from 1."""

    @property
    def subject(self) -> str:
        """What lasting faults stick to."""
        return f"{self.call}:{self.target}" if self.tile is None else _short(self.tile)


@frozen(kw_only=True)
class Rule:
    """A fault, and when it happens: whatever is not given matches everything."""

    fault: Fault
    call: Call | None = None
    path: str | None = None
    tile: str | None = None
    attempts: frozenset[int] | None = None
    times: int | None = None
    rate: float | None = None
    options: Options = field(factory=dict)

    def matches(self, asked: Asked, seed: int) -> bool:
        """Tell whether the fault may happen to this request."""
        return (
            asked.call in self.fault.calls
            and self.call in {None, asked.call}
            and (self.path is None or fnmatchcase(asked.target, self.path))
            and (self.tile is None or self._names(asked.tile))
            and (self.attempts is None or asked.attempt in self.attempts)
            and (self.rate is None or self._drawn(asked, seed) < self.rate)
        )

    def _names(self, tile: TileId | None) -> bool:
        return tile is not None and any(
            fnmatchcase(text, self.tile or "") for text in (_short(tile), str(tile))
        )

    def _drawn(self, asked: Asked, seed: int) -> float:
        moment = "" if self.fault.lasting else f"{asked.target}#{asked.attempt}"
        identity = f"{seed}|{self.fault.name}|{asked.subject}|{moment}"
        drawn = blake2b(identity.encode("utf-8", "surrogateescape"), digest_size=7).digest()
        return int.from_bytes(drawn, "big") / 256.0**7


def _short(tile: TileId) -> str:
    return f"{tile.zoom}/{tile.x}/{tile.y}"


class FaultPlan:
    """The rules of a running provider; the first that matches decides."""

    def __init__(self, rules: Iterable[Rule] = (), *, seed: int = 0) -> None:
        self._seed = seed
        self._rules: list[Rule] = []
        self._left: dict[int, int] = {}
        self.follow(rules)

    def follow(self, rules: Iterable[Rule]) -> None:
        """Forget the rules so far, and go by these."""
        self._rules = list(rules)
        self._left = {
            index: rule.times for index, rule in enumerate(self._rules) if rule.times is not None
        }
        self._spoils_tiles = any(isinstance(rule.fault, TileFault) for rule in self._rules)

    def for_request(self, asked: Asked) -> tuple[RequestFault | PageFault, Options] | None:
        """Return what goes wrong with a request, if anything does."""
        rule = self._first(asked, RequestFault, PageFault)
        return None if rule is None else (rule.fault, _options(rule))  # type: ignore[return-value]  # as asked for

    def refusal(self, asked: Asked) -> tuple[str, str] | None:
        """Return the fault that refuses an uploaded tile, and the reason to give."""
        rule = self._first(asked, UploadedTileFault)
        if rule is None or not isinstance(rule.fault, UploadedTileFault):
            return None
        return rule.fault.name, rule.fault.reason(_options(rule))

    def spoiled(self, facts: TileFacts, call: Call) -> TileFacts:
        """Return what is said of a tile, here or there."""
        if not self._spoils_tiles:
            return facts
        asked = Asked(call=call, target="", tile=facts.tile)
        for rule in self._rules:
            if isinstance(rule.fault, TileFault) and rule.matches(asked, self._seed):
                facts = rule.fault.spoil(facts, _options(rule))
        return facts

    def _first(self, asked: Asked, *kinds: type[Fault]) -> Rule | None:
        for index, rule in enumerate(self._rules):
            spent = self._left.get(index) == 0
            if isinstance(rule.fault, kinds) and not spent and rule.matches(asked, self._seed):
                if index in self._left:
                    self._left[index] -= 1
                return rule
        return None


def _options(rule: Rule) -> dict[str, Any]:
    return {**rule.fault.options, **rule.options}
