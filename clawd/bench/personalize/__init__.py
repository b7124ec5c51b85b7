"""`clawd bench personalize`: does it learn what its users want, how fast, and at what cost to its mind?"""
