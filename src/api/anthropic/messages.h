/* SPDX-License-Identifier: Apache-2.0
 * messages.h - Anthropic's Messages API (/v1/messages, /v1/messages/count_tokens) as two operations of the OpenAI front
 *              end: the body becomes that of a chat, which the same code checks and sends; the answer has its own form.
 * Owner, threads: as of a job (api/openai/openai.h).
 * Way in:  proa_msg_read. */
#ifndef PROA_API_ANTHROPIC_MESSAGES_H
#define PROA_API_ANTHROPIC_MESSAGES_H

#include "api/openai/openai.h"

/* ---- read.c: false with job->error ---- */
bool proa_msg_read(proa_oai *job);
bool proa_msg_read_count(proa_oai *job);

/* ---- blocks.c ---- */
/* Makes `system` and `messages` of the body a list of chat messages: one of Anthropic's with results of tools becomes
 * several. False with job->error. */
bool proa_msg_convert_messages(proa_oai *job);

/* ---- write.c ---- */
void proa_msg_begin_stream(proa_oai *job);
void proa_msg_begin_item(proa_oai *job, const proa_oai_item *item);
void proa_msg_grow_item(proa_oai *job, const proa_oai_item *item, proa_str text, proa_str logprobs);
void proa_msg_end_item(proa_oai *job, const proa_oai_item *item);
void proa_msg_end_stream(proa_oai *job);
bool proa_msg_put_answer(proa_oai *job, proa_buf *out);
bool proa_msg_put_count(proa_oai *job, proa_buf *out);
/* {"type":"error","error":{"type","message"}} */
void proa_msg_put_error(proa_buf *out, const proa_oai_error *e);
void proa_msg_put_failure(proa_oai *job);

#endif
