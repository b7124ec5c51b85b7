"""`POST /v1/completions`: raw prompts, as text or ids, and the shape of its answers."""
