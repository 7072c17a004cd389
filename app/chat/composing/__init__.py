"""Where messages are written, with what goes with them."""
