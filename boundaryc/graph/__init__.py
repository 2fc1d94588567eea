"""Stages to a graph: order, repetition, and the contract of every stage as sets of atoms."""
