"""Rules as people write them: ``--fault 503=0.1``, and scripts in JSON.

A script is a list of rules, of which the first that matches decides::

    [{"tile": "15/1/2", "fault": "503", "times": 2},
     {"call": "listing", "fault": "429", "retry_after": 30, "attempts": [1]},
     {"fault": "slow", "bytes_per_s": 5000, "rate": 0.05}]

``call`` is listing, tile or upload; ``path`` (with its query) and ``tile`` may hold ``*``;
``attempts`` counts the requests for one thing, from 1; ``times`` is how often the rule happens in
all; ``rate`` is a share. Whatever else a rule says is an option of its fault.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.provider.faults import (
    Call,
    Fault,
    TileFault,
    UploadedTileFault,
    fault_named,
)
from tileferry.entrypoints.provider.faults.plan import Rule

_KEYS = ("fault", "call", "path", "tile", "attempts", "times", "rate")
_NUMBERS = frozenset({"bytes", "bytes_per_s", "days", "items", "resolution_m_per_px", "status"})
"""Options that are counted with; whatever else may be set goes out as it is."""


def rule_of_flag(text: str) -> Rule:
    """Read ``name=rate``; without a rate it always happens."""
    name, equals, rate = text.partition("=")
    fault = fault_named(name, field="--fault")
    try:
        value = float(rate) if equals else 1.0
    except ValueError:
        value = math.nan
    return Rule(fault=fault, rate=_rate(value, f"--fault {name}"))


def rules_of_file(path: Path) -> list[Rule]:
    """Read a script: a JSON list of rules."""
    try:
        script = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidValueError(
            field="--faults-file", value=str(path), problem=f"cannot be read: {error}"
        ) from error
    return rules_of(script)


def rules_of(script: object) -> list[Rule]:
    """Read a script that has been parsed."""
    if not isinstance(script, list):
        raise InvalidValueError(field="faults", value=script, problem="must be a list of rules")
    return [_rule(entry, f"faults[{index}]") for index, entry in enumerate(script)]


def _rule(entry: object, at: str) -> Rule:
    if not isinstance(entry, Mapping):
        raise InvalidValueError(field=at, value=entry, problem="must be an object")
    fault = fault_named(entry.get("fault"), field=f"{at}.fault")
    options = {name: value for name, value in entry.items() if name not in _KEYS}
    _check_options(options, fault, at)
    rule = Rule(
        fault=fault,
        call=_call(entry.get("call"), fault, f"{at}.call"),
        path=_pattern(entry.get("path"), f"{at}.path"),
        tile=_pattern(entry.get("tile"), f"{at}.tile"),
        attempts=_attempts(entry.get("attempts"), f"{at}.attempts"),
        times=_times(entry.get("times"), f"{at}.times"),
        rate=None if entry.get("rate") is None else _rate(entry["rate"], f"{at}.rate"),
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


def _check_sense(rule: Rule, at: str) -> None:
    """Refuse what would never match, or not as its author thinks."""
    if isinstance(rule.fault, TileFault):
        for name in ("attempts", "times", "path"):
            if getattr(rule, name) is not None:
                raise InvalidValueError(
                    field=f"{at}.{name}",
                    value=getattr(rule, name),
                    problem=f"cannot be told to fault {rule.fault.name}, which describes a tile",
                    remedy="choose tiles with tile or rate",
                )
    if rule.tile is not None and not _happens_to_tiles(rule):
        raise InvalidValueError(
            field=f"{at}.tile",
            value=rule.tile,
            problem=f"fault {rule.fault.name} does not happen to single tiles here",
            remedy="leave tile out, or choose by path",
        )


def _happens_to_tiles(rule: Rule) -> bool:
    if isinstance(rule.fault, TileFault | UploadedTileFault):
        return True
    return Call.TILE in rule.fault.calls and rule.call in {None, Call.TILE}


def _call(value: object, fault: Fault, at: str) -> Call | None:
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


def _pattern(value: object, at: str) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise InvalidValueError(
            field=at, value=value, problem="must be text, in which * stands for anything"
        )
    return value


def _attempts(value: object, at: str) -> frozenset[int] | None:
    if value is None:
        return None
    if not (isinstance(value, Iterable) and all(type(item) is int and item > 0 for item in value)):
        raise InvalidValueError(
            field=at, value=value, problem="must be a list of whole numbers from 1 up"
        )
    return frozenset(value)


def _times(value: object, at: str) -> int | None:
    if value is not None and not (type(value) is int and value >= 1):
        raise InvalidValueError(field=at, value=value, problem="must be a whole number from 1 up")
    return value


def _rate(value: object, at: str) -> float:
    if not (isinstance(value, int | float) and 0.0 <= value <= 1.0):  # false for NaN
        raise InvalidValueError(
            field=at,
            value=value,
            problem="must be a share from 0 to 1",
            remedy="such as --fault 503=0.1 for every tenth request",
        )
    return float(value)
