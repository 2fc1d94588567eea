"""OLMo 2 cut over ranks: a norm of what every sublayer leaves, and none of what it reads."""
