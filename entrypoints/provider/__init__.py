"""A reference provider: a real server for downloads and uploads that can misbehave on request.

Needs the extra ``web``. For the demo, the tests and load tests; not for the public internet.
"""
