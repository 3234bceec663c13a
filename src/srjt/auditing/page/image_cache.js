// Preloaded images. The elements themselves are kept and shown, so that no image is fetched twice.

const MAX_IMAGES = 12;

export class ImageCache {
  constructor() {
    this.entries = new Map(); // line → { image, state: "loading" | "ready" | "failed", finished: a promise }
  }

  /** The entry of a line; loads the image if it is new. */
  get(line) {
    let entry = this.entries.get(line);
    if (entry) {
      this.entries.delete(line); // set again below: the map is ordered by last use
    } else {
      const image = new Image();
      image.decoding = "async";
      image.draggable = false;
      image.alt = "";
      image.src = `/image/${line}`;
      entry = { image, state: "loading" };
      entry.finished = image.decode().then(
        () => { entry.state = "ready"; },
        () => { entry.state = "failed"; },
      );
    }
    this.entries.set(line, entry);
    for (const [old, { state }] of this.entries) {
      if (this.entries.size <= MAX_IMAGES) break;
      if (state !== "loading") this.entries.delete(old);
    }
    return entry;
  }
}
