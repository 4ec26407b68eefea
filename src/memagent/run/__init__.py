"""What the runs of all agents share: the log, the exchanges with the model, the stream of events."""
