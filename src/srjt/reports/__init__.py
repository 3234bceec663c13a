"""Figures and tables for people to look at."""
