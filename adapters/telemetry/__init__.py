"""Telemetry adapters for embedders: OpenTelemetry, Prometheus and structured logs.

Import the module you need. The extra ``telemetry`` installs the libraries.
"""
