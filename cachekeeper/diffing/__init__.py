"""Two caches, compared: what is different, does it matter, is it the same work."""
