"""From image files to batches on the device: decode, build a store, feed batches, augment."""
