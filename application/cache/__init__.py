"""What is done with the cache as a whole: groups, budget, readiness, exports, imports."""
