"""Falcon-H1 cut over ranks: attention and Mamba in one stage, and multipliers everywhere."""
