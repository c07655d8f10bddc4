/* SPDX-License-Identifier: Apache-2.0
 * write.c - responses, whole or as the events of a stream. The response is stored when it is complete. */
#include "api/responses/responses.h"

#include "base/long_text.h"
#include <stdlib.h>
#include <string.h>

/* ---- parts of a response ---- */

static bool is_cut(const proa_oai *job)
{
    const char *finish = job->choices[0].finish;
    return finish && strcmp(finish, "length") == 0;
}

static const char *status_of(const proa_oai *job)
{
    return is_cut(job) ? "incomplete" : "completed";
}

/* {"type":"output_text",...} */
static void put_part(proa_buf *out, proa_str text, proa_str logprobs)
{
    proa_buf_str(out, proa_str_c("{\"type\":\"output_text\",\"text\":"));
    proa_buf_json_str(out, text);
    proa_buf_str(out, proa_str_c(",\"annotations\":[],\"logprobs\":["));
    proa_buf_str(out, logprobs);
    proa_buf_str(out, proa_str_c("]}"));
}

/* The message: without its part while it is in progress. */
static void put_item(const proa_oai *job, proa_buf *out, const char *status)
{
    proa_buf_printf(
        out, "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"%s\",\"content\":[",
        job->id + strlen("resp_"), status ? status : "in_progress");
    if (status) put_part(out, proa_buf_view(&job->whole), proa_buf_view(&job->whole_logprobs));
    proa_buf_str(out, proa_str_c("]}"));
}

static void put_usage(const proa_oai *job, proa_buf *out)
{
    long long in = (long long)proa_oai_prompt_tokens(job), made = (long long)job->choices[0].count;
    proa_buf_printf(
        out,
        "{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens\":%lld,"
        "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":%lld}",
        in, made, in + made);
}

static void put_error(const proa_oai *job, proa_buf *out)
{
    char *whole = proa_long_text_copy(job->error.whole);
    proa_buf_printf(out, "{\"code\":\"%s\",\"message\":", job->error.code ? job->error.code : job->error.type);
    proa_buf_json_str(out, proa_str_c(whole ? whole : job->error.text));
    proa_buf_char(out, '}');
    free(whole);
}

/* status: "in_progress", "failed", or how it ended. */
static void put_response(const proa_oai *job, proa_buf *out, const char *status)
{
    bool ended = strcmp(status, "completed") == 0 || strcmp(status, "incomplete") == 0;
    proa_buf_printf(
        out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"error\":", job->id,
        (long long)job->created, status);
    if (job->failed) put_error(job, out);
    else proa_buf_str(out, proa_str_c("null"));
    proa_buf_printf(out, ",\"incomplete_details\":%s,\"background\":false,",
                    ended && is_cut(job) ? "{\"reason\":\"max_output_tokens\"}" : "null");
    proa_buf_str(out, job->shown);
    proa_buf_str(out, proa_str_c("\"model\":"));
    proa_buf_json_str(out, job->name);
    proa_buf_str(out, proa_str_c(",\"output\":["));
    if (ended) put_item(job, out, status);
    proa_buf_str(out, proa_str_c("],\"usage\":"));
    if (ended) put_usage(job, out);
    else proa_buf_str(out, proa_str_c("null"));
    proa_buf_char(out, '}');
}

/* ---- the end ---- */

/* What the choice has since it was last written joins the whole text. */
static void take_text(proa_oai *job, const proa_oai_choice *c)
{
    proa_buf_str(&job->whole, proa_buf_view(&c->text));
    if (c->tokens.len && job->whole_logprobs.len) proa_buf_char(&job->whole_logprobs, ',');
    proa_buf_str(&job->whole_logprobs, proa_buf_view(&c->tokens));
}

/* The conversation with its new message, and the response. */
static void store_response(proa_oai *job, proa_str answer)
{
    proa_buf messages;
    if (!job->store) return;
    proa_buf_init(&messages, (size_t)PROA_RESPONSES_BYTES_MAX);
    proa_buf_append(&messages, job->history.ptr, job->history.len - 1); /* without its ] */
    proa_buf_str(&messages, proa_str_c(",{\"role\":\"assistant\",\"content\":"));
    proa_buf_json_str(&messages, proa_buf_view(&job->whole));
    proa_buf_str(&messages, proa_str_c("}]"));
    if (!messages.full)
        proa_response_store_put(proa_api_responses(job->api), job->id, job->owner, proa_buf_view(&messages),
                                answer);
    proa_buf_release(&messages);
}

