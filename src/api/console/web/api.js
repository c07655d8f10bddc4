/* SPDX-License-Identifier: Apache-2.0
 * api.js - requests to the server, its streams of events, and its errors in plain words. */

/* The key and the header live as long as the tab. */
export const secrets = {
  get key() { return sessionStorage.getItem("proa.key") || ""; },
  set key(value) { sessionStorage.setItem("proa.key", value); },
  get header() { return sessionStorage.getItem("proa.header") || ""; },
  set header(value) { sessionStorage.setItem("proa.header", value); },
};

function headers(more = {}) {
  const all = { ...more };
  const extra = /^\s*([!#$%&'*+.^_`|~\w-]+)\s*:\s*(.*?)\s*$/.exec(secrets.header);
  if (secrets.key) all.Authorization = "Bearer " + secrets.key;
  if (extra) all[extra[1]] = extra[2];
  return all;
}

/* What an HTTP status means for the user; the server's own text follows it. */
const meanings = {
  400: "The server cannot accept this request.",
  401: "The server needs an API key, or this key is wrong.",
  403: "The server does not allow this from here.",
  404: "The server does not know this.",
  413: "The request is too large for the server.",
  429: "The server is busy. Try again in a moment.",
  499: "The request was cancelled.",
  500: "The server failed at this request.",
  501: "The model cannot do this.",
  503: "The server cannot take requests now.",
  504: "The request took longer than it was allowed to.",
};

/* message: in plain words; detail: the server's text, which may be empty. */
export class ServerError extends Error {
  constructor(status, detail) {
    super(meanings[status] || `The server answered with status ${status}.`);
    this.status = status;
    this.detail = detail;
  }
}

/* OpenAI's errors are {"error":{"message"}}, Triton's {"error":"text"}. */
async function errorOf(answer) {
  let detail = "";
  try {
    const body = await answer.json();
    detail = typeof body.error === "string" ? body.error : body.error?.message || "";
  } catch { /* a body that is no JSON says nothing more */ }
  return new ServerError(answer.status, detail);
}

/* Is it an error of the connection? fetch throws a TypeError then, and a TimeoutError after WAIT_MS. */
export function isLost(error) {
  return error instanceof TypeError || error.name === "TimeoutError";
}

/* {message, detail} of anything that was thrown. */
export function explain(error) {
  if (error instanceof ServerError) return error;
  if (isLost(error)) return { message: "The server does not answer. Is it still running?", detail: "" };
  return { message: error.message, detail: "" };
}

export async function request(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", ...options, headers: headers(options.headers) });
  if (!answer.ok) throw await errorOf(answer);
  return answer;
}

const WAIT_MS = 15000; /* for data of which the server has all */

export async function getJson(path) {
  return (await request(path, { signal: AbortSignal.timeout(WAIT_MS) })).json();
}

export function post(path, body, signal) {
  return request(path, { method: "POST", body: JSON.stringify(body), signal,
    headers: { "Content-Type": "application/json" } });
}

/* Calls onEvent with the JSON of each event of a stream, until "[DONE]" or the end. */
export async function readEvents(answer, onEvent) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const data = line.startsWith("data:") ? line.slice(5).trim() : "";
      if (data && data !== "[DONE]") onEvent(JSON.parse(data));
    }
  }
}
