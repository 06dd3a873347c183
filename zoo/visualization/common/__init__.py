"""What the images of several tasks have in common."""
