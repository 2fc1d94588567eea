"""A stack file to begin with, from a model's `config.json` or from nothing."""