bool proa_resp_put_answer(proa_oai *job, proa_buf *out)
{
    take_text(job, &job->choices[0]);
    put_response(job, out, status_of(job));
    store_response(job, proa_buf_view(out));
    return true;
}

/* ---- streams ---- */

static void begin_event(proa_oai *job, const char *type)
{
    proa_buf_printf(&job->out, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%lld",
                    type, type, (long long)job->events++);
}

static void end_event(proa_oai *job)
{
    proa_buf_str(&job->out, proa_str_c("}\n\n"));
}

/* An event of the text part: which item, and where it is. */
static void begin_part_event(proa_oai *job, const char *type)
{
    begin_event(job, type);
    proa_buf_printf(&job->out, ",\"item_id\":\"msg_%s\",\"output_index\":0,\"content_index\":0",
                    job->id + strlen("resp_"));
}

static void response_event(proa_oai *job, const char *type, const char *status)
{
    begin_event(job, type);
    proa_buf_str(&job->out, proa_str_c(",\"response\":"));
    put_response(job, &job->out, status);
    end_event(job);
}

static void item_event(proa_oai *job, const char *type, const char *status)
{
    begin_event(job, type);
    proa_buf_str(&job->out, proa_str_c(",\"output_index\":0,\"item\":"));
    put_item(job, &job->out, status);
    end_event(job);
}

static void part_event(proa_oai *job, const char *type, proa_str text, proa_str logprobs)
{
    begin_part_event(job, type);
    proa_buf_str(&job->out, proa_str_c(",\"part\":"));
    put_part(&job->out, text, logprobs);
    end_event(job);
}

static void text_event(proa_oai *job, const char *type, const char *member, proa_str text, proa_str logprobs)
{
    begin_part_event(job, type);
    proa_buf_printf(&job->out, ",\"%s\":", member);
    proa_buf_json_str(&job->out, text);
    proa_buf_str(&job->out, proa_str_c(",\"logprobs\":["));
    proa_buf_str(&job->out, logprobs);
    proa_buf_char(&job->out, ']');
    end_event(job);
}

static void begin_stream(proa_oai *job)
{
    const proa_str none = {"", 0};
    response_event(job, "created", "in_progress");
    response_event(job, "in_progress", "in_progress");
    item_event(job, "output_item.added", NULL);
    part_event(job, "content_part.added", none, none);
}

void proa_resp_write_chunk(proa_oai *job, int32_t index)
{
    proa_oai_choice *c = &job->choices[index];
    if (!proa_oai_stream_open(job)) return;
    if (!c->begun) begin_stream(job);
    c->begun = true;
    if (c->text.len > 0 || c->tokens.len > 0)
        text_event(job, "output_text.delta", "delta", proa_buf_view(&c->text), proa_buf_view(&c->tokens));
    take_text(job, c);
    proa_oai_clear_choice(c);
    proa_oai_stream_send(job);
}

void proa_resp_end_stream(proa_oai *job)
{
    proa_str text = proa_buf_view(&job->whole), logprobs = proa_buf_view(&job->whole_logprobs);
    text_event(job, "output_text.done", "text", text, logprobs);
    part_event(job, "content_part.done", text, logprobs);
    item_event(job, "output_item.done", status_of(job));
    proa_buf answer;
    proa_buf_init(&answer, (size_t)PROA_OPENAI_ANSWER_MAX);
    put_response(job, &answer, status_of(job));
    store_response(job, proa_buf_view(&answer));
    begin_event(job, status_of(job));
    proa_buf_str(&job->out, proa_str_c(",\"response\":"));
    proa_buf_str(&job->out, proa_buf_view(&answer));
    end_event(job);
    proa_buf_release(&answer);
    proa_oai_stream_end(job);
}

void proa_resp_put_failure(proa_oai *job)
{
    response_event(job, "failed", "failed");
}
