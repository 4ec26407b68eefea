"""The context of a tool session: turns, tiers, ledger, summaries."""
