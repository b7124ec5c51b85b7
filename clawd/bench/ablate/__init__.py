"""`clawd bench ablate`: what each part of the loss is worth, on one preference and one batch of own answers."""
