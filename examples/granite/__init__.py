"""Granite cut over ranks: outputs are added with a factor."""
