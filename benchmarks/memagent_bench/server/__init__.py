"""memagent's overhead over a real server's time: `make bench-server`."""
