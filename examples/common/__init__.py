"""What the example models share: sharding, attention with a KV cache, the decoder loop."""
