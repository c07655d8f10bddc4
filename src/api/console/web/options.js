/* SPDX-License-Identifier: Apache-2.0
 * options.js - the options of a conversation: the form, and the fields of a request that it becomes. */
import { $, setText } from "./dom.js";

const NUMBERS = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty",
  "repetition_penalty"];
const form = $("option-form");

/* Calls back with {name: text} of the fields that are filled, after each change. */
export function onOptions(callback) {
  form.addEventListener("input", () => callback(readOptions()));
  $("reset-options").addEventListener("click", () => {
    showOptions({});
    callback({});
  });
}

export function readOptions() {
  const options = {};
  for (const field of form.elements)
    if (field.name && field.value !== "" && field.value !== "auto") options[field.name] = field.value;
  return options;
}

export function showOptions(options) {
  for (const field of form.elements) {
    if (!field.name) continue;
    field.value = options[field.name] ?? (field.name === "mode" ? "auto" : "");
  }
  showError("tools", "");
  showError("more", "");
}

function showError(name, text) {
  setText($(name + "-error"), text);
  $(name).toggleAttribute("aria-invalid", text !== "");
  if (text) $(name).closest("details").open = true;
}

/* The JSON of a field; an Error if it is no JSON of that kind. */
function jsonOf(options, name, isKind, kind) {
  if (!options[name]?.trim()) return undefined;
  let value;
  try {
    value = JSON.parse(options[name]);
  } catch (error) {
    showError(name, "This is not JSON: " + error.message);
    throw new Error(`The field "${name === "more" ? "Other fields" : "Tools"}" of the options is not JSON.`);
  }
  if (isKind(value)) return value;
  showError(name, `This must be ${kind}.`);
  throw new Error(`The field "${name === "more" ? "Other fields" : "Tools"}" of the options must be ${kind}.`);
}

/* Fields of a request to /v1/chat/completions or /v1/completions. Throws an Error in plain words. */
export function requestFields(options, chat) {
  const fields = {};
  showError("tools", "");
  showError("more", "");
  for (const name of NUMBERS) if (options[name] !== undefined) fields[name] = Number(options[name]);
  if (options.stop) fields.stop = options.stop.split("\n").filter(Boolean);
  if (options.response_format) fields.response_format = { type: options.response_format };
  const tools = jsonOf(options, "tools", Array.isArray, "a list");
  if (chat && tools) fields.tools = tools;
  if (chat && options.reasoning_effort) fields.reasoning_effort = options.reasoning_effort;
  return { ...fields, ...jsonOf(options, "more", (v) => v && typeof v === "object" && !Array.isArray(v), "an object") };
}
