"""Qwen3: attention and a dense FFN in every layer."""
