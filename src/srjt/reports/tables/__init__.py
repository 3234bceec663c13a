"""The tables of a study: rows, statistics, Markdown, CSV and LaTeX."""
