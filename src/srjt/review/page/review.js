// The review page. What the server has not confirmed is not shown as done; text is only ever set as text.
import { Audit, UNFILTERED, filterFrom, searchOf } from "/page/audit.js";
import { Pictures } from "/page/pictures.js";
import { get, post } from "/page/server.js";
import { Zoom } from "/page/zoom.js";

const AHEAD = 4; // images loaded before they are wanted
const LOOK_AGAIN = 10_000; // ms between two questions what others have decided
const PAUSE = 60_000; // ms; who took longer was away

const $ = (id) => document.getElementById(id);
const make = (tag, text = "", className = "") => {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
};
const count = (n) => n.toLocaleString("en-GB");
const percent = (share) => (share > 0 && share < 0.01 ? "<\u00a01\u00a0%" : share < 1 && share > 0.99 ? ">\u00a099\u00a0%" : `${Math.round(100 * share)}\u00a0%`);
const when = (at) => {
  const then = new Date(at);
  const time = then.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const today = then.toDateString() === new Date().toDateString();
  return today ? `today at ${time}` : `on ${then.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" })} at ${time}`;
};

let audit;
let filter = { ...UNFILTERED };
let lines = []; // what fitted the filter when it was set; what is decided stays, so that one can go back to it
let place = -1; // in lines; -1: nothing is shown
let undoable = []; // [revision, line], the last decision last
let busy = false; // a decision is on its way
let comparing = false;
const gaps = []; // ms between the last decisions
let lastDecision = null;

const pictures = new Pictures();
const zoom = new Zoom($("view"), (factor) => ($("zoom-level").textContent = factor ? `${factor.toFixed(1)} ×` : "Fit"));
const current = () => (place < 0 ? null : lines[place]);

// ── Showing ──────────────────────────────────────────────────────────────────────────────────────────────────────

function show(newPlace) {
  place = newPlace;
  const line = current();
  $("finished").hidden = line !== null;
  $("stage").hidden = $("panel").hidden = line === null;
  if (line === null) {
    zoom.show(null);
    showFinished();
  } else {
    showPicture(line);
    showPanel();
    if (comparing) showNeighbours(line);
    for (let i = 1, found = 0; i < lines.length && found < AHEAD; i++) {
      const next = lines[(place + i) % lines.length];
      if (audit.fits(next, filter)) found += Boolean(pictures.get(next));
    }
    if (place > 0) pictures.get(lines[place - 1]);
  }
  rememberInAddress();
}

function showPicture(line) {
  const entry = pictures.get(line);
  const settle = () => {
    if (current() !== line) return;
    const failed = entry.state === "failed";
    zoom.show(failed ? null : entry.image);
    $("placeholder").hidden = !failed;
    $("view").classList.remove("loading");
    if (failed) explain(line);
  };
  if (entry.state === "loading") {
    zoom.show(null);
    $("placeholder").hidden = true;
    $("view").classList.add("loading");
    entry.settled.then(settle);
  } else settle();
}

async function explain(line) {
  $("reason").textContent = "";
  let said;
  try {
    said = (await get(`/api/problem/${line}`)).problem;
  } catch (problem) {
    said = problem.message;
  }
  if (current() === line) $("reason").textContent = said;
}

function showPanel() {
  const line = current();
  const [label, suggested] = [audit.labels[line], audit.suggested[line]];
  const decision = audit.decision(line);
  const same = label === suggested;
  $("place").textContent = `${count(place + 1)} of ${count(lines.length)}`;
  $("previous").disabled = place === 0;
  $("next").disabled = place === lines.length - 1;
  $("label").textContent = audit.name(label);
  $("suggestion").textContent = same ? "the same" : audit.name(suggested);
  $("doubt").classList.toggle("decided", Boolean(decision));
  $("doubt").textContent = decision
    ? `${describe(decision, line)}, ${when(decision.at)}`
    : `The label is right with probability ${percent(audit.quality[line])}.`;
  showGrades(line, decision);
  $("accept").firstElementChild.textContent = `Accept ${audit.name(suggested)}`;
  $("keep").firstElementChild.textContent = `Keep ${audit.name(label)}`;
  $("undo").disabled = undoable.length === 0;
  const selected = audit.selected[line];
  const facts = [
    [audit.votes.length > 1 ? "Networks" : "Network", audit.votes.map((votes) => audit.name(votes[line])).join(", ")],
    ["Training", selected === null ? null : `selected it ${percent(selected)} of the time`],
    ["Patient", audit.patient(line), "patient"],
    ["Reader", audit.reader(line), "reader"],
    ["Image", audit.ids[line]],
    ["Rank", `${count(line + 1)} of ${count(audit.size)}`],
  ];
  $("facts").replaceChildren(...facts.filter(([, value]) => value).map(fact));
}

