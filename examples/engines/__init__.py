"""Models of engines between boundaries that boundaryc compiled, with the engines' own modules."""
