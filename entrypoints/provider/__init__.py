"""The reference provider: a real server to download from and upload to, that can misbehave.

It needs the extra ``web``. For the demo, the tests and load; not for the public internet.
"""
