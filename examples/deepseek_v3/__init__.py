"""DeepSeek-V3 cut over ranks: latent attention, dense layers, experts with a shared one."""
