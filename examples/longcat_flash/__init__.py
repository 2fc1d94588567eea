"""LongCat-Flash cut over ranks: experts beside two dense FFNs and an attention."""
