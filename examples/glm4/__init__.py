"""GLM-4 cut over ranks: a norm on both sides of every sublayer."""
