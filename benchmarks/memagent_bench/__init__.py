"""Measurements and evaluations of memagent."""
