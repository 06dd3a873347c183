"""Prediction on files with a trained model, apart from building the model: tools/predict.py brings both together."""
