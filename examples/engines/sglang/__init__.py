"""A decoder of SGLang's modules between compiled boundaries; see docs/engines.md."""
