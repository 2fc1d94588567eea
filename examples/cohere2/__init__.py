"""Cohere 2 cut over ranks: attention and FFN side by side, with one norm and one sum."""
