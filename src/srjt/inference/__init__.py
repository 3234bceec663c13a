"""Using a trained run: predict, evaluate, embed, export."""
