"""Tool sessions: the same games played with whole histories, shortened ones and summaries, and their cost."""
