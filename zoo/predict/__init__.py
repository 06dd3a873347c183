"""Prediction on files with a trained model, apart from building the model: zoo predict brings both together."""
