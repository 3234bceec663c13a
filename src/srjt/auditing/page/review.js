// The review page. A decision is shown as done only after the server has confirmed it. Names of grades, patients and
// files are set as textContent, never as HTML.
import { get, post } from "/page/api.js";
import { Audit, DEFAULT_FILTER, filterFromQuery, queryFor } from "/page/audit.js";
import { ImageCache } from "/page/image_cache.js";
import { Zoom } from "/page/zoom.js";

const PRELOAD = 4; // images
const POLL_INTERVAL = 10_000; // ms between two requests for the decisions of others
const MAX_GAP = 60_000; // ms; a longer time between two decisions is a break, not reviewing time

const $ = (id) => document.getElementById(id);
const make = (tag, text = "", className = "") => {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
};
const count = (n) => n.toLocaleString("en-GB");
const percent = (share) => (share > 0 && share < 0.01 ? "<\u00a01\u00a0%" : share < 1 && share > 0.99 ? ">\u00a099\u00a0%" : `${Math.round(100 * share)}\u00a0%`);
const formatTime = (at) => {
  const then = new Date(at);
  const time = then.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const today = then.toDateString() === new Date().toDateString();
  return today ? `today at ${time}` : `on ${then.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" })} at ${time}`;
};

let audit;
let filter = { ...DEFAULT_FILTER };
let lines = []; // those that matched the filter when it was set; decided ones stay, so that you can go back to them
let position = -1; // in lines; -1: no image is shown
let undoable = []; // [revision, line], the last decision last
let busy = false; // waiting for the server to confirm a decision
let comparing = false; // whether similar images are shown
let looking = false; // whether the image is shown with the networks' maps
let map = null; // the canvas that shows them
const gaps = []; // ms between the last decisions
let lastDecision = null; // ms

const images = new ImageCache();
const zoom = new Zoom($("view"), (factor) => ($("zoom-level").textContent = factor ? `${factor.toFixed(1)} ×` : "Fit"));
const current = () => (position < 0 ? null : lines[position]);

// ── Showing ──────────────────────────────────────────────────────────────────────────────────────────────────────

function show(newPosition) {
  position = newPosition;
  $("found").textContent = `${count(lines.length)} ${lines.length === 1 ? "image" : "images"} in the list`;
  const line = current();
  $("finished").hidden = line !== null;
  $("stage").hidden = $("panel").hidden = line === null;
  if (line === null) {
    zoom.show(null);
    showFinished();
  } else {
    showImage(line);
    showPanel();
    if (comparing) showNeighbours(line);
    for (let i = 1, loaded = 0; i < lines.length && loaded < PRELOAD; i++) {
      const next = lines[(position + i) % lines.length];
      if (audit.matches(next, filter)) loaded += Boolean(images.get(next));
    }
    if (position > 0) images.get(lines[position - 1]);
  }
  updateAddressSoon();
}

function showImage(line) {
  if (looking) return showMap(line);
  const entry = images.get(line);
  const showResult = () => {
    if (current() !== line) return;
    const failed = entry.state === "failed";
    zoom.show(failed ? null : entry.image);
    $("placeholder").hidden = !failed;
    $("view").classList.remove("loading");
    if (failed) showImageProblem(line);
  };
  if (entry.state === "loading") {
    zoom.show(null);
    $("placeholder").hidden = true;
    $("view").classList.add("loading");
    entry.finished.then(showResult);
  } else showResult();
}

/** One picture per network, computed when it is asked for: the image above, and below it the same with the map. */
async function showMap(line) {
  $("placeholder").hidden = true;
  $("view").classList.add("loading");
  const picture = new Image();
  picture.src = `/map/${line}`;
  const loaded = await picture.decode().then(() => true, () => false);
  if (current() !== line || !looking) return;
  if (!loaded) {
    look(false);
    return toast(await reason(`/map/${line}`), "warning");
  }
  const [width, height] = [picture.naturalWidth, picture.naturalHeight / 2];
  map = Object.assign(make("canvas"), { width, height, naturalWidth: width, naturalHeight: height, picture });
  map.setAttribute("role", "img");
  map.setAttribute("aria-label", "Where the networks look");
  drawMap();
  $("view").classList.remove("loading");
  zoom.show(map);
}

