"""Llama taken apart for the harness of `examples.hf`."""

from examples.hf.architecture import Architecture, attention_and_mlp, final_norm, norms, tiny

ARCHITECTURE = Architecture(
    name="llama",
    build=lambda: tiny("llama", num_hidden_layers=3),
    sublayers=attention_and_mlp,
    bindings=norms,
    leave=final_norm,
)
