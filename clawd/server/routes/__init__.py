"""The routes, one file per API family. Each is thin: check, call, shape the answer."""
