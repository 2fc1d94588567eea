"""Mixtral cut over ranks: experts in every layer."""
