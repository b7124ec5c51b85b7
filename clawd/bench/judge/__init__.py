"""How often the rules judge reads a reply right."""
