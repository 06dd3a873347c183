def explain(*a, **k):
    return None
