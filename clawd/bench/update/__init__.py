"""`clawd bench update`: how fast an update is, beside a plain reference that computes the same gradients."""
