"""Settings that other programs need to talk to clawd, written into their own files: pure text in, text out."""
