"""Qwen3-MoE: attention, then experts in most layers and a dense FFN in the rest."""
