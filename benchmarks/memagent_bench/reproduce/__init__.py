"""Measures a published checkpoint again, as it was measured, and says whether the figures agree."""
