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

/* Only the last item can have been cut. */
static const char *item_status(const proa_oai *job, const proa_oai_item *item)
{
    bool last = item->index + 1 == job->items_count;
    if (!item->ended) return "in_progress";
    return last ? status_of(job) : "completed";
}

/* What the ids of an item of this kind begin with. */
static const char *const id_heads[] = {
    [PROA_PART_CONTENT] = "msg", [PROA_PART_REASONING] = "rs", [PROA_PART_CALL] = "fc"};

/* "msg_..." of the response "resp_..." */
static void put_item_id(const proa_oai *job, proa_buf *out, const proa_oai_item *item)
{
    proa_buf_printf(out, "\"%s_%s%02d\"", id_heads[item->kind], job->id + strlen("resp_"), (int)item->index);
}

/* {"type":"output_text",...} or {"type":"reasoning_text",...} */
static void put_part(proa_buf *out, const proa_oai_item *item, proa_str text, proa_str logprobs)
{
    bool reasoning = item->kind == PROA_PART_REASONING;
    proa_buf_printf(out, "{\"type\":\"%s\",\"text\":", reasoning ? "reasoning_text" : "output_text");
    proa_buf_json_str(out, text);
    if (!reasoning) {
        proa_buf_str(out, proa_str_c(",\"annotations\":[],\"logprobs\":["));
        proa_buf_str(out, logprobs);
        proa_buf_char(out, ']');
    }
    proa_buf_char(out, '}');
}

static void put_call(proa_buf *out, const proa_oai_item *item)
{
    proa_buf_str(out, proa_str_c(",\"type\":\"function_call\",\"call_id\":"));
    proa_buf_json_str(out, proa_str_c(item->call_id));
    proa_buf_str(out, proa_str_c(",\"name\":"));
    proa_buf_json_str(out, item->name);
    proa_buf_str(out, proa_str_c(",\"arguments\":"));
    proa_buf_json_str(out, proa_buf_view(&item->text));
}

/* A message or reasoning is without its part while it is in progress. */
static void put_item(const proa_oai *job, proa_buf *out, const proa_oai_item *item)
{
    proa_buf_str(out, proa_str_c("{\"id\":"));
    put_item_id(job, out, item);
    if (item->kind == PROA_PART_CALL) put_call(out, item);
    else {
        proa_buf_str(out, proa_str_c(item->kind == PROA_PART_REASONING
                                         ? ",\"type\":\"reasoning\",\"summary\":[],\"content\":["
                                         : ",\"type\":\"message\",\"role\":\"assistant\",\"content\":["));
        if (item->ended) put_part(out, item, proa_buf_view(&item->text), proa_buf_view(&item->logprobs));
        proa_buf_char(out, ']');
    }
    proa_buf_printf(out, ",\"status\":\"%s\"}", item_status(job, item));
}

static void put_usage(const proa_oai *job, proa_buf *out)
{
    long long in = (long long)proa_oai_prompt_tokens(job), made = (long long)job->choices[0].count;
    proa_buf_printf(
        out,
        "{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld},\"output_tokens\":%lld,"
        "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":%lld}",
        in, (long long)proa_oai_cached_tokens(job), made, in + made);
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
    for (int32_t i = 0; i < job->items_count && ended; i++) {
        if (i > 0) proa_buf_char(out, ',');
        put_item(job, out, &job->items[i]);
    }
    proa_buf_str(out, proa_str_c("],\"usage\":"));
    if (ended) put_usage(job, out);
    else proa_buf_str(out, proa_str_c("null"));
    proa_buf_char(out, '}');
}

/* ---- the end ---- */

/* "member": "the texts of all items of a kind" */
static void put_texts(const proa_oai *job, proa_buf *out, const char *member, proa_part_kind kind)
{
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_OPENAI_ANSWER_MAX);
    for (int32_t i = 0; i < job->items_count; i++)
        if (job->items[i].kind == kind) proa_buf_str(&text, proa_buf_view(&job->items[i].text));
    if (text.len > 0 || kind == PROA_PART_CONTENT) {
        proa_buf_printf(out, ",\"%s\":", member);
        proa_buf_json_str(out, proa_buf_view(&text));
    }
    proa_buf_release(&text);
}

static void put_chat_calls(const proa_oai *job, proa_buf *out)
{
    const char *before = ",\"tool_calls\":[";
    for (int32_t i = 0; i < job->items_count; i++) {
        const proa_oai_item *item = &job->items[i];
        if (item->kind != PROA_PART_CALL) continue;
        proa_buf_printf(out, "%s{\"id\":", before);
        proa_buf_json_str(out, proa_str_c(item->call_id));
        proa_buf_str(out, proa_str_c(",\"type\":\"function\",\"function\":{\"name\":"));
        proa_buf_json_str(out, item->name);
        proa_buf_str(out, proa_str_c(",\"arguments\":"));
        proa_buf_json_str(out, proa_buf_view(&item->text));
        proa_buf_str(out, proa_str_c("}}"));
        before = ",";
    }
    if (before[1] == 0) proa_buf_char(out, ']');
}

