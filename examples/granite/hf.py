"""Granite taken apart for the harness of `examples.hf`."""

from examples.hf.architecture import Architecture, attention_and_mlp, final_norm, norms, tiny

EMBEDDINGS, RESIDUAL, LOGITS = 12.0, 0.22, 8.0
"""Factors of embeddings and of outputs, and what logits are divided by."""

ARCHITECTURE = Architecture(
    name="granite",
    build=lambda: tiny(
        "granite",
        num_hidden_layers=3,
        embedding_multiplier=EMBEDDINGS,
        residual_multiplier=RESIDUAL,
        logits_scaling=LOGITS,
        attention_multiplier=0.25,
    ),
    sublayers=attention_and_mlp,
    bindings=norms,
    leave=final_norm,
    multipliers=(EMBEDDINGS, 1 / LOGITS),
)