function fact([term, value, field]) {
  const row = make("div");
  const shown = make("dd");
  if (field) {
    const link = make("button", value, "link");
    link.type = "button";
    link.title = `Only this ${field}`;
    link.addEventListener("click", () => setFilter({ ...UNFILTERED, [field]: value, scope: "all", show: "all" }, audit.ids[current()]));
    shown.append(link);
  } else shown.textContent = value;
  row.append(make("dt", term), shown);
  return row;
}

/** One row per grade: its key, its name, how probable it is. A click sets it. */
function showGrades(line, decision) {
  const rows = audit.grades.map((_, grade) => {
    const share = audit.probability(line, grade);
    const row = make("button", "", "grade");
    row.type = "button";
    row.dataset.grade = grade;
    const tags = [];
    if (grade === audit.labels[line]) { tags.push("label"); row.classList.add("is-label"); }
    if (grade === audit.suggested[line]) { tags.push("suggested"); row.classList.add("is-suggested"); }
    const chosen = decision && decision.action !== "skip" && decision.grade === grade;
    row.classList.toggle("is-decided", Boolean(chosen));
    row.setAttribute("aria-pressed", chosen ? "true" : "false");
    const bar = make("span", "", "bar");
    const filled = make("span");
    filled.style.width = `${100 * share}%`;
    bar.append(filled);
    row.append(make("kbd", audit.keys[grade]), make("span", audit.name(grade), "name"),
      make("span", chosen ? "✓" : tags.join(" · "), "tag"), make("span", percent(share), "share"), bar);
    row.addEventListener("click", () => decide("set", grade));
    return row;
  });
  $("grades").replaceChildren(...rows);
}

const who = (decision) => (decision.reviewer === audit.reviewer ? "You" : decision.reviewer);

/** "anna set Mayo 1" */
function describe(decision, line) {
  const grade = decision.grade === null ? "a grade of another audit" : audit.name(decision.grade);
  if (decision.action === "skip") return `${who(decision)} skipped this`;
  if (decision.grade === audit.labels[line]) return `${who(decision)} kept ${grade}`;
  return `${who(decision)} set ${grade}`;
}

function showProgress() {
  const { queue, reviewed, beyond, changed, skipped, remaining_noise: noise } = audit.progress;
  const others = beyond ? ` and ${count(beyond)} beyond` : "";
  const aside = skipped ? `, ${count(skipped)} skipped` : "";
  const text = `${count(reviewed)} of ${count(queue)} reviewed${others}, ${count(changed)} changed${aside}, ` +
    `estimated remaining noise ${percent(noise)}`;
  const left = queue - reviewed - skipped;
  $("progress").replaceChildren(make("span", text), make("span", left && gaps.length >= 5 ? ` · about ${timeFor(left)} left` : "", "soft"));
  $("meter").style.width = `${(100 * (reviewed + skipped)) / queue}%`;
  document.title = `${count(reviewed)} of ${count(queue)} · Review`;
}

function timeFor(left) {
  const sorted = gaps.slice(-20).sort((a, b) => a - b);
  const minutes = (left * sorted[Math.floor(sorted.length / 2)]) / 60_000;
  return minutes < 1 ? "a minute" : minutes < 90 ? `${Math.round(minutes)} min` : `${Math.round(minutes / 60)} h`;
}

