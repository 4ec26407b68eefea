"""`SummaryBuffer` in other people's agent loops; each module needs the extra of its name."""
