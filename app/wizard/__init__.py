"""The first start: what this PC is, what fits on it, and a model to begin with."""
