"""What the use cases need from the outside, in the domain's words."""

from tileferry.application.ports.clock import AsyncSleep, Clock

__all__ = ["AsyncSleep", "Clock"]
