"""The desktop program. Only this package may import PySide6."""
