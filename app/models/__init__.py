"""What the user sees of models on this PC."""