function showFinished() {
  const { queue, reviewed, skipped } = audit.progress;
  const all = reviewed + skipped >= queue && filter.show === "todo";
  const narrowed = Object.keys(UNFILTERED).some((name) => name !== "show" && name !== "scope" && filter[name] !== UNFILTERED[name]);
  $("finished-title").textContent = all && !narrowed ? "All reviewed" : lines.length ? "Nothing more fits this filter" : "Nothing fits this filter";
  $("finished-text").textContent = $("progress").firstElementChild.textContent + ".";
  const offers = [];
  const offer = (text, wanted) => {
    const button = make("button", text, offers.length ? "" : "primary");
    button.type = "button";
    button.addEventListener("click", () => setFilter(wanted));
    offers.push(button);
  };
  if (narrowed || (filter.show !== "todo" && !all)) offer("Reset the filter", UNFILTERED);
  if (skipped && filter.show !== "skipped") offer(`Look at the ${count(skipped)} skipped`, { ...UNFILTERED, show: "skipped" });
  if (filter.scope === "doubtful" && queue < audit.size) offer("Go on with the others, most doubtful first", { ...UNFILTERED, scope: "all" });
  if (reviewed) offer("Look through what was changed", { ...UNFILTERED, scope: "all", show: "changed" });
  $("finished-actions").replaceChildren(...offers);
  $("export").textContent = `srjt review export ${/^[\w./-]+$/.test(audit.folder) ? audit.folder : `'${audit.folder.replaceAll("'", "'\\''")}'`} --out labels_clean.csv`;
}

let toastTimer;
function toast(text, kind = "") {
  const shown = $("toast");
  shown.className = "";
  void shown.offsetWidth; // so that the same words twice are seen twice
  shown.textContent = text;
  shown.className = `seen ${kind}`;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (shown.className = ""), kind ? 5000 : 2500);
}

function trouble(text) {
  $("trouble").hidden = !text;
  $("trouble").textContent = text ?? "";
}

// ── Deciding ─────────────────────────────────────────────────────────────────────────────────────────────────────

async function decide(action, grade = null) {
  const line = current();
  if (line === null || busy) return;
  if (pictures.get(line).state === "loading") return toast("The image is still on its way.");
  busy = true;
  const now = Date.now();
  try {
    const answer = await post("/api/decide", { line, id: audit.ids[line], action, grade, seen: audit.seen(line), since: audit.revision });
    trouble(null);
    audit.absorb(answer);
    undoable.push([answer.decided, line]);
    if (lastDecision && now - lastDecision < PAUSE) gaps.push(now - lastDecision);
    lastDecision = now;
    const result = audit.decision(line);
    const [from, to] = [audit.name(audit.labels[line]), audit.name(result.grade)];
    toast(action === "skip" ? "Skipped · Z undoes" : from === to ? `Kept ${to} · Z undoes` : `${from} → ${to} · Z undoes`);
    showProgress();
    if (current() === line) advance();
  } catch (problem) {
    if (problem.status === 409) settle(line, action, grade, problem.answer);
    else troubled(problem);
  } finally {
    busy = false;
  }
}

/** To the next image that fits the filter; when there is none behind, to the first before; else it is finished. */
function advance() {
  const fits = (line) => audit.fits(line, filter);
  let next = lines.findIndex((line, i) => i > place && fits(line));
  const ends = ["todo", "skipped"].includes(filter.show) && !filter.q; // lists that become shorter
  if (next < 0 && ends) next = lines.findIndex((line, i) => i !== place && fits(line));
  if (next < 0 && !ends) {
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
    audit.absorb(await post("/api/undo", { revision, since: audit.revision }));
    trouble(null);
    undoable.pop();
    toast(`Undone: ${audit.ids[line]}`);
  } catch (problem) {
    if (problem.status !== 409) return troubled(problem);
    undoable.pop();
    audit.absorb(problem.answer);
    const { present } = problem.answer;
    toast(present ? `Not undone: ${describe(present, line)} since.` : "That was undone already.", "warning");
  } finally {
    busy = false;
  }
  showProgress();
  if (!lines.includes(line)) lines.splice(Math.max(place, 0), 0, line);
  show(lines.indexOf(line));
}

