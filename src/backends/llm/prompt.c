/* SPDX-License-Identifier: Apache-2.0
 * prompt.c - a typed generation as a request of the engine: its text or chat as tokens, the echo, the task. It is the
 *            same for requests that a protocol sends typed and for those that a contract reads from tensors. Also the
 *            texts of a chat as messages, whose parsers are in text/message. */
#include "backends/llm/request.h"
#include "backends/llm/settings.h"

#include "base/limits.h"
#include <string.h>
#include <sys/random.h>

proa_pooling proa_llm_pooling(const proa_prompt *p)
{
    proa_pooling pooling = p->generation->pooling;
    if (pooling == PROA_POOLING_DEFAULT) pooling = p->req->llm_model->modules.pooling;
    if (pooling != PROA_POOLING_DEFAULT) return pooling;
    return p->req->llm_model->info.kind == PROA_KIND_DECODER ? PROA_POOLING_LAST : PROA_POOLING_MEAN;
}

/* Refuses what the model cannot do of a task. */
static proa_status check_task(const proa_prompt *p, proa_err *err)
{
    const proa_llm_model *s = p->req->llm_model;
    proa_generation_task task = p->generation->task;
    proa_pooling pooling = proa_llm_pooling(p);
    if (s->info.kind == PROA_KIND_ENCODER && task <= PROA_GENERATION_SCORE)
        return PROA_FAIL(err, UNSUPPORTED, "an encoder does not %s: task must be rows, embed or classify",
                         proa_generation_task_names[task]);
    if (task == PROA_GENERATION_CLASSIFY && s->labels <= 0)
        return PROA_FAIL(err, UNSUPPORTED, "the model has no labels to classify by");
    if (task != PROA_GENERATION_EMBED) return PROA_OK;
    if (s->modules.refused && p->generation->pooling == PROA_POOLING_DEFAULT)
        return PROA_FAIL(err, UNSUPPORTED, "%s (a pooling in the request gives the vector without it)",
                         s->modules.refused);
    if (s->info.kind == PROA_KIND_DECODER && pooling != PROA_POOLING_LAST)
        return PROA_FAIL(err, UNSUPPORTED, "a decoder's embedding is its last position's: pooling must be last");
    if (pooling == PROA_POOLING_POOLER && !s->info.has_pooler)
        return PROA_FAIL(err, UNSUPPORTED, "the model has no pooler");
    return PROA_OK;
}

/* ---- messages: the form of a model's ---- */

proa_status proa_llm_read_form(proa_llm_model *s, proa_err *err)
{
    const char *tools = proa_llm_setting(s->model, "tool_parser");
    const char *reasoning = proa_llm_setting(s->model, "reasoning_parser");
    s->form = proa_chat_form(s->chat);
    if (tools && strcmp(tools, "auto") != 0 && !proa_tool_form_find(&s->form.tools, tools))
        return PROA_FAIL(err, INVALID, "parameter 'tool_parser' is '%s', must be auto, %s", tools,
                         proa_tool_form_names);
    if (reasoning && strcmp(reasoning, "auto") != 0 && !proa_reasoning_form_find(&s->form.reasoning, reasoning))
        return PROA_FAIL(err, INVALID, "parameter 'reasoning_parser' is '%s', must be auto, %s", reasoning,
                         proa_reasoning_form_names);
    return PROA_OK;
}

/* ---- messages: what a chat adds to its prompt ---- */

/* The markers of the form that the tokenizer has as special tokens. */
static void show_markers(proa_prompt *p)
{
    const char *markers[PROA_MESSAGE_MARKERS_MAX];
    const proa_tokenizer *tok = p->req->llm_model->tokenizer;
    int count = proa_message_markers(&p->setup.form, markers, PROA_MESSAGE_MARKERS_MAX);
    int32_t *ids = PROA_ARENA_NEW(&p->req->arena, int32_t, count), id;
    for (int i = 0; i < count && tok; i++)
        if (proa_tokenizer_find(tok, proa_str_c(markers[i]), &id) && proa_tokenizer_is_special(tok, id))
            ids[p->request.visible_ids_count++] = id;
    p->request.visible_ids = ids;
}

