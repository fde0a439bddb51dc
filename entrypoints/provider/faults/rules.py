"""Rules that decide when faults happen, from flags and scripts; the same in every run.

The random choice is a hash of the seed, the fault, the target and the number of the request for
that target, so it does not depend on the order in which concurrent requests arrive.
"""

import json
import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Any

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import TileId
from tileferry.entrypoints.provider.faults import find_fault
from tileferry.entrypoints.provider.faults.fault import (
    Call,
    Fault,
    Options,
    PageFault,
    RequestFault,
    TileFault,
    UploadedTileFault,
)
from tileferry.entrypoints.provider.listing import ListedTile


@frozen(kw_only=True)
class RequestInfo:
    """One request, as the rules see it."""

    call: Call
    target: str
    """Path and query; for an upload, the path followed by its idempotency key."""
    tile: TileId | None = None
    attempt: int = 1
    """The number of this request for its target, from 1."""

    @property
    def subject(self) -> str:
        """What a lasting fault stays with."""
        return f"{self.call}:{self.target}" if self.tile is None else _shorten_tile_id(self.tile)


@frozen(kw_only=True)
class FaultRule:
    """A fault and its conditions; a condition that is not set matches everything."""

    fault: Fault
    call: Call | None = None
    path: str | None = None
    tile: str | None = None
    attempts: frozenset[int] | None = None
    times: int | None = None
    rate: float | None = None
    options: Options = field(factory=dict)

    def matches(self, asked: RequestInfo, seed: int) -> bool:
        """Return whether the fault applies to this request."""
        return (
            asked.call in self.fault.calls
            and self.call in {None, asked.call}
            and (self.path is None or fnmatchcase(asked.target, self.path))
            and (self.tile is None or self._matches_tile(asked.tile))
            and (self.attempts is None or asked.attempt in self.attempts)
            and (self.rate is None or self._draw_chance(asked, seed) < self.rate)
        )

    def _matches_tile(self, tile: TileId | None) -> bool:
        return tile is not None and any(
            fnmatchcase(text, self.tile or "") for text in (_shorten_tile_id(tile), str(tile))
        )

    def _draw_chance(self, asked: RequestInfo, seed: int) -> float:
        moment = "" if self.fault.lasting else f"{asked.target}#{asked.attempt}"
        identity = f"{seed}|{self.fault.name}|{asked.subject}|{moment}"
        drawn = blake2b(identity.encode("utf-8", "surrogateescape"), digest_size=7).digest()
        return int.from_bytes(drawn, "big") / 256.0**7


def _shorten_tile_id(tile: TileId) -> str:
    return f"{tile.zoom}/{tile.x}/{tile.y}"


class FaultPlan:
    """The rules of a running provider; the first match wins."""

    def __init__(self, rules: Iterable[FaultRule] = (), *, seed: int = 0) -> None:
        self._seed = seed
        self._rules: list[FaultRule] = []
        self._left: dict[int, int] = {}
        self.set_rules(rules)

    def set_rules(self, rules: Iterable[FaultRule]) -> None:
        """Replace all rules."""
        self._rules = list(rules)
        self._left = {
            index: rule.times for index, rule in enumerate(self._rules) if rule.times is not None
        }
        self._spoils_tiles = any(isinstance(rule.fault, TileFault) for rule in self._rules)

    def find_request_fault(
        self, asked: RequestInfo
    ) -> tuple[RequestFault | PageFault, Options] | None:
        """Return the fault that applies to a request, if any."""
        rule = self._find_rule(asked, RequestFault, PageFault)
        return None if rule is None else (rule.fault, _merge_options(rule))  # type: ignore[return-value]  # the caller asks for this kind

    def find_refusal(self, asked: RequestInfo) -> tuple[str, str] | None:
        """Return the fault that rejects an uploaded tile, and the reason to report."""
        rule = self._find_rule(asked, UploadedTileFault)
        if rule is None or not isinstance(rule.fault, UploadedTileFault):
            return None
        return rule.fault.name, rule.fault.reason(_merge_options(rule))

    def spoil_tile(self, facts: ListedTile, call: Call) -> ListedTile:
        """Return the tile's facts, changed if a fault applies."""
        if not self._spoils_tiles:
            return facts
        asked = RequestInfo(call=call, target="", tile=facts.tile)
        for rule in self._rules:
            if isinstance(rule.fault, TileFault) and rule.matches(asked, self._seed):
                facts = rule.fault.spoil(facts, _merge_options(rule))
        return facts

    def _find_rule(self, asked: RequestInfo, *kinds: type[Fault]) -> FaultRule | None:
        for index, rule in enumerate(self._rules):
            spent = self._left.get(index) == 0
            if isinstance(rule.fault, kinds) and not spent and rule.matches(asked, self._seed):
                if index in self._left:
                    self._left[index] -= 1
                return rule
        return None


def _merge_options(rule: FaultRule) -> dict[str, Any]:
    return {**rule.fault.options, **rule.options}


