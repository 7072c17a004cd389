"""Texts of models as widgets: Markdown, code, tables, thinking."""