/* The conversation with its new message, in the form of a chat, and the response. */
static void store_response(proa_oai *job, proa_str answer)
{
    proa_buf messages;
    if (!job->store) return;
    proa_buf_init(&messages, (size_t)PROA_RESPONSES_BYTES_MAX);
    proa_buf_append(&messages, job->history.ptr, job->history.len - 1); /* without its ] */
    proa_buf_str(&messages, proa_str_c(",{\"role\":\"assistant\""));
    put_texts(job, &messages, "content", PROA_PART_CONTENT);
    put_texts(job, &messages, "reasoning_content", PROA_PART_REASONING);
    put_chat_calls(job, &messages);
    proa_buf_str(&messages, proa_str_c("}]"));
    if (!messages.full)
        proa_response_store_put(proa_api_responses(job->api), job->id, job->owner, proa_buf_view(&messages),
                                answer);
    proa_buf_release(&messages);
}

bool proa_resp_put_answer(proa_oai *job, proa_buf *out)
{
    proa_oai_end_items(job);
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

/* An event of an item's part: which item, and where it is. */
static void begin_part_event(proa_oai *job, const proa_oai_item *item, const char *type)
{
    begin_event(job, type);
    proa_buf_str(&job->out, proa_str_c(",\"item_id\":"));
    put_item_id(job, &job->out, item);
    proa_buf_printf(&job->out, ",\"output_index\":%d", (int)item->index);
    if (item->kind != PROA_PART_CALL) proa_buf_str(&job->out, proa_str_c(",\"content_index\":0"));
}

static void response_event(proa_oai *job, const char *type, const char *status)
{
    begin_event(job, type);
    proa_buf_str(&job->out, proa_str_c(",\"response\":"));
    put_response(job, &job->out, status);
    end_event(job);
}

static void item_event(proa_oai *job, const proa_oai_item *item, const char *type)
{
    begin_event(job, type);
    proa_buf_printf(&job->out, ",\"output_index\":%d,\"item\":", (int)item->index);
    put_item(job, &job->out, item);
    end_event(job);
}

static void part_event(proa_oai *job, const proa_oai_item *item, const char *type)
{
    begin_part_event(job, item, type);
    proa_buf_str(&job->out, proa_str_c(",\"part\":"));
    put_part(&job->out, item, proa_buf_view(&item->text), proa_buf_view(&item->logprobs));
    end_event(job);
}

/* What the events of an item's text are called: more of it, all of it, and its member in the second. */
static const char *const text_events[][3] = {
    [PROA_PART_CONTENT] = {"output_text.delta", "output_text.done", "text"},
    [PROA_PART_REASONING] = {"reasoning_text.delta", "reasoning_text.done", "text"},
    [PROA_PART_CALL] = {"function_call_arguments.delta", "function_call_arguments.done", "arguments"}};

static void text_event(proa_oai *job, const proa_oai_item *item, bool done, proa_str text, proa_str logprobs)
{
    begin_part_event(job, item, text_events[item->kind][done]);
    if (done && item->kind == PROA_PART_CALL) {
        proa_buf_str(&job->out, proa_str_c(",\"name\":"));
        proa_buf_json_str(&job->out, item->name);
    }
    proa_buf_printf(&job->out, ",\"%s\":", done ? text_events[item->kind][2] : "delta");
    proa_buf_json_str(&job->out, text);
    if (item->kind == PROA_PART_CONTENT) {
        proa_buf_str(&job->out, proa_str_c(",\"logprobs\":["));
        proa_buf_str(&job->out, logprobs);
        proa_buf_char(&job->out, ']');
    }
    end_event(job);
}

void proa_resp_begin_stream(proa_oai *job)
{
    response_event(job, "created", "in_progress");
    response_event(job, "in_progress", "in_progress");
}

void proa_resp_begin_item(proa_oai *job, const proa_oai_item *item)
{
    item_event(job, item, "output_item.added");
    if (item->kind != PROA_PART_CALL) part_event(job, item, "content_part.added");
}

void proa_resp_grow_item(proa_oai *job, const proa_oai_item *item, proa_str text, proa_str logprobs)
{
    text_event(job, item, false, text, logprobs);
}

void proa_resp_end_item(proa_oai *job, const proa_oai_item *item)
{
    text_event(job, item, true, proa_buf_view(&item->text), proa_buf_view(&item->logprobs));
    if (item->kind != PROA_PART_CALL) part_event(job, item, "content_part.done");
    item_event(job, item, "output_item.done");
}

void proa_resp_end_stream(proa_oai *job)
{
    proa_oai_end_items(job);
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
