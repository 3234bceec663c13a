// Requests to the server. Every failure is a RequestError with a status (0: no answer) and a sentence.

export class RequestError extends Error {
  constructor(status, message, answer = null) {
    super(message);
    this.status = status;
    this.answer = answer; // of a conflict: the updates, and the current decision
  }
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new RequestError(0, "The server does not answer.");
  }
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  if (response.status === 409) throw new RequestError(409, "decided in the meantime", JSON.parse(text));
  throw new RequestError(response.status, text.trim() || response.statusText);
}

export const get = (path) => request(path, { cache: "no-store" });

export const post = (path, body) =>
  request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
