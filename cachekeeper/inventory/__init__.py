"""What a cache holds, read from its files without unpickling or loading anything."""
