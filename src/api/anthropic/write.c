/* SPDX-License-Identifier: Apache-2.0
 * write.c - answers of /v1/messages: a message whole, or as the events of a stream; errors in Anthropic's form. */
#include "api/anthropic/messages.h"

#include "base/long_text.h"
#include <stdlib.h>
#include <string.h>

/* ---- the message ---- */

static const char *stop_reason(const proa_oai_choice *c)
{
    if (c->stop) return "stop_sequence";
    return proa_str_is(proa_str_c(c->finish), "length") ? "max_tokens" : "end_turn";
}

/* "stop_reason":...,"stop_sequence":... */
static void put_stop(proa_buf *out, const proa_oai_choice *c)
{
    proa_buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(c));
    if (c->stop) proa_buf_json_str(out, proa_str_c(c->stop));
    else proa_buf_str(out, proa_str_c("null"));
}

static void put_head(const proa_oai *job, proa_buf *out)
{
    proa_buf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", job->id);
    proa_buf_json_str(out, job->name);
    proa_buf_str(out, proa_str_c(",\"content\":["));
}

static void put_usage(const proa_oai *job, proa_buf *out)
{
    proa_buf_printf(out,
                    "\"usage\":{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,"
                    "\"cache_read_input_tokens\":0,\"output_tokens\":%lld}",
                    (long long)proa_oai_prompt_tokens(job), (long long)job->choices[0].count);
}

bool proa_msg_put_answer(proa_oai *job, proa_buf *out)
{
    const proa_oai_choice *c = &job->choices[0];
    put_head(job, out);
    proa_buf_str(out, proa_str_c("{\"type\":\"text\",\"text\":"));
    proa_buf_json_str(out, proa_buf_view(&c->text));
    proa_buf_str(out, proa_str_c("}],"));
    put_stop(out, c);
    proa_buf_char(out, ',');
    put_usage(job, out);
    proa_buf_char(out, '}');
    return true;
}

bool proa_msg_put_count(proa_oai *job, proa_buf *out)
{
    proa_buf_printf(out, "{\"input_tokens\":%lld}", (long long)job->prompts[0].tokens);
    return true;
}

/* ---- streams ---- */

/* The head of an event, up to the members that follow its type. */
static void begin_event(proa_oai *job, const char *type)
{
    proa_buf_printf(&job->out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end_event(proa_oai *job)
{
    proa_buf_str(&job->out, proa_str_c("}\n\n"));
}

static void start_message(proa_oai *job)
{
    begin_event(job, "message_start");
    proa_buf_str(&job->out, proa_str_c(",\"message\":"));
    put_head(job, &job->out);
    proa_buf_str(&job->out, proa_str_c("],\"stop_reason\":null,\"stop_sequence\":null,"));
    put_usage(job, &job->out);
    proa_buf_char(&job->out, '}');
    end_event(job);
    begin_event(job, "content_block_start");
    proa_buf_str(&job->out, proa_str_c(",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}"));
    end_event(job);
    begin_event(job, "ping");
    end_event(job);
}

static void put_delta(proa_oai *job, proa_str text)
{
    begin_event(job, "content_block_delta");
    proa_buf_str(&job->out, proa_str_c(",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":"));
    proa_buf_json_str(&job->out, text);
    proa_buf_char(&job->out, '}');
    end_event(job);
}

void proa_msg_write_chunk(proa_oai *job, int32_t index)
{
    proa_oai_choice *c = &job->choices[index];
    if (!proa_oai_stream_open(job)) return;
    if (!c->begun) start_message(job);
    c->begun = true;
    if (c->text.len > 0) put_delta(job, proa_buf_view(&c->text));
    proa_oai_clear_choice(c);
    proa_oai_stream_send(job);
}

void proa_msg_end_stream(proa_oai *job)
{
    begin_event(job, "content_block_stop");
    proa_buf_str(&job->out, proa_str_c(",\"index\":0"));
    end_event(job);
    begin_event(job, "message_delta");
    proa_buf_str(&job->out, proa_str_c(",\"delta\":{"));
    put_stop(&job->out, &job->choices[0]);
    proa_buf_str(&job->out, proa_str_c("},"));
    put_usage(job, &job->out);
    end_event(job);
    begin_event(job, "message_stop");
    end_event(job);
    proa_oai_stream_end(job);
}

/* ---- errors ---- */

static const char *error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
    }
}

void proa_msg_put_error(proa_buf *out, const proa_oai_error *e)
{
    char *whole = proa_long_text_copy(e->whole);
    proa_buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", error_type(e->status));
    proa_buf_json_str(out, proa_str_c(whole ? whole : e->text));
    proa_buf_str(out, proa_str_c("}}"));
    free(whole);
}

void proa_msg_put_failure(proa_oai *job)
{
    proa_buf_str(&job->out, proa_str_c("event: error\ndata: "));
    proa_msg_put_error(&job->out, &job->error);
    proa_buf_str(&job->out, proa_str_c("\n\n"));
}
