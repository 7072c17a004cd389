"""Is it worth it: one model on several machines side by side."""
