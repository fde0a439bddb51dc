"""Telemetry for programs that have some: spans and metrics by OpenTelemetry, Prometheus counters.

Each needs its library, which the extra ``telemetry`` brings; import the one that is wanted.
"""
