"""The context of a tool session: turns, what is dropped and clipped, the summary, the ledger."""
