"""Inline figures, where older libraries look for them."""
