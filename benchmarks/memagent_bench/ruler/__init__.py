"""The 13 tasks of RULER at any length, counted once instead of regenerated: own wording, published parameters."""
