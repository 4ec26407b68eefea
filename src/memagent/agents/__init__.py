"""The loops, and the classes that people run them with."""
