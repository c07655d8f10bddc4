/* SPDX-License-Identifier: Apache-2.0
 * figures.js - polls /figures and /figures/requests once a second and keeps what the charts and tables show: a sample
 * for each second, and the recent requests. */
import { ServerError, getJson, isLost } from "./api.js";

const SAMPLES_MAX = 900, REQUESTS_MAX = 1000;

export const samples = []; /* oldest first: {at, models: {name: sample of one}, in_flight, gpus} */
export const requests = []; /* newest first, as /figures/requests has them */
const listeners = { figures: [], state: [] };
let before = null, last = 0;

export const onFigures = (callback) => listeners.figures.push(callback);
/* Calls back with (kind, text): "ok", "key" (an API key is needed), "lost". */
export const onState = (callback) => listeners.state.push(callback);

/* ---- samples ---- */

const difference = (now, then, name) => Math.max(0, (now[name] || 0) - (then?.[name] || 0));

/* Means of one request, ms: from arrival to the first token; from the first token to the last one, by token. */
export const firstToken = (r) => r.first_token_us === undefined ? NaN : r.first_token_us / 1000;
export function betweenTokens(r) {
  const each = r.new_tokens / (r.sequences || 1) - 1;
  return r.first_token_us === undefined || each < 1 ? NaN : (r.ended_us - r.first_token_us) / 1000 / each;
}

/* One model over the time between two polls. Rates are by second; undefined: nothing to divide by. */
function sampleOf(now, then, seconds, ended) {
  const queries = difference(now, then, "prefix_queries"), good = ended.filter((r) => r.status === 200);
  return {
    running: now.running || 0, waiting: (now.queue || 0) + (now.waiting || 0),
    new_tokens: difference(now, then, "new_tokens") / seconds,
    prompt_tokens: difference(now, then, "prompt_tokens") / seconds,
    requests: (difference(now, then, "requests") + difference(now, then, "failures")) / seconds,
    pages_used: now.pages_used || 0, pages_total: now.pages_total || 0, pages_cached: now.pages_cached || 0,
    prefix_queries: queries, prefix_hits: difference(now, then, "prefix_hits"),
    first: good.map(firstToken).filter(Number.isFinite), between: good.map(betweenTokens).filter(Number.isFinite),
  };
}

/* How a model is called where several versions may be served. */
export function labelOf(model, models) {
  return models.some((m) => m.name === model.name && m.version !== model.version) ? `${model.name} ${model.version}` : model.name;
}

function addSample(figures, ended) {
  const seconds = before ? (figures.time_ms - before.time_ms) / 1000 : 0;
  if (seconds > 0) {
    const models = {};
    const ready = figures.models.filter((m) => m.state === "READY");
    for (const now of ready) {
      const then = before.models.find((m) => m.name === now.name && m.version === now.version && m.state === "READY");
      /* a model that was loaded since, or again, has no time before */
      const same = then && now.requests >= then.requests ? then : now;
      const its = ended.filter((r) => r.model === now.name && r.version === now.version);
      models[labelOf(now, ready)] = sampleOf(now, same, seconds, its);
    }
    samples.push({ at: Date.now(), models, in_flight: figures.in_flight, gpus: figures.gpus });
    if (samples.length > SAMPLES_MAX) samples.shift();
  }
  before = figures;
}

/* ---- polling ---- */

/* The requests that ended since the last poll. What had ended before the page was opened is no sample. */
async function newRequests() {
  const first = last === 0 && before === null;
  const body = await getJson(`figures/requests?since=${last}`);
  if (body.last < last) requests.length = 0; /* the server was started anew, and so are its numbers */
  last = body.last;
  requests.unshift(...body.requests.toReversed());
  requests.length = Math.min(requests.length, REQUESTS_MAX);
  return first ? [] : body.requests;
}

function setState(kind, text) {
  for (const callback of listeners.state) callback(kind, text);
}

async function pollOnce() {
  try {
    const [figures, ended] = await Promise.all([getJson("figures"), newRequests()]);
    addSample(figures, ended);
    const ready = figures.models.filter((m) => m.state === "READY").length;
    setState("ok", `${ready} of ${figures.models.length} models ready`);
    for (const callback of listeners.figures) await callback(figures);
  } catch (error) {
    before = null;
    if (error instanceof ServerError) setState(error.status === 401 ? "key" : "lost", error.message);
    else if (isLost(error)) setState("lost", "the server does not answer");
    else throw error;
  }
}

let timer = 0, polling = null;

/* Polls now, and then again and again; while a poll runs, this is the same poll. */
export function poll() {
  clearTimeout(timer);
  polling ||= pollOnce().finally(() => {
    polling = null;
    timer = setTimeout(poll, document.hidden ? 5000 : 1000);
  });
  return polling;
}
