"""What retrieving once cannot do: values that change, chains, and counts, in facts scattered over books."""
