"""How does it run? Loading, answering, measuring."""
