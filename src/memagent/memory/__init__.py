"""The memory agent: reads a document through a fixed-size memory."""
