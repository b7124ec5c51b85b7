"""`POST /v1/chat/completions`: its body, which is the form that all families are brought into, and its answers."""
