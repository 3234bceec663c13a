// Wheel, pinch, double click and drag on one image inside a frame.

const MOST = 16; // screen pixels per image pixel, or sixteen times the fit, whichever is larger

export class Zoom {
  constructor(frame, changed) {
    this.frame = frame;
    this.changed = changed;
    this.image = null;
    this.fingers = new Map();
    new ResizeObserver(() => this.fitted && this.fit()).observe(frame);
    frame.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    frame.addEventListener("dblclick", (e) => this.toggle(e));
    frame.addEventListener("pointerdown", (e) => this.down(e));
    frame.addEventListener("pointermove", (e) => this.move(e));
    for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, (e) => this.fingers.delete(e.pointerId));
  }

  show(image) {
    this.image?.remove();
    this.image = image;
    if (!image) return;
    this.frame.prepend(image);
    this.fit();
  }

  fit() {
    this.fitted = true;
    const { clientWidth: width, clientHeight: height } = this.frame;
    if (!this.image || !width || !this.image.naturalWidth) return;
    const { naturalWidth, naturalHeight } = this.image;
    this.least = this.scale = Math.min(width / naturalWidth, height / naturalHeight);
    this.x = (width - naturalWidth * this.scale) / 2;
    this.y = (height - naturalHeight * this.scale) / 2;
    this.apply();
  }

  /** Larger or smaller by a factor, with the point (x, y) of the frame staying where it is. */
  by(factor, x = this.frame.clientWidth / 2, y = this.frame.clientHeight / 2) {
    if (!this.image) return;
    const wanted = Math.min(this.scale * factor, Math.max(MOST, this.least * MOST));
    if (wanted <= this.least * 1.001) return this.fit();
    this.x = x - ((x - this.x) * wanted) / this.scale;
    this.y = y - ((y - this.y) * wanted) / this.scale;
    this.scale = wanted;
    this.fitted = false;
    this.apply();
  }

  apply() {
    const { clientWidth: width, clientHeight: height } = this.frame;
    const wide = this.image.naturalWidth * this.scale;
    const high = this.image.naturalHeight * this.scale;
    // An image larger than the frame covers it; a smaller one is in its middle.
    this.x = wide <= width ? (width - wide) / 2 : Math.min(0, Math.max(width - wide, this.x));
    this.y = high <= height ? (height - high) / 2 : Math.min(0, Math.max(height - high, this.y));
    this.image.style.transform = `translate(${this.x}px, ${this.y}px) scale(${this.scale})`;
    this.frame.classList.toggle("movable", !this.fitted);
    this.changed(this.fitted ? null : this.scale / this.least);
  }

  at(event) {
    const box = this.frame.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  wheel(event) {
    if (!this.image) return;
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    this.by(Math.exp(-Math.max(-120, Math.min(120, pixels)) / 300), ...this.at(event));
  }

  toggle(event) {
    if (event.target.closest("button")) return;
    if (this.fitted) this.by(3, ...this.at(event));
    else this.fit();
  }

  down(event) {
    if (event.target.closest("button") || event.button) return;
    this.fingers.set(event.pointerId, this.at(event));
    this.frame.setPointerCapture(event.pointerId);
  }

  move(event) {
    const before = this.fingers.get(event.pointerId);
    if (!before || !this.image) return;
    const now = this.at(event);
    const other = [...this.fingers].find(([id]) => id !== event.pointerId)?.[1];
    this.fingers.set(event.pointerId, now);
    if (other) {
      const apart = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
      this.by(apart(now) / apart(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else if (!this.fitted) {
      this.x += now[0] - before[0];
      this.y += now[1] - before[1];
      this.apply();
    }
  }
}
