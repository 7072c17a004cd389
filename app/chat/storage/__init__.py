"""What is kept of conversations: the file, its records, and how they come in and go out. Knows no widget."""
