"""All-reduces of each framework, as the trainer calls them; a file per framework."""