/** The image with the map over it, as strong as the slider says. */
function drawMap() {
  const [pen, { width, height, picture }] = [map.getContext("2d"), map];
  for (const [row, opacity] of [[0, 1], [1, $("map-strength").value / 100]]) {
    pen.globalAlpha = opacity;
    pen.drawImage(picture, 0, row * height, width, height, 0, 0, width, height);
  }
}

function look(on = !looking) {
  looking = on;
  $("map-legend").hidden = !looking;
  $("look").setAttribute("aria-pressed", String(looking));
  if (current() !== null) showImage(current());
}

/** Why the server refuses something, in its own words. */
async function reason(path) {
  try {
    const answer = await fetch(path);
    return answer.ok ? "The browser cannot show this picture." : await answer.text();
  } catch {
    return "The server does not answer.";
  }
}

async function showImageProblem(line) {
  $("reason").textContent = "";
  const why = await reason(`/pixels/${line}`);
  if (current() === line) $("reason").textContent = why;
}

function showPanel() {
  const line = current();
  const [label, suggested] = [audit.labels[line], audit.suggested[line]];
  const decision = audit.decision(line);
  const agrees = audit.agrees(line);
  $("position").textContent = `${count(position + 1)} of ${count(lines.length)}`;
  $("previous").disabled = position === 0;
  $("next").disabled = position === lines.length - 1;
  $("label").textContent = audit.name(label);
  const suggests = audit.suggests(line);
  const preselected = audit.trusted && suggests;
  $("suggestion").classList.toggle("without", !suggests);
  $("suggestion").textContent = !suggests ? "no suggestion" : agrees ? "the same" : audit.name(suggested);
  $("doubt").classList.toggle("decided", Boolean(decision));
  $("doubt").textContent = decision
    ? `${describe(decision, line)}, ${formatTime(decision.at)}`
    : audit.doubt(line, percent, count);
  showGrades(line, decision);
  // If the suggestion is the label, accepting and keeping are the same: one button, which Enter presses too.
  $("accept").hidden = agrees || !suggests;
  $("accept").firstElementChild.textContent = suggests ? `Accept ${audit.name(suggested)}` : "";
  $("accept").classList.toggle("primary", preselected);
  $("accept").lastElementChild.hidden = !preselected;
  $("keep").classList.toggle("primary", agrees && preselected);
  $("keep").firstElementChild.textContent = `Keep ${audit.name(label)}`;
  $("keep").lastElementChild.textContent = agrees && preselected ? "Enter" : "K";
  $("undo").disabled = undoable.length === 0;
  const selected = audit.selected[line];
  const facts = [
    [audit.network_grades.length > 1 ? "Networks" : "Network", audit.network_grades.map((grades) => audit.name(grades[line])).join(", "), null, whyOthers(line)],
    ["Selected", selected === null ? null : `in ${percent(selected)} of its training batches`],
    ["Patient", audit.patient(line), "patient"],
    ["Reader", audit.reader(line), "reader"],
    ["Id", audit.ids[line]],
    ["Same image", audit.twinsOf(line).map((other) => `${audit.ids[other]}, labelled ${audit.name(audit.labels[other])}`).join("; ")],
    ["Rank", `${count(line + 1)} of ${count(audit.size)}`],
  ];
  $("facts").replaceChildren(...facts.filter(([, value]) => value).map(fact));
}

/** Why networks and suggestion differ; "" if they do not. */
function whyOthers(line) {
  if (!audit.suggests(line) || audit.network_grades.every((grades) => grades[line] === audit.suggested[line])) return "";
  return audit.network_grades.length > 1
    ? "Each network judges the image alone. The suggestion uses both, and what is known about the label."
    : "The network judges the image alone. The suggestion also uses what is known about the label.";
}

