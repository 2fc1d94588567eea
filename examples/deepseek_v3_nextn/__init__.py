"""The draft of DeepSeek-V3 cut over ranks: a layer that predicts a further token."""
