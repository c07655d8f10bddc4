/* SPDX-License-Identifier: Apache-2.0
 * responses.h - OpenAI's Responses API (/v1/responses) as an operation of the OpenAI front end: the body becomes that
 *               of a chat, which the same code checks and sends; the answer has its own form, and is stored.
 * Owner, threads: as of a job (api/openai/openai.h); the store is of the api and has a lock.
 * Way in:  proa_resp_read. */
#ifndef PROA_API_RESPONSES_RESPONSES_H
#define PROA_API_RESPONSES_RESPONSES_H

#include "api/openai/openai.h"

/* ---- read.c, items.c: false with job->error ---- */
bool proa_resp_read(proa_oai *job);
/* Makes `instructions` and `input` of the body a list of chat messages after those of `history` (NULL: none), which is
 * taken over. *first is where the new ones begin, the instructions not counted. */
bool proa_resp_convert_input(proa_oai *job, proa_json *history);

/* ---- write.c ---- */
void proa_resp_begin_stream(proa_oai *job);
void proa_resp_begin_item(proa_oai *job, const proa_oai_item *item);
void proa_resp_grow_item(proa_oai *job, const proa_oai_item *item, proa_str text, proa_str logprobs);
void proa_resp_end_item(proa_oai *job, const proa_oai_item *item);
void proa_resp_end_stream(proa_oai *job);
bool proa_resp_put_answer(proa_oai *job, proa_buf *out);
void proa_resp_put_failure(proa_oai *job);

/* ---- store.c ---- */

/* Responses by id, with their conversations, for GET and previous_response_id. At most PROA_RESPONSES_MAX and
 * PROA_RESPONSES_BYTES_MAX: the one that was not used for the longest time is dropped first. Any thread. */
typedef struct proa_response_store proa_response_store;
/* keep_ms: a response that was not used for so long is not found any more. */
proa_response_store *proa_response_store_new(int64_t keep_ms);
void proa_response_store_free(proa_response_store *store); /* NULL is fine */
/* owner: of the API key that made it; only the same one finds it. messages: a list of chat messages as JSON, answer:
 * the response; both are copied. What is larger than the store is not kept. */
void proa_response_store_put(proa_response_store *store, const char *id, uint64_t owner, proa_str messages,
                             proa_str answer);
/* Appends them to these buffers, of which each may be NULL; false: not found. */
bool proa_response_store_get(proa_response_store *store, proa_str id, uint64_t owner, proa_buf *messages,
                             proa_buf *answer);
bool proa_response_store_remove(proa_response_store *store, proa_str id, uint64_t owner);

/* ---- stored.c: GET and DELETE /v1/responses/{id} ---- */
void proa_resp_stored(proa_api *api, proa_http_exchange *x, proa_str id);
uint64_t proa_resp_owner(const proa_http_exchange *x);
proa_response_store *proa_api_responses(const proa_api *api);

#endif
