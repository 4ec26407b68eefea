"""What every run needs, whatever agent it is of: its log, its exchanges with the model, its stream of events."""
