"""What our plans send on published deployments, beside another system and a lower bound."""