function fact([term, value, field, explanation]) {
  const row = make("div");
  const description = make("dd");
  if (field) {
    const link = make("button", value, "link");
    link.type = "button";
    link.title = `Show only this ${field}`;
    link.addEventListener("click", () => setFilter({ ...DEFAULT_FILTER, [field]: value, scope: "all", show: "all" }, audit.ids[current()]));
    description.append(link);
  } else description.textContent = value;
  if (explanation) description.append(make("small", explanation, "soft"));
  row.append(make("dt", term), description);
  return row;
}

/** One button per grade: its key, its name, its probability. A click sets it. */
function showGrades(line, decision) {
  const rows = audit.grades.map((_, grade) => {
    const probability = audit.probability(line, grade);
    const row = make("button", "", "grade");
    row.type = "button";
    row.dataset.grade = grade;
    const tags = [];
    if (grade === audit.labels[line]) { tags.push("label"); row.classList.add("is-label"); }
    if (audit.judged && grade === audit.suggested[line]) { tags.push("suggested"); row.classList.add("is-suggested"); }
    const chosen = decision && decision.action !== "skip" && decision.grade === grade;
    row.classList.toggle("is-decided", Boolean(chosen));
    row.setAttribute("aria-pressed", chosen ? "true" : "false");
    row.append(make("kbd", audit.keys[grade]), make("span", audit.name(grade), "name"),
      make("span", chosen ? "✓" : tags.join(" · "), "tag"));
    if (audit.hasNumber(line)) {
      const bar = make("span", "", "bar judgement");
      const filled = make("span");
      filled.style.width = `${100 * probability}%`;
      bar.append(filled);
      row.append(make("span", percent(probability), "share judgement"), bar);
    }
    row.addEventListener("click", () => decide("set", grade));
    return row;
  });
  $("grades").replaceChildren(...rows);
}

/** For example "anna set Mayo 1". */
function describe(decision, line) {
  const reviewer = decision.reviewer === audit.reviewer ? "You" : decision.reviewer;
  const grade = decision.grade === null ? "a grade of another audit" : audit.name(decision.grade);
  if (decision.action === "skip") return `${reviewer} skipped this`;
  if (decision.grade === audit.labels[line]) return `${reviewer} kept ${grade}`;
  return `${reviewer} set ${grade}`;
}

function showProgress() {
  const { queue, reviewed, beyond, changed, skipped, remaining_noise: noise } = audit.progress;
  const beyondText = beyond ? ` and ${count(beyond)} beyond` : "";
  const skippedText = skipped ? `, ${count(skipped)} skipped` : "";
  const noiseText = noise === null ? "" : `, estimated remaining noise ${percent(noise)}`;
  const text = `${count(reviewed)} of ${count(queue)} reviewed${beyondText}, ${count(changed)} changed${skippedText}${noiseText}`;
  const left = queue - reviewed - skipped;
  $("progress").replaceChildren(make("span", text), make("span", left > 0 && gaps.length >= 5 ? ` · about ${estimatedTime(left)} left` : "", "soft"));
  $("meter").style.width = `${(100 * (reviewed + skipped)) / queue}%`;
  document.title = `${count(reviewed)} of ${count(queue)} · Review`;
}

function estimatedTime(left) {
  const sorted = gaps.slice(-20).sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)];
  const minutes = (left * median) / 60_000;
  return minutes < 1 ? "a minute" : minutes < 90 ? `${Math.round(minutes)} min` : `${Math.round(minutes / 60)} h`;
}