/* A call that must come begins in the prompt. */
static void begin_call(proa_prompt *p, bool open, proa_buf *text)
{
    const proa_message_options *m = &p->generation->message;
    bool named = m->choice == PROA_TOOL_CHOICE_NAMED;
    proa_message_form form = p->setup.form;
    size_t from = text->len;
    proa_message_begin_call(&form, named ? m->tool : (proa_str){"", 0}, open, text);
    proa_str begun = {text->ptr + from, text->len - from};
    p->begun = (proa_str){proa_arena_strdup(&p->req->arena, begun), begun.len};
}

static int32_t special_marker(const void *arg, const char *marker)
{
    const proa_tokenizer *tok = arg;
    int32_t id;
    bool special = tok && proa_tokenizer_find(tok, proa_str_c(marker), &id) &&
                   proa_tokenizer_is_special(tok, id);
    return special ? id : -1;
}

/* A list of allowed words, and a grammar beside calls that need not come, constrain the text alone. */
static proa_status hold_calls(proa_prompt *p, const proa_json *chat, bool forced, proa_err *err)
{
    const proa_message_options *m = &p->generation->message;
    const proa_options *o = &p->generation->options;
    proa_buf text;
    if (o->allowed_words.count || (!forced && proa_options_constrain(o))) return PROA_OK;
    const proa_call_grammar g = {.form = &p->setup.form,
                                 .tools = proa_json_get(chat, "tools"),
                                 .toolset = p->setup.tools,
                                 .forced = forced,
                                 .named = m->choice == PROA_TOOL_CHOICE_NAMED ? m->tool : (proa_str){"", 0},
                                 .one_call = m->one_call,
                                 .special = special_marker,
                                 .arg = p->req->llm_model->tokenizer};
    proa_buf_init(&text, PROA_GRAMMAR_BYTES_MAX);
    if (proa_message_call_grammar(&g, &text))
        p->call_grammar = proa_arena_strdup(&p->req->arena, proa_buf_view(&text));
    bool full = text.full;
    proa_buf_release(&text);
    if (full)
        return PROA_FAIL(err, LIMIT, "tools: their schemas have more than %d bytes", PROA_GRAMMAR_BYTES_MAX);
    return PROA_OK;
}

proa_status proa_llm_prepare_message(proa_prompt *p, const proa_json *chat, proa_buf *text, proa_err *err)
{
    const proa_message_options *m = &p->generation->message;
    proa_message_form form = p->req->llm_model->form;
    bool forced = m->choice == PROA_TOOL_CHOICE_REQUIRED || m->choice == PROA_TOOL_CHOICE_NAMED;
    if (forced && form.tools == PROA_TOOL_FORM_NONE)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "tool_choice: the model's chat template has no form of tool calls that is known; the "
            "parameter tool_parser of the model names one: %s",
            proa_tool_form_names);
    if (m->choice == PROA_TOOL_CHOICE_NONE) form.tools = PROA_TOOL_FORM_NONE;
    p->split = form.tools != PROA_TOOL_FORM_NONE || form.reasoning != PROA_REASONING_NONE;
    if (!p->split) return PROA_OK;
    int reasons = proa_message_prompt_reasons(&form, proa_buf_view(text));
    bool first = reasons < 0 && form.reasoning == PROA_REASONING_THINK_FIRST;
    p->setup = (proa_message_setup){
        .form = form, .one_call = m->one_call, .reasoning_open = reasons > 0 || (first && !forced)};
    p->setup.tools = proa_toolset_new(&p->req->arena, proa_json_get(chat, "tools"));
    show_markers(p);
    if (forced) begin_call(p, reasons > 0, text);
    return m->choice == PROA_TOOL_CHOICE_NONE ? PROA_OK : hold_calls(p, chat, forced, err);
}

/* ---- messages: the parts of a reply ---- */

typedef struct proa_part_list {
    proa_arena *arena;
    proa_generated_part *items;
    int64_t count, room;
    bool hide_reasoning;
    proa_tool_form form;
} proa_part_list;

/* Mistral's templates want ids of nine letters and digits; others take any. */
static const char *make_id(const proa_part_list *list)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    bool mistral = list->form == PROA_TOOL_FORM_MISTRAL;
    unsigned char random[24] = {0};
    char text[40];
    int n = mistral ? 0 : snprintf(text, sizeof text, "call_"), count = mistral ? 9 : 24;
    if (getrandom(random, sizeof random, 0) < 0) memset(random, 0, sizeof random);
    for (int i = 0; i < count; i++) text[n++] = digits[random[i] % (sizeof digits - 1)];
    return proa_arena_strdup(list->arena, (proa_str){text, (size_t)n});
}

