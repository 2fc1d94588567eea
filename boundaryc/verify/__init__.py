"""Proof: generated modules on simulated ranks, compared with an independent oracle."""
