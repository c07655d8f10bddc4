/* SPDX-License-Identifier: Apache-2.0
 * access.h - parts of an engine that other code of this program may use; not in the public interface. */
#ifndef PROA_ENGINE_ACCESS_H
#define PROA_ENGINE_ACCESS_H

#include "proa/proa.h"
#include "text/tokenizer.h"

/* NULL: the model's folder has none. Valid as long as the engine; any thread may use it. */
const proa_tokenizer *proa_engine_tokenizer(const proa_engine *engine);
/* The model's small files, by name (base/files.h): config.json, chat templates. Valid as long as the engine. */
const proa_files *proa_engine_files(const proa_engine *engine);
/* Whether the head of an encoder computes one row of an input, whether it has a pooler, and whether its rows are the
 * outputs: what may stay where the model runs (proa_request.head_to, pooled_to, rows_to). */
bool proa_engine_has_head_row(const proa_engine *engine);
bool proa_engine_has_pooler(const proa_engine *engine);
bool proa_engine_is_headless(const proa_engine *engine);
/* Whether the embedding of an encoder is the first or the last row, where nothing else is said; else the mean. */
bool proa_engine_embeds_first(const proa_engine *engine);
bool proa_engine_embeds_last(const proa_engine *engine);
/* Whether a folder holds a model: a config.json, or a checkpoint that brings its own configuration. */
bool proa_engine_in_folder(const char *dir);
/* The kind of model that a config.json describes, in a folder with or without modules.json; false: of none that is
 * known. */
bool proa_engine_kind_of(proa_kind *out, const proa_json *config, bool modules);
/* The tokens with which a prompt of ids must end: in a model that fills in blanks (model/prefix.h) a blank, and what
 * begins the answer; where the row of the end token is classified, that token. Returns how many there are: 2, 1, or 0
 * in other models. */
int32_t proa_engine_prompt_end(const proa_engine *engine, int32_t ids[2]);
/* Puts them over the last of some made-up ids, if there is room; of a model whose inputs are a question and a text
 * (Longformer's) the separators, too. */
void proa_engine_end_prompt(const proa_engine *engine, int32_t *ids, int64_t count);
/* What a request that says nothing gets of generation_config.json: the options that it gives, 0 elsewhere; whether it
 * limits the length of the output. */
const proa_options *proa_engine_defaults(const proa_engine *engine, bool *limits_length);
/* The model's end tokens, from its configuration: [*count]. */
const int32_t *proa_engine_end_ids(const proa_engine *engine, int32_t *count);
/* Loads `count` adapters "random-0", ... of random numbers with this rank, for measurements. modules: as
 * proa_adapter_random takes them. */
PROA_MUST_CHECK proa_status proa_engine_random_adapters(proa_engine *engine, int32_t count,
                                                        const char *modules, int32_t rank, proa_err *err);
/* Prompt tables of numbered tasks in a model's own folder (FasterTransformer's): whether there is a task of this
 * number. *adapter: the adapter that has its table; NULL: the task has none. */
bool proa_engine_task(const proa_engine *engine, int64_t number, const char **adapter);
/* The id from which on ids of a prompt are rows of such a table; -1: the folder does not say it. *named: the rows that
 * a prompt uses are named by its ids (p-tuning); else all of them come before it. */
int64_t proa_engine_task_ids(const proa_engine *engine, bool *named);
/* How many of the request's prompt tokens the engine would find in its prefix cache now. Any thread: a hint, for
 * choosing among engines. Counts prompts of ids only; 0 for others. */
int64_t proa_engine_cached_tokens(proa_engine *engine, const proa_request *request);
/* Whether its model has recurrent states. Any thread. */
bool proa_engine_has_states(const proa_engine *engine);
/* Whether the engine has a session of that name. Any thread. */
bool proa_engine_has_session(proa_engine *engine, const char *name);
/* UNAVAILABLE, with the reason, while ranks that are processes are lost: no request is taken then. Any thread. */
PROA_MUST_CHECK proa_status proa_engine_ready(proa_engine *engine, proa_err *err);
/* How often its device has failed so far: each time all requests that ran ended with an error. Any thread. */
uint64_t proa_engine_failures(const proa_engine *engine);
/* From now on the observer sees the inputs of the products of a model on the host (model/model.h); NULL: none does. It
 * stays the caller's. Only while no step runs. */
struct proa_observer;
void proa_engine_observe(proa_engine *engine, const struct proa_observer *observer);

#endif
