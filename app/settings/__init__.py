"""What the user may choose, and where it is kept."""
