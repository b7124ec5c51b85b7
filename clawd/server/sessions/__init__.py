"""Which session a request belongs to, what kind of turn it is, and what it says about the turn before."""
