"""From image files to batches on the device: decode, store, feed, augment."""
