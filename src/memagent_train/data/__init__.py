"""Training data: generated tasks, long question answering, tasks and data sets of the user's own; mixed by weights."""
