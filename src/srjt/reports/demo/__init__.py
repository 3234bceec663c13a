"""The demo: what it trains, what came out, and what can be said about it."""
