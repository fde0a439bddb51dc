"""What commands read from their options."""
