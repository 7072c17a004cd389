"""The conversation: its storage, its controller and its widgets."""
