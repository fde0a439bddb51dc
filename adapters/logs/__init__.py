"""Structured logs."""

from tileferry.adapters.logs.audit import LogAuditSink

__all__ = ["LogAuditSink"]
