"""What every kind of agent's runs share: the log, the exchanges with the model, the stream of events."""
