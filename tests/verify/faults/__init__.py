"""Seeded faults: small damage to the sources, and which checks see it.

Nothing here imports the package that is judged: that happens in processes of their own, each on a
damaged copy.
"""
