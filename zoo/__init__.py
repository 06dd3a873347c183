"""A multi-framework vision model zoo. Importing this package imports no framework."""

from zoo.frameworks import FRAMEWORKS
from zoo.models import list_models

__all__ = ["FRAMEWORKS", "__version__", "list_models"]
__version__ = "0.2.0"
