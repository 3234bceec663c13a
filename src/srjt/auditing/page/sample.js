// The page that verifies a random sample, or reads a worklist. It gets images and the names of the grades, no labels and no suggestions. An
// answer is shown as done only after the server has confirmed it.
import { get, post } from "/page/api.js";
import { gradeName } from "/page/grade_name.js";
import { ImageCache } from "/page/image_cache.js";
import { Zoom } from "/page/zoom.js";

const CANNOT_TELL = -1;
const PRELOAD = 4; // images

const $ = (id) => document.getElementById(id);
const make = (tag, text, className) => {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = className;
  return element;
};

let sample; // { grades, keys, purpose: "verify" or "read", answers: a grade, CANNOT_TELL or null for each image }
let position = 0; // sample.answers.length: the end is shown
let busy = false; // waiting for the server to confirm an answer

const images = new ImageCache();
const zoom = new Zoom($("view"), (factor) => ($("zoom-level").textContent = factor ? `${factor.toFixed(1)} ×` : "Fit"));

function show(newPosition) {
  position = newPosition;
  const { answers } = sample;
  const atEnd = position >= answers.length;
  $("finished").hidden = !atEnd;
  $("stage").hidden = $("panel").hidden = atEnd;
  showProgress();
  if (atEnd) return zoom.show(null);
  showImage(position);
  for (let i = 1; i <= PRELOAD && position + i < answers.length; i++) images.get(position + i);
  $("position").textContent = `${position + 1} of ${answers.length}`;
  $("previous").disabled = position === 0;
  $("next").disabled = answers[position] === null; // the images are answered in their order
  $("cannot-tell").setAttribute("aria-pressed", String(answers[position] === CANNOT_TELL));
  $("grades").replaceChildren(...sample.grades.map(gradeButton));
}

function showImage(at) {
  const entry = images.get(at);
  zoom.show(null);
  $("placeholder").hidden = true;
  $("view").classList.add("loading");
  entry.finished.then(() => {
    if (position !== at) return;
    $("view").classList.remove("loading");
    $("placeholder").hidden = entry.state !== "failed";
    if (entry.state === "ready") zoom.show(entry.image);
  });
}

function gradeButton(name, grade) {
  const chosen = sample.answers[position] === grade;
  const button = make("button", "", `grade${chosen ? " is-decided" : ""}`);
  button.type = "button";
  button.setAttribute("aria-pressed", String(chosen));
  button.append(make("kbd", sample.keys[grade], ""), make("span", gradeName(name), "name"), make("span", chosen ? "✓" : "", "tag"));
  button.addEventListener("click", () => answer(grade));
  return button;
}

function showProgress() {
  const answered = sample.answers.filter((given) => given !== null).length;
  const graded = sample.answers.filter((given) => given !== null && given !== CANNOT_TELL).length;
  const text = `${answered} of ${sample.answers.length} answered`;
  $("progress").textContent = text;
  $("finished-text").textContent = `${graded} of ${sample.answers.length} images have a ${sample.purpose === "read" ? "" : "verified "}grade.`;
  $("meter").style.width = `${(100 * answered) / sample.answers.length}%`;
  document.title = `${text} · ${sample.purpose === "read" ? "Read" : "Verify"}`;
}

async function answer(grade) {
  const at = position;
  if (busy || at >= sample.answers.length || images.get(at).state === "loading") return;
  busy = true;
  try {
    const { images: needed } = await post("/api/answer", { position: at, grade });
    $("error").hidden = true;
    sample.answers[at] = grade;
    while (sample.answers.length < needed) sample.answers.push(null); // the interval is still too wide
    if (position === at) show(at + 1);
  } catch (error) {
    showError(error);
  } finally {
    busy = false;
  }
}

function showError(error) {
  $("error").hidden = false;
  $("error").textContent = error.status === 0
    ? "The server does not answer. Start srjt review again and open the address it prints."
    : error.status === 403 ? "The server was restarted: open the address that it printed." : error.message;
}

const back = () => position > 0 && show(position - 1);
const forward = () => position < sample.answers.length && sample.answers[position] !== null && show(position + 1);
const COMMANDS = {
  ArrowLeft: back, ArrowRight: forward, s: () => answer(CANNOT_TELL), f: () => zoom.fit(),
  "+": () => zoom.by(1.4), "=": () => zoom.by(1.4), "-": () => zoom.by(1 / 1.4),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const grade = sample.keys.indexOf(event.key);
  const command = COMMANDS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (grade < 0 && !command) return;
  event.preventDefault();
  if (event.repeat) return; // holding down a key must not grade the next image too
  if (grade >= 0) answer(grade);
  else command();
}

async function start() {
  try {
    sample = await get("/api/sample");
  } catch (error) {
    return showError(error);
  }
  for (const element of document.querySelectorAll("[data-purpose]"))
    element.hidden = element.dataset.purpose !== sample.purpose;
  const first = sample.answers.indexOf(null);
  show(first < 0 ? sample.answers.length : first);
  document.addEventListener("keydown", onKey);
  const clicks = {
    previous: back, next: forward, "cannot-tell": () => answer(CANNOT_TELL),
    "zoom-in": () => zoom.by(1.4), "zoom-out": () => zoom.by(1 / 1.4), "zoom-fit": () => zoom.fit(),
  };
  for (const [id, command] of Object.entries(clicks)) $(id).addEventListener("click", command);
  document.body.classList.add("ready");
}

start();
