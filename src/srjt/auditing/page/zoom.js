// Zoom and move one image inside a frame, by wheel, pinch, double click and drag.

const MAX_ZOOM = 16; // screen pixels per image pixel, or sixteen times the fit, whichever is larger

export class Zoom {
  constructor(frame, changed) {
    this.frame = frame;
    this.changed = changed;
    this.image = null;
    this.pointers = new Map();
    new ResizeObserver(() => this.fitted && this.fit()).observe(frame);
    frame.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    frame.addEventListener("dblclick", (e) => this.toggle(e));
    frame.addEventListener("pointerdown", (e) => this.down(e));
    frame.addEventListener("pointermove", (e) => this.move(e));
    for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, (e) => this.pointers.delete(e.pointerId));
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
    this.fitScale = this.scale = Math.min(width / naturalWidth, height / naturalHeight);
    this.x = (width - naturalWidth * this.scale) / 2;
    this.y = (height - naturalHeight * this.scale) / 2;
    this.apply();
  }

  /** Zoom by a factor around the point (x, y) of the frame. */
  by(factor, x = this.frame.clientWidth / 2, y = this.frame.clientHeight / 2) {
    if (!this.image) return;
    const scale = Math.min(this.scale * factor, Math.max(MAX_ZOOM, this.fitScale * MAX_ZOOM));
    if (scale <= this.fitScale * 1.001) return this.fit();
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.fitted = false;
    this.apply();
  }

  apply() {
    const { clientWidth: width, clientHeight: height } = this.frame;
    const imageWidth = this.image.naturalWidth * this.scale;
    const imageHeight = this.image.naturalHeight * this.scale;
    // An image larger than the frame covers it; a smaller one is centred.
    this.x = imageWidth <= width ? (width - imageWidth) / 2 : Math.min(0, Math.max(width - imageWidth, this.x));
    this.y = imageHeight <= height ? (height - imageHeight) / 2 : Math.min(0, Math.max(height - imageHeight, this.y));
    this.image.style.transform = `translate(${this.x}px, ${this.y}px) scale(${this.scale})`;
    this.frame.classList.toggle("movable", !this.fitted);
    this.changed(this.fitted ? null : this.scale / this.fitScale);
  }

  position(event) {
    const box = this.frame.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  wheel(event) {
    if (!this.image) return;
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    this.by(Math.exp(-Math.max(-120, Math.min(120, pixels)) / 300), ...this.position(event));
  }

  toggle(event) {
    if (event.target.closest("button")) return;
    if (this.fitted) this.by(3, ...this.position(event));
    else this.fit();
  }

  down(event) {
    if (event.target.closest("button") || event.button) return;
    this.pointers.set(event.pointerId, this.position(event));
    this.frame.setPointerCapture(event.pointerId);
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before || !this.image) return;
    const now = this.position(event);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    if (other) {
      const distance = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
      this.by(distance(now) / distance(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else if (!this.fitted) {
      this.x += now[0] - before[0];
      this.y += now[1] - before[1];
      this.apply();
    }
  }
}
