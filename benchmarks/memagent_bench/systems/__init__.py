"""What is measured: the memory agent and what people use instead, behind one interface."""
