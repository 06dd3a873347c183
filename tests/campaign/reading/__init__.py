"""Long reading of data, measured from a process of its own."""
