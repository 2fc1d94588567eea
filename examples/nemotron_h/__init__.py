"""Nemotron-H cut over ranks: layers of one stage each."""