/** Somebody, or another tab, has decided about this image since it was shown here: ask. */
function settle(line, action, grade, answer) {
  audit.absorb(answer);
  showProgress();
  showPanel();
  const theirs = answer.present;
  const mine = action === "set" ? grade : action === "accept" ? audit.suggested[line] : audit.labels[line];
  if (!theirs) return toast("The decision about this image was undone meanwhile: look again.", "warning");
  if ((theirs.action === "skip") === (action === "skip") && theirs.grade === mine) {
    toast(`${describe(theirs, line)} meanwhile, as you do.`);
    return advance();
  }
  const elsewhere = theirs.reviewer === audit.reviewer;
  $("conflict-text").textContent = `${audit.ids[line]} was decided ${elsewhere ? "in another tab" : `by ${theirs.reviewer}`} while you looked at it.`;
  $("conflict-who").textContent = `${elsewhere ? "You, elsewhere" : theirs.reviewer}, ${when(theirs.at)}`;
  $("conflict-theirs").textContent = theirs.action === "skip" ? "skipped" : theirs.grade === null ? "?" : audit.name(theirs.grade);
  $("conflict-mine").textContent = action === "skip" ? "skip" : audit.name(mine);
  $("leave").firstElementChild.textContent = elsewhere ? "Leave the other" : "Leave theirs";
  const dialog = $("conflict");
  dialog.returnValue = "";
  dialog.onclose = () => {
    if (dialog.returnValue === "mine") decide(action, grade);
    else advance();
  };
  dialog.showModal();
}

function troubled(problem) {
  if (problem.status === 0) {
    trouble("The server does not answer. All that was shown as done is on disk. Start srjt review again and open the address it prints.");
  } else if (problem.status === 403) {
    trouble("The server was started anew: open the address it has printed.");
  } else {
    trouble(problem.message);
  }
}

async function lookAgain() {
  if (busy || document.hidden) return;
  try {
    const news = await get(`/api/news?since=${audit.revision}`);
    trouble(null);
    audit.absorb(news);
    if (!news.marks.length) return;
    showProgress();
    const seen = news.marks.find(({ line }) => line === current());
    if (place >= 0 && !$("conflict").open) showPanel();
    if (seen?.decision && seen.decision.reviewer !== audit.reviewer) toast(`${describe(seen.decision, current())} just now.`, "warning");
  } catch (problem) {
    troubled(problem);
  }
}

// ── Similar images ───────────────────────────────────────────────────────────────────────────────────────────────

function compare(wanted = !comparing) {
  if (wanted && !audit.comparable) return toast("This audit has no similar images.");
  comparing = wanted;
  $("compare").setAttribute("aria-pressed", String(comparing));
  $("neighbours").hidden = !comparing;
  $("stage").classList.toggle("comparing", comparing);
  if (comparing && current() !== null) showNeighbours(current());
}

async function showNeighbours(line) {
  const shelf = $("neighbours");
  let found;
  try {
    found = await get(`/api/neighbours/${line}`);
  } catch (problem) {
    return troubled(problem);
  }
  if (current() !== line || !comparing) return;
  const rows = found.map((others, grade) => {
    const row = make("section", "", "row");
    row.classList.toggle("is-label", grade === audit.labels[line]);
    row.classList.toggle("is-suggested", grade === audit.suggested[line]);
    const heading = make("h2");
    heading.append(make("kbd", audit.keys[grade]), make("span", ` ${audit.name(grade)}`));
    const strip = make("div", "", "strip");
    strip.append(...others.map((other) => similar(other)));
    if (!others.length) strip.append(make("p", "none", "soft"));
    row.append(heading, strip);
    return row;
  });
  shelf.replaceChildren(make("p", "The most similar images of each grade, and how probably their label is right; ✓: reviewed. A click enlarges.", "soft lead"), ...rows);
}

function similar(line) {
  const button = make("button", "", "similar");
  button.type = "button";
  const image = new Image();
  image.src = `/thumb/${line}`;
  image.alt = audit.ids[line];
  image.addEventListener("error", () => image.replaceWith(make("span", "cannot be read", "soft")));
  const decision = audit.decision(line);
  const settled = decision && decision.action !== "skip";
  const trust = settled ? `✓ ${decision.grade === null ? "?" : audit.name(decision.grade)}` : percent(audit.quality[line]);
  button.append(image, make("small", trust, settled || audit.quality[line] >= 0.5 ? "" : "doubtful"));
  button.title = audit.ids[line];
  button.addEventListener("click", () => enlarge(line, button));
  return button;
}

