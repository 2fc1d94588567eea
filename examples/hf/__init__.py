"""Hugging Face models cut over ranks, with nothing but generated boundaries between their parts."""
