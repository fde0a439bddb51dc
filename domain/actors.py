"""Who can ask a state machine for a move."""

from enum import StrEnum


class Actor(StrEnum):
    """The part that somebody plays when a state changes; audit events carry its value."""

    OPERATOR = "operator"
    """A human, through the command line or a program that embeds tileferry."""
    SCHEDULER = "scheduler"
    """The control plane's automation."""
    WORKER = "worker"
    SWEEPER = "sweeper"
    """Looks for work whose worker has gone."""
    VALIDATOR = "validator"
    EXTRACTOR = "extractor"
    CONSUMER = "consumer"
