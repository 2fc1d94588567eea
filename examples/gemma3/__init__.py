"""Gemma 3 cut over ranks: norms of one plus their weight on both sides of every sublayer."""
