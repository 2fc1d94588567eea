"""Adapters of engines: their groups, batches, flags and kernels, as boundaryc takes them.

Nothing here imports an engine before one of its objects is asked for, and an engine's own object
may be given in place of what would be asked for.
"""