function showFinished() {
  const { queue, reviewed, beyond, changed, skipped } = audit.progress;
  const all = reviewed + skipped >= queue && filter.show === "todo";
  const narrowed = Object.keys(DEFAULT_FILTER).some((name) => name !== "show" && name !== "scope" && filter[name] !== DEFAULT_FILTER[name]);
  const allTitle = skipped ? `All reviewed except ${count(skipped)} skipped` : "All reviewed";
  $("finished-title").textContent = all && !narrowed ? allTitle : lines.length ? "No more images match this filter" : "No image matches this filter";
  $("finished-text").textContent = $("progress").firstElementChild.textContent + ".";
  const buttons = [];
  const addButton = (text, newFilter) => {
    const button = make("button", text, buttons.length ? "" : "primary");
    button.type = "button";
    button.addEventListener("click", () => setFilter(newFilter));
    buttons.push(button);
  };
  if (narrowed || (filter.show !== "todo" && !all)) addButton("Reset the filter", DEFAULT_FILTER);
  if (skipped && filter.show !== "skipped") addButton(`Show the skipped (${count(skipped)})`, { ...DEFAULT_FILTER, show: "skipped" });
  if (filter.scope === "doubtful" && audit.size - queue - beyond > 0) addButton("Continue with the other labels", { ...DEFAULT_FILTER, scope: "all" });
  if (changed && filter.show !== "changed") addButton(`Show the changed (${count(changed)})`, { ...DEFAULT_FILTER, scope: "all", show: "changed" });
  $("finished-actions").replaceChildren(...buttons);
  $("export").textContent = `srjt review export ${/^[\w./-]+$/.test(audit.folder) ? audit.folder : `'${audit.folder.replaceAll("'", "'\\''")}'`} --out labels_clean.csv`;
}

let toastTimer;
function toast(text, kind = "") {
  const element = $("toast");
  element.className = "";
  void element.offsetWidth; // restarts the animation, so that the same text twice is seen twice
  element.textContent = text;
  element.className = `visible ${kind}`;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (element.className = ""), kind ? 5000 : 2500);
}

function showError(text) {
  $("error").hidden = !text;
  $("error").textContent = text ?? "";
}

// ── Deciding ─────────────────────────────────────────────────────────────────────────────────────────────────────

async function decide(action, grade = null) {
  const line = current();
  if (line === null || busy) return;
  if (images.get(line).state === "loading") return toast("The image is still loading.");
  busy = true;
  const now = Date.now();
  try {
    const answer = await post("/api/decide", { line, id: audit.ids[line], action, grade, seen: audit.seen(line), since: audit.revision });
    showError(null);
    audit.update(answer);
    undoable.push([answer.decided, line]);
    if (lastDecision && now - lastDecision < MAX_GAP) gaps.push(now - lastDecision);
    lastDecision = now;
    const result = audit.decision(line);
    const [from, to] = [audit.name(audit.labels[line]), audit.name(result.grade)];
    toast(action === "skip" ? "Skipped · Z to undo" : from === to ? `Kept ${to} · Z to undo` : `${from} → ${to} · Z to undo`);
    showProgress();
    if (current() === line) advance();
  } catch (error) {
    if (error.status === 409) resolveConflict(line, action, grade, error.answer);
    else showRequestError(error);
  } finally {
    busy = false;
  }
}

/** Show the next image that matches the filter, from the beginning after the last; if there is none, the end. */
function advance() {
  const matches = (line) => audit.matches(line, filter);
  let next = lines.findIndex((line, i) => i > position && matches(line));
  const shrinks = ["todo", "skipped"].includes(filter.show) && !filter.q; // decided images leave the list
  if (next < 0 && shrinks) next = lines.findIndex((line, i) => i !== position && matches(line));
  if (next < 0 && !shrinks) {
    showPanel();
    return;
  }
  show(next);
}

