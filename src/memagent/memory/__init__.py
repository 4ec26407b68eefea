"""The memory agent: reads a document through a memory of fixed size."""
