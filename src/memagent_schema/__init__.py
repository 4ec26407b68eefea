"""Rows that a JSON schema describes, behind the extra `schema`: `memagent.schemas` makes their model."""