async function undo() {
  if (busy) return;
  if (!undoable.length) return toast("There is nothing to undo.");
  busy = true;
  const [revision, line] = undoable.at(-1);
  try {
    audit.update(await post("/api/undo", { revision, since: audit.revision }));
    showError(null);
    undoable.pop();
    toast(`Undone: ${audit.ids[line]}`);
  } catch (error) {
    if (error.status !== 409) return showRequestError(error);
    undoable.pop();
    audit.update(error.answer);
    const decision = error.answer.current;
    toast(decision ? `Not undone: ${describe(decision, line)} since.` : "That was undone already.", "warning");
  } finally {
    busy = false;
  }
  showProgress();
  if (!lines.includes(line)) lines.splice(Math.max(position, 0), 0, line);
  show(lines.indexOf(line));
}

/** Another reviewer, or another tab, has decided about this image since it was shown here: ask which decision counts. */
function resolveConflict(line, action, grade, answer) {
  audit.update(answer);
  showProgress();
  showPanel();
  const theirs = answer.current;
  const mine = action === "set" ? grade : action === "accept" ? audit.suggested[line] : audit.labels[line];
  if (!theirs) return toast("The decision about this image was undone in the meantime: decide again.", "warning");
  if ((theirs.action === "skip") === (action === "skip") && theirs.grade === mine) {
    toast(`${describe(theirs, line)} in the meantime, as you did.`);
    return advance();
  }
  const otherTab = theirs.reviewer === audit.reviewer;
  $("conflict-text").textContent = `${audit.ids[line]} was decided ${otherTab ? "in another tab" : `by ${theirs.reviewer}`} while it was open here.`;
  $("conflict-reviewer").textContent = `${otherTab ? "You, in another tab" : theirs.reviewer}, ${formatTime(theirs.at)}`;
  $("conflict-theirs").textContent = theirs.action === "skip" ? "skipped" : theirs.grade === null ? "?" : audit.name(theirs.grade);
  $("conflict-mine").textContent = action === "skip" ? "skip" : audit.name(mine);
  $("keep-theirs").firstElementChild.textContent = otherTab ? "Keep the earlier" : "Keep theirs";
  const dialog = $("conflict");
  dialog.returnValue = "";
  dialog.onclose = () => {
    if (dialog.returnValue === "mine") decide(action, grade);
    else advance();
  };
  dialog.showModal();
}

function showRequestError(error) {
  if (error.status === 0) {
    showError("The server does not answer. Every decision that was shown as done is on disk. Start srjt review again and open the address it prints.");
  } else if (error.status === 403) {
    showError("The server was restarted: open the address that it printed.");
  } else {
    showError(error.message);
  }
}

async function poll() {
  if (busy || document.hidden) return;
  try {
    const updates = await get(`/api/updates?since=${audit.revision}`);
    showError(null);
    audit.update(updates);
    if (!updates.changes.length) return;
    showProgress();
    const change = updates.changes.find(({ line }) => line === current());
    if (position >= 0 && !$("conflict").open) showPanel();
    if (change?.decision && change.decision.reviewer !== audit.reviewer) toast(`${describe(change.decision, current())} just now.`, "warning");
  } catch (error) {
    showRequestError(error);
  }
}

// ── Similar images ───────────────────────────────────────────────────────────────────────────────────────────────

function compare(on = !comparing) {
  if (on && !audit.has_neighbours) return toast("This audit has no similar images.");
  comparing = on;
  $("compare").setAttribute("aria-pressed", String(comparing));
  $("neighbours").hidden = !comparing;
  $("stage").classList.toggle("comparing", comparing);
  if (comparing && current() !== null) showNeighbours(current());
}

