// Browsers refuse workers to pages that are opened from a disk. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      this.waiting = []
      frame.addEventListener("load", () => this.start(frame.contentWindow, url), { once: true })
      document.body.appendChild(frame)
    }

    start(inside, url) {
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      script.src = url
      script.addEventListener("load", () => {
        const waiting = this.waiting
        this.waiting = undefined
        this.postMessage = data => inside.dispatchEvent(new inside.MessageEvent("message", { data }))
        waiting.forEach(data => this.postMessage(data))
      })
      inside.document.body.appendChild(script)
    }

    postMessage(data) {
      this.waiting.push(data)
    }

    terminate() {}
  }
}
