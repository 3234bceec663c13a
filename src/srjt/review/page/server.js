// Talking to the server. Every failure is an object with a status (0: no answer) and a sentence.

export class Refused extends Error {
  constructor(status, message, answer = null) {
    super(message);
    this.status = status;
    this.answer = answer;
  }
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused(0, "The server does not answer.");
  }
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  if (response.status === 409) throw new Refused(409, "decided meanwhile", JSON.parse(text));
  throw new Refused(response.status, text.trim() || response.statusText);
}

export const get = (path) => ask(path, { cache: "no-store" });

export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
