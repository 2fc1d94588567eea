"""Qwen3 taken apart for the harness of `examples.hf`."""

from examples.hf.architecture import Architecture, attention_and_mlp, final_norm, norms, tiny

ARCHITECTURE = Architecture(
    name="qwen3",
    build=lambda: tiny("qwen3", attention_bias=True),
    sublayers=attention_and_mlp,
    bindings=norms,
    leave=final_norm,
)
