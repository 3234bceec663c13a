// The samples and what has been decided about them; which of them a filter wants.

export class Audit {
  constructor(columns) {
    Object.assign(this, columns); // see Desk.columns in server.py
    this.size = this.ids.length;
    this.marks = new Map(); // line → { seen, decision }
    this.revision = 0;
    this.progress = null;
    this.lower = null; // ids in lower case, once they are searched
  }

  /** Take in what the server says has happened. */
  absorb(news) {
    for (const { line, seen, decision } of news.marks) this.marks.set(line, { seen, decision });
    this.revision = Math.max(this.revision, news.revision);
    this.progress = news.progress;
  }

  seen = (line) => this.marks.get(line)?.seen ?? 0;
  decision = (line) => this.marks.get(line)?.decision ?? null;
  patient = (line) => (this.patients ? this.patients.names[this.patients.of[line]] : null);
  reader = (line) => (this.readers ? this.readers.names[this.readers.of[line]] : null);
  probability = (line, grade) => this.probabilities[line * this.grades.length + grade] / 1000;

  /** "2" alone would look like the key beside it. */
  name = (grade) => (/^\d+$/.test(this.grades[grade]) ? `Grade ${this.grades[grade]}` : this.grades[grade]);

  state(line) {
    const decision = this.decision(line);
    if (!decision) return "todo";
    if (decision.action === "skip") return "skipped";
    return decision.grade === this.labels[line] ? "kept" : "changed";
  }

  /** Whether a line fits the filter as things stand now. */
  fits(line, filter) {
    if (filter.q) {
      // who looks for an id wants it found, wherever it is
      this.lower ??= this.ids.map((id) => id.toLowerCase());
      if (!this.lower[line].includes(filter.q.toLowerCase())) return false;
    } else {
      if (filter.scope === "doubtful" && line >= this.queue) return false;
      if (filter.show !== "all") {
        const state = this.state(line);
        const wanted = filter.show === "done" ? state === "kept" || state === "changed" : state === filter.show;
        if (!wanted) return false;
      }
    }
    if (filter.grade !== "" && this.labels[line] !== Number(filter.grade)) return false;
    if (filter.suggested !== "" && this.suggested[line] !== Number(filter.suggested)) return false;
    if (filter.patient && this.patient(line) !== filter.patient) return false;
    if (filter.reader && this.reader(line) !== filter.reader) return false;
    if (filter.min !== "" && 100 * this.quality[line] < Number(filter.min)) return false;
    if (filter.max !== "" && 100 * this.quality[line] > Number(filter.max)) return false;
    return true;
  }

  /** All lines that fit, the most doubtful first. */
  matching(filter) {
    const lines = [];
    for (let line = 0; line < this.size; line++) if (this.fits(line, filter)) lines.push(line);
    return lines;
  }
}

export const UNFILTERED = {
  q: "", scope: "doubtful", show: "todo", grade: "", suggested: "", patient: "", reader: "", min: "", max: "",
};

/** The filter that an address holds; what it does not say is as usual. */
export function filterFrom(search) {
  const given = new URLSearchParams(search);
  const filter = { ...UNFILTERED };
  for (const name of Object.keys(filter)) if (given.has(name)) filter[name] = given.get(name);
  return filter;
}

export function searchOf(filter, at) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(filter)) if (value !== UNFILTERED[name]) said.set(name, value);
  if (at !== null) said.set("at", at);
  return said.size ? `?${said}` : "";
}