function enlarge(line, from) {
  const large = make("button", "", "enlarged");
  large.type = "button";
  large.setAttribute("aria-label", "Back to the similar images");
  const image = new Image();
  image.src = `/image/${line}`;
  image.alt = audit.ids[line];
  large.append(image, make("span", `${audit.name(audit.labels[line])} · ${audit.ids[line]} · label right: ${percent(audit.quality[line])}`));
  large.addEventListener("click", () => { large.remove(); from.focus(); });
  $("neighbours").append(large);
  large.focus();
}

// ── Filtering ────────────────────────────────────────────────────────────────────────────────────────────────────

function setFilter(wanted, at = null) {
  filter = { ...wanted };
  for (const [name, value] of Object.entries(filter)) {
    const field = $("filters").elements[name];
    if (field && field.value !== value) field.value = value;
    if (field && field.value !== value) filter[name] = field.value || UNFILTERED[name]; // an address may say nonsense
  }
  lines = audit.matching(filter);
  const wantedLine = at === null ? -1 : lines.findIndex((line) => audit.ids[line] === at);
  $("found").textContent = `${count(lines.length)} ${lines.length === 1 ? "image fits" : "images fit"}`;
  showChips();
  show(wantedLine >= 0 ? wantedLine : lines.length ? 0 : -1);
}

const SHOWN = { todo: "to do", done: "reviewed", changed: "changed", kept: "kept", skipped: "skipped", all: "all" };

function showChips() {
  const said = {
    q: (v) => `id “${v}”`, scope: () => "all labels", show: (v) => SHOWN[v], grade: (v) => `labelled ${audit.name(v)}`,
    suggested: (v) => `suggested ${audit.name(v)}`, patient: (v) => `patient ${v}`, reader: (v) => `reader ${v}`,
    min: (v) => `right ≥ ${v} %`, max: (v) => `right ≤ ${v} %`,
  };
  const chips = Object.keys(UNFILTERED).filter((name) => filter[name] !== UNFILTERED[name]).map((name) => {
    const chip = make("button", said[name](filter[name]), "chip");
    chip.type = "button";
    chip.setAttribute("aria-label", `Remove the filter ${chip.textContent}`);
    chip.addEventListener("click", () => setFilter({ ...filter, [name]: UNFILTERED[name] }));
    return chip;
  });
  $("chips").replaceChildren(...chips);
}

function readFilters() {
  const fields = $("filters").elements;
  setFilter(Object.fromEntries(Object.keys(UNFILTERED).map((name) => [name, fields[name].value.trim()])));
}

function fillFilters() {
  const fields = $("filters").elements;
  const fill = (name, options) => fields[name].replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  const grades = audit.grades.map((_, grade) => [String(grade), audit.name(grade)]);
  fill("scope", [["doubtful", `likely wrong (${count(audit.queue)})`], ["all", `all (${count(audit.size)})`]]);
  fill("show", Object.entries(SHOWN));
  fill("grade", [["", "any"], ...grades]);
  fill("suggested", [["", "any"], ...grades]);
  const byName = (a, b) => a.localeCompare(b, "en", { numeric: true });
  if (audit.readers) fill("reader", [["", "any"], ...[...audit.readers.names].sort(byName).map((name) => [name, name])]);
  else fill("reader", [["", "any"]]);
  $("reader-field").hidden = !audit.readers;
  $("patient-field").hidden = !audit.patients;
  if (audit.patients) {
    const names = [...audit.patients.names].sort(byName).slice(0, 2000); // a longer list helps nobody to choose
    $("patients").replaceChildren(...names.map((name) => new Option(name, name)));
  }
}

let addressTimer;
function rememberInAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(writeAddress, 200); // browsers limit how often it may change
}
function writeAddress() {
  clearTimeout(addressTimer);
  const line = current();
  history.replaceState(null, "", location.pathname + searchOf(filter, line === null ? null : audit.ids[line]));
}

function openFilters(open) {
  $("filters").hidden = !open;
  $("filter-button").setAttribute("aria-expanded", String(open));
  if (open) $("filters").elements.q.focus();
  else document.activeElement.blur();
}

// ── Keys and buttons ─────────────────────────────────────────────────────────────────────────────────────────────

