"""Programs behind figures of the documentation, which are not packaged: python -m evidence."""
