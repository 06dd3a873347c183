"""What the name of a file says of its kind: an image, a video, or one that belongs to the system."""

IMAGE_EXTENSIONS = (
    *(".jpeg", ".jpg", ".jpe", ".jfif", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".avif"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
)
VIDEO_EXTENSIONS = (
    *(".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".wmv", ".ts", ".mts", ".m2ts", ".mpg", ".mpeg", ".flv", ".3gp"),
    *(".ogv", ".h264", ".264"),
)
SYSTEM_NAMES = (
    *("Thumbs.db", "desktop.ini", "__MACOSX", "lost+found"),
    *("$RECYCLE.BIN", "System Volume Information", "#recycle"),
)


def is_hidden(name: str) -> bool:
    """Return whether a file or folder belongs to the system, such as thumbnails of a network storage."""
    return name.startswith((".", "@")) or name in SYSTEM_NAMES
