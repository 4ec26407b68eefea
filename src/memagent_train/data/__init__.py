"""Training data: generated tasks, long question answering, user-defined tasks and data sets; mixed by weights."""
