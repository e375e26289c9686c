"""A result -> one self-contained HTML page."""
