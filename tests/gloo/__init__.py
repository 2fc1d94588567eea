"""Four real ranks for tests: see `tests.gloo.pool`."""
