"""The update child and what it is made of. Only its processes import torch; `job.py` beside it is the contract."""
