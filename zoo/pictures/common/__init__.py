"""What the pictures of several tasks have in common."""
