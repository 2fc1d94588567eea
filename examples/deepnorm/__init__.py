"""A residual that is replaced by its norm, with scales on both sides: operations of one's own."""
