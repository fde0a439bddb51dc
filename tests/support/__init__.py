"""What several tests share: strategies for the domain's values."""
