"""What a single retrieval can't do: changing values, chains and counts, in facts scattered over books."""
