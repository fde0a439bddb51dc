"""Measurements against peers and limits, run by ``make bench``; never part of the tests."""