static void add_part(void *arg, const proa_message_event *e)
{
    static const proa_part_kind kinds[] = {[PROA_MESSAGE_CONTENT] = PROA_PART_CONTENT,
                                           [PROA_MESSAGE_REASONING] = PROA_PART_REASONING,
                                           [PROA_MESSAGE_CALL] = PROA_PART_CALL,
                                           [PROA_MESSAGE_ARGUMENTS] = PROA_PART_ARGUMENTS,
                                           [PROA_MESSAGE_CALL_END] = PROA_PART_CALL_END};
    const proa_llm_output *output = arg;
    proa_part_list *list = output->parts;
    if (e->kind == PROA_MESSAGE_REASONING && list->hide_reasoning) return;
    if (list->count == list->room) {
        int64_t room = list->room ? 2 * list->room : 8;
        proa_generated_part *items = PROA_ARENA_NEW(list->arena, proa_generated_part, room);
        if (list->count) memcpy(items, list->items, (size_t)list->count * sizeof *items);
        list->items = items;
        list->room = room;
    }
    proa_generated_part *part = &list->items[list->count++];
    *part = (proa_generated_part){.kind = kinds[e->kind], .call = e->call};
    part->text = (proa_str){proa_arena_strdup(list->arena, e->text), e->text.len};
    if (e->kind != PROA_MESSAGE_CALL) return;
    part->id = e->id.len ? proa_arena_strdup(list->arena, e->id) : make_id(list);
}

/* The outputs of a prompt may move, so the parser's argument is set for each push. */
static void open_parser(proa_prompt *p, proa_llm_output *output)
{
    proa_message_setup setup = p->setup;
    setup.on_event = add_part;
    setup.arg = output;
    if (output->parser) {
        proa_message_parser_set_arg(output->parser, output);
        return;
    }
    output->parser = proa_message_parser_new(&setup);
    proa_message_push(output->parser, p->begun);
}

void proa_llm_split_text(proa_prompt *p, proa_llm_output *output, proa_generated_sequence *to, proa_arena *arena)
{
    proa_part_list list = {
        .arena = arena, .hide_reasoning = p->generation->message.hide_reasoning, .form = p->setup.form.tools};
    output->parts = &list;
    open_parser(p, output);
    proa_message_push(output->parser, proa_buf_view(&output->text));
    if (output->finish != PROA_FINISH_NONE) proa_message_finish(output->parser);
    output->parts = NULL;
    to->parts = list.items;
    to->parts_count = list.count;
}

/* ---- tokens ---- */

bool proa_llm_task_computes(proa_generation_task task)
{
    return task != PROA_GENERATION_TOKENIZE && task != PROA_GENERATION_DETOKENIZE;
}

static bool adds_special(const proa_prompt *p, bool otherwise)
{
    proa_special special = p->generation->special;
    return special == PROA_SPECIAL_DEFAULT ? otherwise : special == PROA_SPECIAL_ADD;
}

static proa_status tokenize_text(proa_prompt *p, proa_str text, bool special, proa_err *err)
{
    const proa_tokenizer *tok = p->req->llm_model->tokenizer;
    if (!tok) return PROA_FAIL(err, UNSUPPORTED, "the model's folder has no tokenizer: give input_ids");
    PROA_TRY(proa_tokenizer_encode_types(tok, text, special, &p->tokens, &p->types, err));
    p->ids = (proa_id_list){p->tokens.ptr, p->tokens.len};
    bool encoder = p->req->llm_model->info.kind == PROA_KIND_ENCODER;
    for (int64_t i = 0; encoder && i < p->types.len; i++)
        if (p->types.ptr[i]) p->request.type_ids = p->types.ptr;
    return PROA_OK;
}

/* Two texts as one input. */
static proa_status tokenize_pair(proa_prompt *p, proa_err *err)
{
    const proa_tokenizer *tok = p->req->llm_model->tokenizer;
    const proa_generation *g = p->generation;
    if (!tok) return PROA_FAIL(err, UNSUPPORTED, "the model's folder has no tokenizer: give input_ids");
    PROA_TRY(proa_tokenizer_encode_pair(tok, g->text, g->text_pair, true, &p->tokens, &p->types, err));
    p->ids = (proa_id_list){p->tokens.ptr, p->tokens.len};
    p->request.type_ids = p->types.ptr;
    return PROA_OK;
}

