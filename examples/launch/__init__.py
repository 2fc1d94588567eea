"""A decoder on several machines: pipeline, tensor and attention data parallel."""