async function showNeighbours(line) {
  let neighbours;
  try {
    neighbours = await get(`/api/neighbours/${line}`);
  } catch (error) {
    return showRequestError(error);
  }
  if (current() !== line || !comparing) return;
  const rows = neighbours.map((others, grade) => {
    const row = make("section", "", "row");
    row.classList.toggle("is-label", grade === audit.labels[line]);
    row.classList.toggle("is-suggested", audit.judged && grade === audit.suggested[line]);
    const heading = make("h2");
    heading.append(make("kbd", audit.keys[grade]), make("span", ` ${audit.name(grade)}`));
    const strip = make("div", "", "strip");
    strip.append(...others.map((other) => neighbourButton(other)));
    if (!others.length) strip.append(make("p", "no images", "soft"));
    row.append(heading, strip);
    return row;
  });
  const below = audit.judged && audit.determined ? "Below each: the probability that its label is right, or ✓ and the reviewed grade. " : "";
  $("neighbours").replaceChildren(make("p", `The most similar images of each grade. ${below}Click to enlarge.`, "soft lead"), ...rows);
}

function neighbourButton(line) {
  const button = make("button", "", "similar");
  button.type = "button";
  const image = new Image();
  image.src = `/thumb/${line}`;
  image.alt = audit.ids[line];
  image.addEventListener("error", () => image.replaceWith(make("span", "cannot be read", "soft")));
  const decision = audit.decision(line);
  const reviewed = decision && decision.action !== "skip";
  const caption = reviewed ? `✓ ${decision.grade === null ? "?" : audit.name(decision.grade)}` : audit.hasNumber(line) ? percent(audit.quality[line]) : "";
  button.append(image, make("small", caption, reviewed || !audit.hasNumber(line) || audit.quality[line] >= 0.5 ? "" : "doubtful"));
  button.title = audit.ids[line];
  button.addEventListener("click", () => enlarge(line, button));
  return button;
}

function enlarge(line, opener) {
  const large = make("button", "", "enlarged");
  large.type = "button";
  large.setAttribute("aria-label", "Back to the similar images");
  const image = new Image();
  image.src = `/image/${line}`;
  image.alt = audit.ids[line];
  const right = audit.hasNumber(line) ? ` · right with probability ${percent(audit.quality[line])}` : "";
  large.append(image, make("span", `${audit.name(audit.labels[line])} · ${audit.ids[line]}${right}`));
  large.addEventListener("click", () => { large.remove(); opener.focus(); });
  $("neighbours").append(large);
  large.focus();
}

// ── Filtering ────────────────────────────────────────────────────────────────────────────────────────────────────

function setFilter(newFilter, id = null) {
  filter = { ...newFilter };
  for (const [name, value] of Object.entries(filter)) {
    const field = $("filters").elements[name];
    if (field && field.value !== value) field.value = value;
    if (field && field.value !== value) filter[name] = field.value || DEFAULT_FILTER[name]; // an invalid value in the address
  }
  lines = audit.matching(filter);
  const requested = id === null ? -1 : lines.findIndex((line) => audit.ids[line] === id);
  showChips();
  show(requested >= 0 ? requested : lines.length ? 0 : -1);
}

const STATES = { todo: "to do", done: "reviewed", changed: "changed", kept: "kept", skipped: "skipped", all: "all" };

function showChips() {
  const describeField = {
    q: (v) => `id “${v}”`, scope: () => "all labels", show: (v) => STATES[v], grade: (v) => `labelled ${audit.name(v)}`,
    suggested: (v) => `suggested ${audit.name(v)}`, patient: (v) => `patient ${v}`, reader: (v) => `reader ${v}`,
    min: (v) => `right ≥ ${v} %`, max: (v) => `right ≤ ${v} %`,
  };
  const chips = Object.keys(DEFAULT_FILTER).filter((name) => filter[name] !== DEFAULT_FILTER[name]).map((name) => {
    const chip = make("button", describeField[name](filter[name]), "chip");
    chip.type = "button";
    chip.setAttribute("aria-label", `Remove the filter ${chip.textContent}`);
    chip.addEventListener("click", () => setFilter({ ...filter, [name]: DEFAULT_FILTER[name] }));
    return chip;
  });
  $("chips").replaceChildren(...chips);
}

function readFilters() {
  const fields = $("filters").elements;
  setFilter(Object.fromEntries(Object.keys(DEFAULT_FILTER).map((name) => [name, fields[name].value.trim()])));
}

