"""`clawd bench serve`: how fast clawd serves, measured as its clients see it, with a bare loop as the limit."""