proa_status proa_llm_parse_json(proa_json **out, proa_str text, const char *what, proa_err *err)
{
    proa_err why = {.status = PROA_OK};
    if (proa_json_parse_within(out, text, PROA_REQUEST_NODES_MAX, what, &why) == PROA_OK) return PROA_OK;
    return proa_err_set(err, why.status == PROA_LIMIT ? PROA_LIMIT : PROA_INVALID, why.file, why.line, "%s",
                        why.text);
}

/* A list of messages is the same as an object that has nothing but them. */
static proa_status parse_messages(proa_json **out, proa_str text, proa_err *err)
{
    size_t blank = 0;
    while (blank < text.len && strchr(" \t\r\n", text.ptr[blank])) blank++;
    if (blank == text.len || text.ptr[blank] != '[') return proa_llm_parse_json(out, text, "messages", err);
    proa_buf object;
    proa_buf_init(&object, PROA_TEXT_BYTES_MAX);
    proa_buf_printf(&object, "{\"messages\":");
    proa_buf_str(&object, text);
    proa_buf_char(&object, '}');
    proa_status status = object.full ? PROA_FAIL(err, LIMIT, "messages have more than %lld bytes",
                                                 (long long)PROA_TEXT_BYTES_MAX)
                                     : proa_llm_parse_json(out, proa_buf_view(&object), "messages", err);
    proa_buf_release(&object);
    return status;
}

/* The text that the template makes of a chat, as tokens. */
static proa_status tokenize_chat(proa_prompt *p, const proa_json *chat, proa_err *err)
{
    proa_buf text;
    proa_buf_init(&text, PROA_TEXT_BYTES_MAX);
    proa_status status = proa_chat_render(p->req->llm_model->chat, chat, &text, err);
    if (status == PROA_OK && p->generation->message.split)
        status = proa_llm_prepare_message(p, chat, &text, err);
    if (status == PROA_OK) status = tokenize_text(p, proa_buf_view(&text), adds_special(p, false), err);
    proa_buf_release(&text);
    return status;
}

/* From the tree of the chat, or else from its JSON. */
static proa_status read_chat(proa_prompt *p, proa_err *err)
{
    const proa_generation *g = p->generation;
    proa_json *json = NULL;
    if (p->req->count > 1) return PROA_FAIL(err, UNSUPPORTED, "messages come one list in a request");
    if (!p->req->llm_model->chat)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "the model's folder has no chat template: --chat-template names one (a file, chatml or plain)");
    if (g->chat) return tokenize_chat(p, g->chat, err);
    PROA_TRY(parse_messages(&json, g->chat_text, err));
    proa_status status = tokenize_chat(p, json, err);
    proa_json_free(json);
    return status;
}

static proa_status read_tokens(proa_prompt *p, proa_err *err)
{
    const proa_generation *g = p->generation;
    if (g->embedded) return PROA_OK;
    if (g->text_pair.ptr) return tokenize_pair(p, err);
    if (g->text.ptr) return tokenize_text(p, g->text, adds_special(p, true), err);
    if (g->chat || g->chat_text.ptr) {
        proa_status status = read_chat(p, err);
        proa_infer_free_chat(p->req->infer);
        return status;
    }
    if (g->ids_count > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, LIMIT, "input 'input_ids' has %lld ids, at most %d are taken",
                         (long long)g->ids_count, PROA_CONTEXT_MAX);
    p->ids = (proa_id_list){g->ids, g->ids_count};
    p->request.type_ids = g->type_ids;
    return PROA_OK;
}

static void set_decoder_ids(proa_prompt *p)
{
    const proa_generation *g = p->generation;
    p->decoder_ids = (proa_id_list){g->decoder_ids, g->decoder_ids_count};
    p->request.decoder_ids = g->decoder_ids;
    p->request.decoder_ids_count = g->decoder_ids_count;
    if (p->req->llm_model->info.kind == PROA_KIND_ENCODER_DECODER)
        p->start_tokens = g->decoder_ids ? g->decoder_ids_count : 1;
}

/* ---- the request ---- */

/* The text of the prompt's ids, in the request's arena. */
static proa_status decode_ids(proa_prompt *p, bool skip_special, proa_str *to, proa_err *err)
{
    const proa_tokenizer *tok = p->req->llm_model->tokenizer;
    proa_buf text;
    if (!tok) return PROA_FAIL(err, UNSUPPORTED, "the model's folder has no tokenizer");
    proa_buf_init(&text, PROA_TEXT_BYTES_MAX);
    proa_status status = proa_tokenizer_decode(tok, p->ids.ptr, p->ids.len, skip_special, &text, err);
    if (status == PROA_OK)
        *to = (proa_str){proa_arena_strdup(&p->req->arena, proa_buf_view(&text)), text.len};
    proa_buf_release(&text);
    return status;
}

