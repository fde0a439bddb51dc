"""Retries and idempotency: one retry loop, with synchronous and asynchronous drivers."""