_KEYS = ("fault", "call", "path", "tile", "attempts", "times", "rate")
_NUMBERS = frozenset({"bytes", "bytes_per_s", "days", "items", "resolution_m_per_px", "status"})
"""Options with a numeric value; other options are sent as they are."""


def parse_flag(text: str) -> FaultRule:
    """Parse ``name=rate``; without a rate the fault always happens."""
    name, equals, rate = text.partition("=")
    fault = find_fault(name, field="--fault")
    try:
        value = float(rate) if equals else 1.0
    except ValueError:
        value = math.nan
    return FaultRule(fault=fault, rate=_parse_rate(value, f"--fault {name}"))


def read_script(path: Path) -> list[FaultRule]:
    """Read a script: a JSON list of rules."""
    try:
        script = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidValueError(
            field="--faults-file", value=str(path), problem=f"cannot be read: {error}"
        ) from error
    return parse_script(script)


def parse_script(script: object) -> list[FaultRule]:
    """Build the rules from a decoded script."""
    if not isinstance(script, list):
        raise InvalidValueError(field="faults", value=script, problem="must be a list of rules")
    return [_parse_rule(entry, f"faults[{index}]") for index, entry in enumerate(script)]


def _parse_rule(entry: object, at: str) -> FaultRule:
    if not isinstance(entry, Mapping):
        raise InvalidValueError(field=at, value=entry, problem="must be an object")
    fault = find_fault(entry.get("fault"), field=f"{at}.fault")
    options = {name: value for name, value in entry.items() if name not in _KEYS}
    _check_options(options, fault, at)
    rule = FaultRule(
        fault=fault,
        call=_parse_call(entry.get("call"), fault, f"{at}.call"),
        path=_parse_pattern(entry.get("path"), f"{at}.path"),
        tile=_parse_pattern(entry.get("tile"), f"{at}.tile"),
        attempts=_parse_attempts(entry.get("attempts"), f"{at}.attempts"),
        times=_parse_times(entry.get("times"), f"{at}.times"),
        rate=None if entry.get("rate") is None else _parse_rate(entry["rate"], f"{at}.rate"),
        options=options,
    )
    _check_sense(rule, at)
    return rule


def _check_options(options: Mapping[str, Any], fault: Fault, at: str) -> None:
    for name, value in options.items():
        if name not in fault.options:
            raise InvalidValueError(
                field=f"{at}.{name}",
                value=value,
                problem=f"is nothing that fault {fault.name} can be told",
                remedy=f"it knows {', '.join((*_KEYS, *fault.options))}",
            )
        if name in _NUMBERS and not (type(value) in {int, float} and value > 0):
            raise InvalidValueError(
                field=f"{at}.{name}", value=value, problem="must be a number above 0"
            )


def _check_sense(rule: FaultRule, at: str) -> None:
    """Reject a rule that would never match, or not as its author expects."""
    if isinstance(rule.fault, TileFault):
        for name in ("attempts", "times", "path"):
            if getattr(rule, name) is not None:
                raise InvalidValueError(
                    field=f"{at}.{name}",
                    value=getattr(rule, name),
                    problem=f"cannot be told to fault {rule.fault.name}, which describes a tile",
                    remedy="choose tiles with tile or rate",
                )
    if rule.tile is not None and not _applies_to_tiles(rule):
        raise InvalidValueError(
            field=f"{at}.tile",
            value=rule.tile,
            problem=f"fault {rule.fault.name} does not happen to single tiles here",
            remedy="leave tile out, or choose by path",
        )


def _applies_to_tiles(rule: FaultRule) -> bool:
    if isinstance(rule.fault, TileFault | UploadedTileFault):
        return True
    return Call.TILE in rule.fault.calls and rule.call in {None, Call.TILE}


def _parse_call(value: object, fault: Fault, at: str) -> Call | None:
    if value is None:
        return None
    known = [call.value for call in Call if call in fault.calls]
    if value not in known:
        raise InvalidValueError(
            field=at,
            value=value,
            problem=f"is no call that fault {fault.name} happens to",
            remedy=f"use one of {', '.join(known)}",
        )
    return Call(value)


def _parse_pattern(value: object, at: str) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise InvalidValueError(
            field=at, value=value, problem="must be text, in which * stands for anything"
        )
    return value


def _parse_attempts(value: object, at: str) -> frozenset[int] | None:
    if value is None:
        return None
    if not (isinstance(value, Iterable) and all(type(item) is int and item > 0 for item in value)):
        raise InvalidValueError(
            field=at, value=value, problem="must be a list of whole numbers of at least 1"
        )
    return frozenset(value)


def _parse_times(value: object, at: str) -> int | None:
    if value is not None and not (type(value) is int and value >= 1):
        raise InvalidValueError(
            field=at, value=value, problem="must be a whole number of at least 1"
        )
    return value


def _parse_rate(value: object, at: str) -> float:
    if not (isinstance(value, int | float) and 0.0 <= value <= 1.0):  # false for NaN
        raise InvalidValueError(
            field=at,
            value=value,
            problem="must be a share from 0 to 1",
            remedy="such as --fault 503=0.1 for every tenth request",
        )
    return float(value)
