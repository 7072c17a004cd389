"""What the user sees of this PC."""
