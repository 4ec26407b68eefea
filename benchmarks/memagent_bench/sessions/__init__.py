"""Tool sessions: the same games, played through whole histories, cut ones and summaries, and what each pays."""
