"""Labels, noise, losses, selection, metrics and decoding for grades with an order.

Pure functions of tensors and arrays; nothing here knows of images, files or training.
"""
