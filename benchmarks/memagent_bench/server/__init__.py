"""What memagent adds to a real server's own time: `make bench-server`."""
