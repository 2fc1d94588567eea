"""StarCoder2 cut over ranks: norms with a mean and a bias."""