const KEYS = [
  ["Enter", "accept the suggestion", () => decide("accept")],
  ["K", "keep the label", () => decide("keep")],
  ["S", "skip: decide later", () => decide("skip")],
  ["Z", "undo, several times if need be", undo],
  ["←", "previous image", () => place !== 0 && lines.length && show((place < 0 ? lines.length : place) - 1)],
  ["→", "next image", () => place >= 0 && place < lines.length - 1 && show(place + 1)],
  ["N", "similar images of each grade", () => compare()],
  ["+", "larger; also the wheel, two fingers, a double click", () => zoom.by(1.4)],
  ["−", "smaller; drag to move", () => zoom.by(1 / 1.4)],
  ["F", "fit the image to the window", () => zoom.fit()],
  ["/", "filter, find an id", () => openFilters(true)],
  ["?", "these keys", () => $("help").showModal()],
  ["Esc", "close what is open", closeSomething],
];
const ALIASES = { ArrowLeft: "←", ArrowRight: "→", Escape: "Esc", "-": "−", "=": "+" };
const MAY_REPEAT = new Set(["←", "→", "+", "−"]); // a key that is held down must not grade the next image too

function closeSomething() {
  const enlarged = document.querySelector(".enlarged");
  if (enlarged) enlarged.click();
  else if (!$("filters").hidden) openFilters(false);
  else if (comparing) compare(false);
}

function onKey(event) {
  const undoByHabit = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !event.shiftKey;
  if ((event.ctrlKey || event.metaKey || event.altKey) && !undoByHabit) return;
  const key = ALIASES[event.key] ?? (event.key.length === 1 ? event.key.toUpperCase() : event.key);
  if ($("conflict").open) {
    if (key === "M" && !event.repeat) $("conflict").close("mine");
    return;
  }
  if ($("help").open) return;
  const typing = event.target.closest?.("input, select");
  if (typing && key !== "Esc") return;
  if (key === "Enter" && event.target.closest?.("button")) return; // the button that has the focus is meant
  const grade = key === "" ? -1 : audit.keys.indexOf(key);
  const known = KEYS.find(([name]) => name === key);
  if (grade < 0 && !known) return;
  event.preventDefault();
  if (event.repeat && !MAY_REPEAT.has(key)) return;
  if (grade >= 0) decide("set", grade);
  else known[2]();
}

function listen() {
  document.addEventListener("keydown", onKey);
  // After a click the focus must not stay on the button, or Enter would press it again.
  document.addEventListener("click", (e) => e.detail && e.target.closest("button")?.blur());
  const clicks = {
    accept: () => decide("accept"), keep: () => decide("keep"), skip: () => decide("skip"), undo, compare: () => compare(),
    previous: () => show(place - 1), next: () => show(place + 1),
    "zoom-in": () => zoom.by(1.4), "zoom-out": () => zoom.by(1 / 1.4), "zoom-fit": () => zoom.fit(),
    "filter-button": () => openFilters($("filters").hidden), "help-button": () => $("help").showModal(),
    reset: () => setFilter(UNFILTERED),
    leave: () => $("conflict").close(""), overrule: () => $("conflict").close("mine"),
  };
  for (const [id, work] of Object.entries(clicks)) $(id).addEventListener("click", work);
  let typingTimer;
  $("filters").addEventListener("input", () => {
    clearTimeout(typingTimer);
    typingTimer = setTimeout(readFilters, 120);
  });
  $("filters").addEventListener("submit", (event) => {
    event.preventDefault();
    openFilters(false);
  });
  addEventListener("pagehide", writeAddress);
  document.addEventListener("visibilitychange", lookAgain);
  setInterval(lookAgain, LOOK_AGAIN);
}

function listKeys() {
  const digits = audit.keys.filter(Boolean);
  const rows = [[`${digits[0]} – ${digits.at(-1)}`, "set the grade: " + audit.grades.map((_, g) => `${audit.keys[g]}\u00a0${audit.name(g).replaceAll(" ", "\u00a0")}`).join(", ")], ...KEYS];
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
    const [columns, news] = await Promise.all([get("/api/audit"), get("/api/news?since=0")]);
    audit = new Audit(columns);
    audit.absorb(news);
    undoable = news.undoable;
  } catch (problem) {
    return troubled(problem);
  }
  fillFilters();
  listKeys();
  showProgress();
  setFilter(filterFrom(location.search), new URLSearchParams(location.search).get("at"));
  listen();
  document.body.classList.add("ready");
}

start();
