// Images loaded before they are wanted. The element itself is kept and shown, so that nothing is fetched twice.

const KEPT = 12;

export class Pictures {
  constructor() {
    this.known = new Map(); // line → { image, state: "loading" | "ready" | "failed", settled }
  }

  get(line) {
    let entry = this.known.get(line);
    if (entry) {
      this.known.delete(line); // the last used are the last in the map
    } else {
      const image = new Image();
      image.decoding = "async";
      image.draggable = false;
      image.alt = "";
      image.src = `/image/${line}`;
      entry = { image, state: "loading" };
      entry.settled = image.decode().then(
        () => { entry.state = "ready"; },
        () => { entry.state = "failed"; },
      );
    }
    this.known.set(line, entry);
    for (const [old, { state }] of this.known) {
      if (this.known.size <= KEPT) break;
      if (state !== "loading") this.known.delete(old);
    }
    return entry;
  }
}