function fillFilters() {
  const fields = $("filters").elements;
  const fill = (name, options) => fields[name].replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  const grades = audit.grades.map((_, grade) => [String(grade), audit.name(grade)]);
  fill("scope", [["doubtful", audit.judged ? `${count(audit.queue)} most doubtful` : `the first ${count(audit.queue)}`], ["all", `all ${count(audit.size)}`]]);
  fill("show", Object.entries(STATES));
  fill("grade", [["", "any"], ...grades]);
  fill("suggested", [["", "any"], ...grades]);
  const byName = (a, b) => a.localeCompare(b, "en", { numeric: true });
  if (audit.readers) fill("reader", [["", "any"], ...[...audit.readers.names].sort(byName).map((name) => [name, name])]);
  else fill("reader", [["", "any"]]);
  $("reader-field").hidden = !audit.readers;
  $("patient-field").hidden = !audit.patients;
  if (audit.patients) {
    const names = [...audit.patients.names].sort(byName).slice(0, 2000); // a longer list is slow, and of no help
    $("patients").replaceChildren(...names.map((name) => new Option(name, name)));
  }
}

let addressTimer;
function updateAddressSoon() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(updateAddress, 200); // browsers limit how often the address may change
}
function updateAddress() {
  clearTimeout(addressTimer);
  const line = current();
  history.replaceState(null, "", location.pathname + queryFor(filter, line === null ? null : audit.ids[line]));
}

function openFilters(open) {
  $("filters").hidden = !open;
  $("filter-button").setAttribute("aria-expanded", String(open));
  if (open) $("filters").elements.q.focus();
  else document.activeElement.blur();
}

// ── Keys and buttons ─────────────────────────────────────────────────────────────────────────────────────────────

const KEYS = [
  ["Enter", "accept the suggestion", pressEnter],
  ["K", "keep the label", () => decide("keep")],
  ["S", "skip: decide later", () => decide("skip")],
  ["Z", "undo; again for earlier decisions", undo],
  ["←", "previous image", () => position !== 0 && lines.length && show((position < 0 ? lines.length : position) - 1)],
  ["→", "next image", () => position >= 0 && position < lines.length - 1 && show(position + 1)],
  ["N", "similar images of each grade", () => compare()],
  ["W", "heat map: where the networks look", () => current() !== null && look()],
  ["+", "zoom in; also by wheel, pinch or double click", () => zoom.by(1.4)],
  ["−", "zoom out; drag to move", () => zoom.by(1 / 1.4)],
  ["F", "fit the image to the window", () => zoom.fit()],
  ["/", "filter, find an id", () => openFilters(true)],
  ["?", "this list", () => $("help").showModal()],
  ["Esc", "close", closeTopmost],
];
const ALIASES = { ArrowLeft: "←", ArrowRight: "→", Escape: "Esc", "-": "−", "=": "+" };
const MAY_REPEAT = new Set(["←", "→", "+", "−"]); // holding down any other key must not grade the next image too

/** Nothing is preselected if the networks do not beat a naive prediction, and where no grade is suggested. */
function pressEnter() {
  if (audit.trusted && (current() === null || audit.suggests(current()))) accept();
  else toast("Set a grade by its number, or keep the label with K.");
}

function accept() {
  const line = current();
  if (line !== null) decide(audit.agrees(line) ? "keep" : "accept");
}

function closeTopmost() {
  const enlarged = document.querySelector(".enlarged");
  if (enlarged) enlarged.click();
  else if (!$("filters").hidden) openFilters(false);
  else if (comparing) compare(false);
}

