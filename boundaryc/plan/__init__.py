"""Boundaries as shortest paths over typed operations, and the checker that does not trust them."""
