"""From a folder of one's own files to a recipe for them; zoo/commands/finetune.py trains it."""
