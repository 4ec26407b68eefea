"""A shift of tickets: long work in which early facts, decisions and effects matter until the end."""
