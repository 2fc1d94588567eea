"""Adapters of engines, against facts of their interfaces and against the engines themselves."""
