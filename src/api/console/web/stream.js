/* SPDX-License-Identifier: Apache-2.0
 * stream.js - a conversation becomes a request, and the events of its answer become an assistant's turn. */
import { post, readEvents } from "./api.js";
import { requestFields } from "./options.js";

/* A turn that failed before it had any text takes its question with it: templates want the roles to alternate. */
function answered(turns) {
  const failed = (t) => t.role === "assistant" && !t.text && !t.calls.length;
  return turns.filter((t, i) => !failed(t) && !(t.role === "user" && turns[i + 1] && failed(turns[i + 1])));
}

function messageOf(turn) {
  if (turn.role === "user") return { role: "user", content: turn.text };
  if (turn.role === "tool") return { role: "tool", tool_call_id: turn.id, content: turn.text };
  const message = { role: "assistant", content: turn.text };
  if (turn.calls.length)
    message.tool_calls = turn.calls.map((c) =>
      ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments || "{}" } }));
  return message;
}

/* Of all turns but the last, which is the answer to come. */
function messages({ options, turns }) {
  const system = options.system ? [{ role: "system", content: options.system }] : [];
  return [...system, ...answered(turns.slice(0, -1)).map(messageOf)];
}

/* [path, body]; in text mode the last user's turn is the prompt. */
function requestOf(conversation, chat) {
  const { model, options, turns } = conversation;
  const fields = { ...requestFields(options, chat), model, stream: true, stream_options: { include_usage: true } };
  if (chat) return ["v1/chat/completions", { ...fields, messages: messages(conversation) }];
  return ["v1/completions", { ...fields, prompt: turns.findLast((t) => t.role === "user").text }];
}

function addCalls(turn, parts) {
  for (const part of parts || []) {
    turn.calls[part.index] ||= { id: "", name: "", arguments: "" };
    const call = turn.calls[part.index];
    call.id ||= part.id || "";
    call.name += part.function?.name || "";
    call.arguments += part.function?.arguments || "";
  }
}

/* Adds an event to the turn; true: something of the answer has come. */
function addEvent(turn, event) {
  if (event.error) throw new Error(event.error.message || "The server ended the answer with an error.");
  if (event.usage) {
    turn.stats.prompt_tokens = event.usage.prompt_tokens;
    turn.stats.cached_tokens = event.usage.prompt_tokens_details?.cached_tokens || 0;
    turn.stats.new_tokens = event.usage.completion_tokens;
  }
  const choice = event.choices?.find((c) => c.index === 0);
  if (!choice) return false;
  const delta = choice.delta || {};
  turn.finish = choice.finish_reason || turn.finish;
  turn.text += choice.text || delta.content || "";
  turn.reasoning += delta.reasoning_content || "";
  addCalls(turn, delta.tool_calls);
  return Boolean(choice.text || delta.content || delta.reasoning_content || delta.tool_calls);
}

export function newTurn(model) {
  return { role: "assistant", text: "", reasoning: "", calls: [], model, stats: {}, finish: null };
}

/* Sends the conversation and fills `turn`; onChange after each event. Throws what went wrong; a stop is no error and
 * sets turn.stopped. Tokens a second are those after the first one. */
export async function answer(conversation, turn, chat, signal, onChange) {
  const [path, body] = requestOf(conversation, chat), start = performance.now();
  let first = 0;
  try {
    await readEvents(await post(path, body, signal), (event) => {
      if (addEvent(turn, event)) first ||= performance.now();
      onChange();
    });
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    turn.stopped = true;
  } finally {
    const end = performance.now();
    turn.stats.total_ms = end - start;
    if (first) turn.stats.first_ms = first - start;
    if (first && turn.stats.new_tokens > 1) turn.stats.rate = (turn.stats.new_tokens - 1) * 1000 / (end - first);
  }
}
