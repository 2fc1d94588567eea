"""The text model of Qwen3-VL cut over ranks: what images add to the outputs of its first layers."""
