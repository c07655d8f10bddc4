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
    if (proa_str_is(proa_str_c(c->finish), "tool_calls")) return "tool_use";
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

/* Anthropic counts tokens that were read from the cache apart from the others. Before the end none are known. */
static void put_usage(const proa_oai *job, proa_buf *out)
{
    int64_t cached = proa_oai_cached_tokens(job);
    proa_buf_printf(out,
                    "\"usage\":{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,"
                    "\"cache_read_input_tokens\":%lld,\"output_tokens\":%lld}",
                    (long long)(proa_oai_prompt_tokens(job) - cached), (long long)cached,
                    (long long)job->choices[0].count);
}

/* A content block with its text; a tool_use block has its arguments only if they are complete. */
static void put_block(proa_buf *out, const proa_oai_item *item)
{
    proa_str text = proa_buf_view(&item->text);
    proa_json *input = NULL;
    switch (item->kind) {
    case PROA_PART_REASONING:
        proa_buf_str(out, proa_str_c("{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":"));
        proa_buf_json_str(out, text);
        break;
    case PROA_PART_CALL:
        proa_buf_str(out, proa_str_c("{\"type\":\"tool_use\",\"id\":"));
        proa_buf_json_str(out, proa_str_c(item->call_id));
        proa_buf_str(out, proa_str_c(",\"name\":"));
        proa_buf_json_str(out, item->name);
        if (proa_json_parse_within(&input, text, PROA_REQUEST_NODES_MAX, "input", NULL) != PROA_OK ||
            proa_json_kind(input) != PROA_JSON_OBJECT)
            text = proa_str_c("{}");
        proa_json_free(input);
        proa_buf_str(out, proa_str_c(",\"input\":"));
        proa_buf_str(out, text);
        break;
    default:
        proa_buf_str(out, proa_str_c("{\"type\":\"text\",\"text\":"));
        proa_buf_json_str(out, text);
        break;
    }
    proa_buf_char(out, '}');
}

bool proa_msg_put_answer(proa_oai *job, proa_buf *out)
{
    proa_oai_end_items(job);
    put_head(job, out);
    for (int32_t i = 0; i < job->items_count; i++) {
        if (i > 0) proa_buf_char(out, ',');
        put_block(out, &job->items[i]);
    }
    proa_buf_str(out, proa_str_c("],"));
    put_stop(out, &job->choices[0]);
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

void proa_msg_begin_stream(proa_oai *job)
{
    begin_event(job, "message_start");
    proa_buf_str(&job->out, proa_str_c(",\"message\":"));
    put_head(job, &job->out);
    proa_buf_str(&job->out, proa_str_c("],\"stop_reason\":null,\"stop_sequence\":null,"));
    put_usage(job, &job->out);
    proa_buf_char(&job->out, '}');
    end_event(job);
}

static void begin_block_event(proa_oai *job, const proa_oai_item *item, const char *type)
{
    begin_event(job, type);
    proa_buf_printf(&job->out, ",\"index\":%d", (int)item->index);
}

void proa_msg_begin_item(proa_oai *job, const proa_oai_item *item)
{
    begin_block_event(job, item, "content_block_start");
    proa_buf_str(&job->out, proa_str_c(",\"content_block\":"));
    put_block(&job->out, item);
    end_event(job);
    if (item->index > 0) return;
    begin_event(job, "ping");
    end_event(job);
}

void proa_msg_grow_item(proa_oai *job, const proa_oai_item *item, proa_str text, proa_str logprobs)
{
    static const char *const deltas[][2] = {[PROA_PART_CONTENT] = {"text_delta", "text"},
                                            [PROA_PART_REASONING] = {"thinking_delta", "thinking"},
                                            [PROA_PART_CALL] = {"input_json_delta", "partial_json"}};
    PROA_UNUSED(logprobs);
    if (text.len == 0) return;
    begin_block_event(job, item, "content_block_delta");
    proa_buf_printf(&job->out, ",\"delta\":{\"type\":\"%s\",\"%s\":", deltas[item->kind][0],
                    deltas[item->kind][1]);
    proa_buf_json_str(&job->out, text);
    proa_buf_char(&job->out, '}');
    end_event(job);
}

void proa_msg_end_item(proa_oai *job, const proa_oai_item *item)
{
    begin_block_event(job, item, "content_block_stop");
    end_event(job);
}

void proa_msg_end_stream(proa_oai *job)
{
    proa_oai_end_items(job);
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
