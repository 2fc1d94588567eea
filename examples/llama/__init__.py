"""Llama cut over ranks, as docs/add-a-model.md adds it."""
