"""`boundaryc diff`: what two versions of stacks mean, compared before any text is."""
