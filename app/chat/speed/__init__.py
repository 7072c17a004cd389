"""How fast answers were, beside what was predicted."""
