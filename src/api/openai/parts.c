/* SPDX-License-Identifier: Apache-2.0
 * parts.c - the parts of a message, reasoning, texts and tool calls: as members of the message of a chat, or as a list
 *           of items in the order of the text (OpenAI's responses, Anthropic's messages). A stream writes each item as
 *           it grows; a whole answer is written at the end. */
#include "api/openai/openai.h"

#include <string.h>

/* ---- members of the message of a chat ---- */

static void put_comma(proa_buf *out)
{
    if (out->len > 0) proa_buf_char(out, ',');
}

static void put_call(proa_buf *out, const proa_generated_part *part, bool index, proa_str arguments)
{
    put_comma(out);
    proa_buf_char(out, '{');
    if (index) proa_buf_printf(out, "\"index\":%d,", (int)part->call);
    proa_buf_str(out, proa_str_c("\"id\":"));
    proa_buf_json_str(out, proa_str_c(part->id));
    proa_buf_str(out, proa_str_c(",\"type\":\"function\",\"function\":{\"name\":"));
    proa_buf_json_str(out, part->text);
    proa_buf_str(out, proa_str_c(",\"arguments\":"));
    proa_buf_json_str(out, arguments);
    proa_buf_str(out, proa_str_c("}}"));
}

/* A stream has a delta for each part. */
static void put_call_delta(proa_oai_choice *c, const proa_generated_part *part)
{
    if (part->kind == PROA_PART_CALL) put_call(&c->calls, part, true, (proa_str){"", 0});
    if (part->kind != PROA_PART_ARGUMENTS) return;
    put_comma(&c->calls);
    proa_buf_printf(&c->calls, "{\"index\":%d,\"function\":{\"arguments\":", (int)part->call);
    proa_buf_json_str(&c->calls, part->text);
    proa_buf_str(&c->calls, proa_str_c("}}"));
}

/* A whole answer has all of a sequence in one reply: `part` begins a call, whose other parts follow. */
static void put_whole_call(proa_oai_choice *c, const proa_generated_part *part, const proa_generated_part *end)
{
    proa_buf_clear(&c->arguments);
    for (const proa_generated_part *next = part + 1; next < end && next->kind == PROA_PART_ARGUMENTS; next++)
        proa_buf_str(&c->arguments, next->text);
    put_call(&c->calls, part, false, proa_buf_view(&c->arguments));
}

void proa_oai_take_parts(const proa_oai *job, proa_oai_choice *c, const proa_generated_sequence *s)
{
    const proa_generated_part *end = s->parts + s->parts_count;
    c->split = true;
    for (const proa_generated_part *part = s->parts; part < end; part++) {
        if (part->kind == PROA_PART_CONTENT) proa_buf_str(&c->text, part->text);
        else if (part->kind == PROA_PART_REASONING) proa_buf_str(&c->reasoning, part->text);
        else if (job->stream) put_call_delta(c, part);
        else if (part->kind == PROA_PART_CALL) put_whole_call(c, part, end);
        if (part->kind == PROA_PART_CALL) c->called = true;
    }
}

/* ---- items ---- */

static proa_oai_item *open_item(const proa_oai *job)
{
    proa_oai_item *last = job->items_count ? &job->items[job->items_count - 1] : NULL;
    return last && !last->ended ? last : NULL;
}

static void grow_items(proa_oai *job)
{
    if (job->items_count < job->items_room) return;
    int32_t room = job->items_room ? 2 * job->items_room : 4;
    proa_oai_item *items = PROA_ARENA_NEW(&job->arena, proa_oai_item, room);
    if (job->items_count) memcpy(items, job->items, (size_t)job->items_count * sizeof *items);
    job->items = items;
    job->items_room = room;
}

static proa_oai_item *begin_item(proa_oai *job, proa_part_kind kind, const char *call_id, proa_str name)
{
    proa_oai_end_item(job);
    grow_items(job);
    proa_oai_item *item = &job->items[job->items_count];
    *item = (proa_oai_item){.kind = kind, .index = job->items_count++};
    proa_buf_init(&item->text, (size_t)PROA_OPENAI_ANSWER_MAX);
    proa_buf_init(&item->logprobs, (size_t)PROA_OPENAI_ANSWER_MAX);
    if (call_id) {
        item->call_id = proa_arena_strdup(&job->arena, proa_str_c(call_id));
        item->name = (proa_str){proa_arena_strdup(&job->arena, name), name.len};
    }
    if (job->stream) job->form->begin_item(job, item);
    return item;
}

void proa_oai_end_item(proa_oai *job)
{
    proa_oai_item *item = open_item(job);
    if (!item) return;
    item->ended = true;
    if (job->stream) job->form->end_item(job, item);
}

static void add_to_item(proa_oai *job, proa_oai_item *item, proa_str text, proa_str logprobs)
{
    if (job->stream) job->form->grow_item(job, item, text, logprobs);
    proa_buf_str(&item->text, text);
    if (logprobs.len > 0 && item->logprobs.len > 0) proa_buf_char(&item->logprobs, ',');
    proa_buf_str(&item->logprobs, logprobs);
}

/* Text continues the open item of its kind, or begins one. The first content of a reply takes its log-probabilities. */
static void add_text(proa_oai *job, proa_oai_choice *c, proa_part_kind kind, proa_str text)
{
    const proa_str none = {"", 0};
    bool content = kind == PROA_PART_CONTENT;
    proa_str logprobs = content ? proa_buf_view(&c->tokens) : none;
    proa_oai_item *item = open_item(job);
    if (text.len == 0 && logprobs.len == 0) return;
    if (!item || item->kind != kind) item = begin_item(job, kind, NULL, none);
    add_to_item(job, item, text, logprobs);
    if (content) proa_buf_clear(&c->tokens);
}

static void add_part(proa_oai *job, proa_oai_choice *c, const proa_generated_part *part)
{
    proa_oai_item *item = open_item(job);
    switch (part->kind) {
    case PROA_PART_CONTENT:
    case PROA_PART_REASONING: add_text(job, c, part->kind, part->text); break;
    case PROA_PART_CALL:
        begin_item(job, PROA_PART_CALL, part->id, part->text);
        c->called = true;
        break;
    case PROA_PART_ARGUMENTS:
        if (item) add_to_item(job, item, part->text, (proa_str){"", 0});
        break;
    case PROA_PART_CALL_END: proa_oai_end_item(job); break;
    }
}

void proa_oai_take_items(proa_oai *job, proa_oai_choice *c, const proa_generated_sequence *s, bool split)
{
    if (job->stream && !proa_oai_stream_open(job)) return;
    if (job->stream && !c->begun) job->form->begin_stream(job);
    c->begun = true;
    for (int64_t i = 0; split && i < s->parts_count; i++) add_part(job, c, &s->parts[i]);
    if (!split) add_text(job, c, PROA_PART_CONTENT, s->text);
    proa_oai_item *item = open_item(job); /* of text that is held back */
    if (item && item->kind == PROA_PART_CONTENT) add_text(job, c, PROA_PART_CONTENT, (proa_str){"", 0});
    proa_buf_clear(&c->tokens);
}

void proa_oai_write_items(proa_oai *job, int32_t index)
{
    proa_oai_choice *c = &job->choices[index];
    if (!proa_oai_stream_open(job)) return;
    if (!c->begun) job->form->begin_stream(job);
    c->begun = true;
    proa_oai_stream_send(job);
}

void proa_oai_end_items(proa_oai *job)
{
    if (job->items_count == 0) begin_item(job, PROA_PART_CONTENT, NULL, (proa_str){"", 0});
    proa_oai_end_item(job);
}
