"""Tool sessions: the same games played with whole histories, cut ones and summaries, and their cost."""
