"""vLLM's Qwen3 between compiled boundaries."""
