"""`clawd demo`: a throw-away daemon, a user with a plain preference, and what the model has learnt from them."""
