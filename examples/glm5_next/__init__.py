"""GLM-5-Next cut over ranks: a residual of four streams, mixed anew at every stage."""
