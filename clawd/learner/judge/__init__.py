"""From what followed a turn to a reward and hints: fixed rules, a judge model, and who decides."""