function onKey(event) {
  const ctrlZ = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !event.shiftKey;
  if ((event.ctrlKey || event.metaKey || event.altKey) && !ctrlZ) return;
  const key = ALIASES[event.key] ?? (event.key.length === 1 ? event.key.toUpperCase() : event.key);
  if ($("conflict").open) {
    if (key === "M" && !event.repeat) $("conflict").close("mine");
    return;
  }
  if ($("help").open) return;
  const typing = event.target.closest?.("#filters input, select") || (event.target.id === "map-strength" && /[←→]/.test(key));
  if (typing && key !== "Esc") return;
  if (key === "Enter" && event.target.closest?.("button")) return; // Enter presses the focused button
  const grade = key === "" ? -1 : audit.keys.indexOf(key);
  const command = KEYS.find(([name]) => name === key)?.[2];
  if (grade < 0 && !command) return;
  event.preventDefault();
  if (event.repeat && !MAY_REPEAT.has(key)) return;
  if (grade >= 0) decide("set", grade);
  else command();
}

function listen() {
  document.addEventListener("keydown", onKey);
  // The focus must not stay on a clicked button, or Enter would press it again.
  document.addEventListener("click", (e) => e.detail && e.target.closest("button")?.blur());
  const clicks = {
    accept, keep: () => decide("keep"), skip: () => decide("skip"), undo, compare: () => compare(), look: () => look(),
    previous: () => show(position - 1), next: () => show(position + 1),
    "zoom-in": () => zoom.by(1.4), "zoom-out": () => zoom.by(1 / 1.4), "zoom-fit": () => zoom.fit(),
    "filter-button": () => openFilters($("filters").hidden), "help-button": () => $("help").showModal(),
    reset: () => setFilter(DEFAULT_FILTER),
    "keep-theirs": () => $("conflict").close(""), "use-mine": () => $("conflict").close("mine"),
  };
  for (const [id, command] of Object.entries(clicks)) $(id).addEventListener("click", command);
  $("map-strength").addEventListener("input", () => map && drawMap());
  let typingTimer;
  $("filters").addEventListener("input", () => {
    clearTimeout(typingTimer);
    typingTimer = setTimeout(readFilters, 120);
  });
  $("filters").addEventListener("submit", (event) => {
    event.preventDefault();
    openFilters(false);
  });
  addEventListener("pagehide", updateAddress);
  document.addEventListener("visibilitychange", poll);
  setInterval(poll, POLL_INTERVAL);
}

function listKeys() {
  const digits = audit.keys.filter(Boolean);
  const named = audit.grades.every((grade, code) => audit.keys[code] && grade.includes(audit.keys[code]));
  const grades = audit.grades.map((_, code) => `${audit.keys[code]}\u00a0${audit.name(code).replaceAll(" ", "\u00a0")}`).join(", ");
  const rows = [[`${digits[0]} – ${digits.at(-1)}`, named ? "set the grade with this number" : `set the grade: ${grades}`],
    ...KEYS.filter(([key]) => audit.trusted || key !== "Enter")];
  $("keys").replaceChildren(...rows.map(([key, meaning]) => {
    const row = make("div");
    const term = make("dt");
    term.append(make("kbd", key));
    row.append(term, make("dd", meaning));
    return row;
  }));
}

async function start() {
  try {
    const [columns, updates] = await Promise.all([get("/api/samples"), get("/api/updates?since=0")]);
    audit = new Audit(columns);
    audit.update(updates);
    undoable = updates.undoable;
  } catch (error) {
    return showRequestError(error);
  }
  document.body.classList.toggle("unjudged", !audit.judged);
  document.body.classList.toggle("nothing-suggested", !audit.labels.some((_, line) => audit.suggests(line) && !audit.agrees(line)));
  document.body.classList.toggle("undetermined", !audit.determined);
  document.body.style.setProperty("--rows", Math.ceil(audit.grades.length / 2));
  $("notice").hidden = !audit.notice;
  $("notice").textContent = audit.notice;
  fillFilters();
  listKeys();
  showProgress();
  setFilter(filterFromQuery(location.search), new URLSearchParams(location.search).get("at"));
  listen();
  document.body.classList.add("ready");
}

start();
