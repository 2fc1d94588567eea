"""Example stacks: a `stack.yaml`, and the model code that uses what was compiled from it."""
