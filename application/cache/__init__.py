"""Operations on the cache: group commits, budget, identity, inventory, readiness, verification."""
