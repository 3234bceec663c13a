"""A page on which an expert settles suspicious labels, and the corrected table that comes out of it."""