/* Ids between the tokenizer's vocabulary and a larger one of the model have no text; larger ones are a mistake. */
static proa_status read_text_of_ids(proa_prompt *p, proa_err *err)
{
    const proa_llm_model *m = p->req->llm_model;
    int32_t known = m->tokenizer ? proa_tokenizer_vocab(m->tokenizer) : 0, vocab = m->info.vocab;
    int32_t most = known > vocab ? known : vocab;
    for (int64_t i = 0; i < p->ids.len; i++)
        if (p->ids.ptr[i] < 0 || p->ids.ptr[i] >= most)
            return PROA_FAIL(err, INVALID, "token id %d at position %lld is outside of the vocabulary (0 to %d)",
                             p->ids.ptr[i], (long long)i, most - 1);
    return decode_ids(p, false, &p->decoded, err);
}

/* What to put before each sequence's text. */
static proa_status read_echo(proa_prompt *p, proa_err *err)
{
    if (!p->generation->echo) return PROA_OK;
    p->echo = p->generation->text;
    if (p->echo.ptr || !p->req->llm_model->tokenizer) return PROA_OK;
    return decode_ids(p, true, &p->echo, err);
}

/* A decoder's vector is what its head reads at the prompt's last position. */
static void embed_by_decoder(proa_request *request)
{
    request->task = PROA_TASK_GENERATE;
    request->options = (proa_options){.max_tokens = 1, .beams = 1, .n = 1, .return_hidden = true};
}

static void set_request(proa_prompt *p)
{
    static const proa_task tasks[] = {
        [PROA_GENERATION_TEXT] = PROA_TASK_GENERATE, [PROA_GENERATION_SCORE] = PROA_TASK_SCORE,
        [PROA_GENERATION_ROWS] = PROA_TASK_ROWS,     [PROA_GENERATION_EMBED] = PROA_TASK_ENCODE,
        [PROA_GENERATION_CLASSIFY] = PROA_TASK_ROWS, [PROA_GENERATION_ENCODE] = PROA_TASK_ENCODE};
    const proa_generation *g = p->generation;
    bool embed = g->task == PROA_GENERATION_EMBED;
    proa_options *o = &p->request.options;
    p->request.task = tasks[g->task];
    *o = g->options; /* its lists are in the request's arena */
    if (p->call_grammar) {
        o->json_schema = o->regex = NULL;
        o->json_object = false;
        o->choice.count = 0;
        o->grammar = p->call_grammar;
        o->given[PROA_OPTION_grammar] = true;
    }
    if (o->top_logprobs > 0) o->logprobs = true, o->given[PROA_OPTION_logprobs] = true;
    if (embed && proa_llm_pooling(p) == PROA_POOLING_POOLER) p->request.task = PROA_TASK_ROWS;
    if (embed && p->req->llm_model->info.kind == PROA_KIND_DECODER) embed_by_decoder(&p->request);
    p->request.cache_salt = g->cache_salt;
    p->request.session_id = g->session;
    p->request.session_begins = g->session && g->session_starts;
    p->request.session_continues = g->session && !g->session_starts;
    p->request.session_ends = g->session_ends;
    p->request.client = p->req->infer->client;
    p->request.embedded = g->embedded;
    p->request.prompt_table = g->prompt_table;
    p->request.prompt_table_rows = g->prompt_table_rows;
    p->request.ids = p->ids.ptr;
    p->request.ids_count = g->embedded ? g->ids_count : p->ids.len;
    p->wants_rows = g->prompt_logits;
}

proa_status proa_llm_make_prompt(proa_prompt *p, proa_err *err)
{
    PROA_TRY(check_task(p, err));
    PROA_TRY(read_tokens(p, err));
    if (p->generation->task == PROA_GENERATION_DETOKENIZE) return read_text_of_ids(p, err);
    if (!proa_llm_task_computes(p->generation->task)) return PROA_OK;
    set_decoder_ids(p);
    PROA_TRY(read_echo(p, err));
    set_request(p);
    if (p->request.ids_count == 0) return PROA_FAIL(err, INVALID, "the prompt is empty");
    return PROA_OK;
}
