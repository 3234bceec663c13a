// The samples, the decisions about them, and the filter.
import { gradeName } from "/page/grade_name.js";

const STEPS = [1, 2, 5].flatMap((first) => [10, 100, 1000, 10_000].map((power) => first * power)).sort((a, b) => a - b);

export class Audit {
  constructor(columns) {
    Object.assign(this, columns); // see ReviewSession.samples_json in app.py
    this.size = this.ids.length;
    this.changes = new Map(); // line → { seen: last revision, decision }
    this.revision = 0;
    this.progress = null;
    this.lowerCaseIds = null; // made at the first search
  }

  /** Apply the changes that the server reports. */
  update(updates) {
    for (const { line, seen, decision } of updates.changes) this.changes.set(line, { seen, decision });
    this.revision = Math.max(this.revision, updates.revision);
    this.progress = updates.progress;
  }

  seen = (line) => this.changes.get(line)?.seen ?? 0;
  decision = (line) => this.changes.get(line)?.decision ?? null;
  agrees = (line) => this.suggested[line] === this.labels[line];
  suggests = (line) => this.judged && this.suggested[line] >= 0;
  patient = (line) => (this.patients ? this.patients.names[this.patients.codes[line]] : null);
  reader = (line) => (this.readers ? this.readers.names[this.readers.codes[line]] : null);
  isVerified = (line) => this.verified[line] >= 0;
  isRecognised = (line) => !this.unrecognised.includes(this.labels[line]);
  /** Whether the probability that a label is right means what it says: else only the order of the labels is shown. */
  hasNumber = (line) => this.judged && this.determined && this.isRecognised(line) && !this.isVerified(line);

  /** How doubtful a label is, in one sentence. */
  doubt(line, percent, count) {
    if (this.isVerified(line)) return `Verified: ${this.name(this.verified[line])}.`;
    if (!this.judged) return "No grade is suggested.";
    if (!this.isRecognised(line)) return `The networks do not recognise ${this.name(this.labels[line])}: their doubt says little.`;
    if (this.determined) return `The label is right with probability ${percent(this.quality[line])}.`;
    const most = STEPS.find((step) => line < step) ?? this.size;
    return most < this.size ? `Among the ${count(most)} most doubtful labels of ${count(this.size)}.` : `One of ${count(this.size)} labels, in the order of doubt.`;
  }

  probability = (line, grade) => this.probabilities[line * this.grades.length + grade] / 10_000;

  /** The lines with the same image and another label. They come first, one after the other. */
  twinsOf(line) {
    const pair = this.twins?.[line];
    if (!pair) return [];
    const first = this.twins.indexOf(pair);
    return this.ids.slice(first, this.twins.lastIndexOf(pair) + 1).map((_, offset) => first + offset).filter((other) => other !== line);
  }

  name = (grade) => this.names?.[grade] ?? gradeName(this.grades[grade]);

  state(line) {
    const decision = this.decision(line);
    if (!decision) return "todo";
    if (decision.action === "skip") return "skipped";
    return decision.grade === this.labels[line] ? "kept" : "changed";
  }

  /** Whether a line matches the filter with the current decisions. */
  matches(line, filter) {
    if (filter.q) {
      // An id is searched among all samples, reviewed or not.
      this.lowerCaseIds ??= this.ids.map((id) => id.toLowerCase());
      if (!this.lowerCaseIds[line].includes(filter.q.toLowerCase())) return false;
    } else {
      if (filter.scope === "doubtful" && line >= this.queue) return false;
      if (filter.show !== "all") {
        const state = this.state(line);
        const reviewed = state === "kept" || state === "changed";
        if (filter.show === "done" ? !reviewed : state !== filter.show) return false;
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

  /** All lines that match, the most doubtful first. */
  matching(filter) {
    const lines = [];
    for (let line = 0; line < this.size; line++) if (this.matches(line, filter)) lines.push(line);
    return lines;
  }
}

export const DEFAULT_FILTER = {
  q: "", scope: "doubtful", show: "todo", grade: "", suggested: "", patient: "", reader: "", min: "", max: "",
};

/** The filter in the query of an address; missing fields have their defaults. */
export function filterFromQuery(query) {
  const given = new URLSearchParams(query);
  const filter = { ...DEFAULT_FILTER };
  for (const name of Object.keys(filter)) if (given.has(name)) filter[name] = given.get(name);
  return filter;
}

/** The query of the address for a filter and the id of the image shown. */
export function queryFor(filter, id) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filter)) if (value !== DEFAULT_FILTER[name]) query.set(name, value);
  if (id !== null) query.set("at", id);
  return query.size ? `?${query}` : "";
}
