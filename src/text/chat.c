/* SPDX-License-Identifier: Apache-2.0
 * chat.c - the chat templates of a model: where they are found, which one a request gets, and what it is given. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "text/jinja/run.h"
#include "text/template.h"
#include <dirent.h>
#include <string.h>

#define CONTINUE_TAG                                                                                         \
    "CONTINUE_FINAL_MESSAGE_TAG " /* marks the end of the last message's text; transformers' */
#define ARGUMENT_BYTES 32         /* that json-c may take for a byte of JSON */

typedef struct named_template {
    char *name;
    proa_template *template;
    bool parts; /* it reads a content as a list of parts only (LLaVA, SmolVLM) */
} named_template;

struct proa_chat {
    named_template *list;
    int count;
    proa_message_form form;
    proa_json *specials; /* {"bos_token": "<s>", ...} */
};

/* Built-in templates for models without one. */
static const struct {
    const char *name, *source;
} built_in[] = {
    {"chatml",
     "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') + '<|im_end|>\\n' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"plain", "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
              "{% else %}{{ m.role|capitalize + ': ' + (m.content or '') + '\\n' }}{% endif %}{% endfor %}"
              "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"},
};

static bool takes_parts_only(const proa_template *t, proa_str source);

static proa_status add_template(proa_chat *chat, proa_str name, proa_str source, const char *where, proa_err *err)
{
    proa_template *t;
    proa_status status = proa_template_new(&t, source, err);
    if (status != PROA_OK) {
        proa_err_prefix(err, "%s", where);
        return status;
    }
    chat->list = proa_realloc(chat->list, (size_t)(chat->count + 1) * sizeof *chat->list);
    char *copy = proa_malloc(name.len + 1);
    memcpy(copy, name.ptr, name.len);
    copy[name.len] = '\0';
    chat->list[chat->count++] = (named_template){copy, t, takes_parts_only(t, source)};
    proa_message_form_detect(&chat->form, source);
    return PROA_OK;
}

static proa_status add_file(proa_chat *chat, proa_str name, const char *path, proa_err *err)
{
    proa_buf source;
    proa_status status = proa_file_read(&source, path, PROA_TEMPLATE_BYTES_MAX, err);
    if (status == PROA_OK) status = add_template(chat, name, proa_buf_view(&source), path, err);
    proa_buf_release(&source);
    return status;
}

/* ---- where templates are ---- */

static proa_status add_folder(proa_chat *chat, const proa_files *files, proa_err *err)
{
    char path[PROA_PATH_MAX], file[PROA_PATH_MAX];
    proa_status status = PROA_OK;
    if (!files->dir) return PROA_OK;
    PROA_TRY(proa_path_join(path, files->dir, "additional_chat_templates", err));
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && status == PROA_OK && (entry = readdir(dir)) != NULL;) {
        proa_str name = proa_str_c(entry->d_name);
        if (!proa_str_ends(name, proa_str_c(".jinja"))) continue;
        name.len -= strlen(".jinja");
        status = proa_path_join(file, path, entry->d_name, err);
        if (status == PROA_OK) status = add_file(chat, name, file, err);
    }
    if (dir) closedir(dir);
    return status;
}

/* chat_template of a JSON file: a text, or a list of {"name", "template"}. */
static proa_status add_value(proa_chat *chat, const proa_json *value, const char *path, proa_err *err)
{
    if (proa_json_kind(value) == PROA_JSON_STRING)
        return add_template(chat, proa_str_c("default"), proa_json_str(value), path, err);
    for (int64_t i = 0; i < proa_json_len(value); i++) {
        const proa_json *item = proa_json_at(value, i), *name = proa_json_get(item, "name");
        const proa_json *source = proa_json_get(item, "template");
        if (proa_json_kind(name) != PROA_JSON_STRING || proa_json_kind(source) != PROA_JSON_STRING)
            return PROA_FAIL(err, INVALID, "%s: chat_template[%lld] has no name or no template", path,
                             (long long)i);
        PROA_TRY(add_template(chat, proa_json_str(name), proa_json_str(source), path, err));
    }
    return PROA_OK;
}

static proa_status load_json(proa_json **out, const proa_files *files, const char *name, proa_err *err)
{
    *out = NULL;
    return proa_files_has(files, name) ? proa_files_json(out, files, name, PROA_TOKENIZER_BYTES_MAX, err)
                                       : PROA_OK;
}

static proa_status add_from_json(proa_chat *chat, const proa_files *files, const char *name, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_json *root;
    proa_status status = load_json(&root, files, name, err);
    if (status == PROA_OK)
        status = add_value(chat, proa_json_get(root, "chat_template"), proa_files_name(path, files, name), err);
    proa_json_free(root);
    return status;
}

static proa_status add_default(proa_chat *chat, const proa_files *files, const char *name, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_buf source;
    proa_status status = proa_files_read(&source, files, name, PROA_TEMPLATE_BYTES_MAX, err);
    if (status == PROA_OK)
        status = add_template(chat, proa_str_c("default"), proa_buf_view(&source),
                              proa_files_name(path, files, name), err);
    proa_buf_release(&source);
    return status;
}

static proa_status find_own(proa_chat *chat, const proa_files *files, proa_err *err)
{
    if (proa_files_has(files, "chat_template.jinja")) {
        PROA_TRY(add_default(chat, files, "chat_template.jinja", err));
        return add_folder(chat, files, err);
    }
    PROA_TRY(add_from_json(chat, files, "tokenizer_config.json", err));
    if (chat->count == 0) PROA_TRY(add_from_json(chat, files, "chat_template.json", err));
    if (chat->count == 0) PROA_TRY(add_folder(chat, files, err));
    const char *place = files->what ? files->what : files->dir ? files->dir : "the model";
    return chat->count > 0 ? PROA_OK : PROA_FAIL(err, NOT_FOUND, "'%s' has no chat template", place);
}

bool proa_chat_is_built_in(const char *choice)
{
    for (size_t i = 0; i < PROA_COUNT(built_in); i++)
        if (strcmp(choice, built_in[i].name) == 0) return true;
    return false;
}

static proa_status find_template(proa_chat *chat, const proa_files *files, const char *choice, proa_err *err)
{
    if (!choice) return find_own(chat, files, err);
    for (size_t i = 0; i < PROA_COUNT(built_in); i++)
        if (strcmp(choice, built_in[i].name) == 0)
            return add_template(chat, proa_str_c("default"), proa_str_c(built_in[i].source), choice, err);
    return add_file(chat, proa_str_c("default"), choice, err);
}

/* ---- special tokens ---- */

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

/* A token is a text, or an object with its text as "content". */
static void write_tokens(const proa_json *root, proa_buf *out, bool seen[])
{
    for (size_t i = 0; i < PROA_COUNT(token_names); i++) {
        const proa_json *token = proa_json_get(root, token_names[i]);
        if (proa_json_kind(token) == PROA_JSON_OBJECT) token = proa_json_get(token, "content");
        if (seen[i] || proa_json_kind(token) != PROA_JSON_STRING) continue;
        proa_buf_printf(out, "%s\"%s\":", out->len > 1 ? "," : "", token_names[i]);
        proa_buf_json_str(out, proa_json_str(token));
        seen[i] = true;
    }
}

static proa_status read_tokens(proa_chat *chat, const proa_files *files, proa_err *err)
{
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json"};
    bool seen[PROA_COUNT(token_names)] = {false};
    proa_buf text;
    proa_status status = PROA_OK;
    proa_buf_init(&text, (size_t)PROA_TOKENIZER_BYTES_MAX);
    proa_buf_char(&text, '{');
    for (size_t i = 0; i < PROA_COUNT(names) && status == PROA_OK; i++) {
        proa_json *root;
        status = load_json(&root, files, names[i], err);
        write_tokens(root, &text, seen);
        proa_json_free(root);
    }
    proa_buf_char(&text, '}');
    if (status == PROA_OK)
        status = proa_json_parse(&chat->specials, proa_buf_view(&text), "special tokens", err);
    proa_buf_release(&text);
    return status;
}

proa_status proa_chat_open_files(proa_chat **out, const proa_files *files, const char *choice, proa_err *err)
{
    proa_chat *chat = proa_calloc(1, sizeof *chat);
    proa_status status = find_template(chat, files, choice, err);
    if (status == PROA_OK) status = read_tokens(chat, files, err);
    *out = status == PROA_OK ? chat : NULL;
    if (status != PROA_OK) proa_chat_free(chat);
    return status;
}

void proa_chat_free(proa_chat *chat)
{
    if (!chat) return;
    for (int i = 0; i < chat->count; i++) {
        free(chat->list[i].name);
        proa_template_free(chat->list[i].template);
    }
    free(chat->list);
    proa_json_free(chat->specials);
    free(chat);
}

proa_message_form proa_chat_form(const proa_chat *chat)
{
    return chat->form;
}

/* ---- what a template is given ---- */

static bool all_text(const proa_json *parts)
{
    for (int64_t i = 0; i < proa_json_len(parts); i++) {
        const proa_json *part = proa_json_at(parts, i);
        if (!proa_str_is(proa_json_str(proa_json_get(part, "type")), "text")) return false;
        if (proa_json_kind(proa_json_get(part, "text")) != PROA_JSON_STRING) return false;
    }
    return proa_json_kind(parts) == PROA_JSON_ARRAY && proa_json_len(parts) > 0;
}

static proa_jval make_content(proa_jrun *run, const proa_json *content)
{
    if (!all_text(content)) return proa_j_from_json(run, content);
    if (proa_json_len(content) == 1)
        return proa_j_view(proa_json_str(proa_json_get(proa_json_at(content, 0), "text")));
    proa_buf_clear(&run->scratch);
    for (int64_t i = 0; i < proa_json_len(content); i++) {
        if (i > 0) proa_buf_char(&run->scratch, '\n');
        proa_buf_str(&run->scratch, proa_json_str(proa_json_get(proa_json_at(content, i), "text")));
    }
    return proa_j_take(run, &run->scratch, 0);
}

/* A text as the one part of a list. */
static proa_jval make_parts(proa_jrun *run, const proa_json *content)
{
    if (proa_json_kind(content) != PROA_JSON_STRING) return proa_j_from_json(run, content);
    proa_jval list = proa_j_list(run, PROA_J_LIST, 1), part = proa_j_dict(run, PROA_J_DICT, 2);
    proa_j_put(run, part, proa_j_view(proa_str_c("type")), proa_j_view(proa_str_c("text")));
    proa_j_put(run, part, proa_j_view(proa_str_c("text")), proa_j_view(proa_json_str(content)));
    proa_j_push(run, list, part);
    return list;
}

static void free_json(void *root)
{
    proa_json_free(root);
}

/* Arguments arrive as a JSON text; templates expect the object. A text that is no object stays a text. */
static void open_arguments(proa_jrun *run, proa_jval call)
{
    proa_jval *function = call.kind == PROA_J_DICT ? proa_j_find_str(run, call, proa_str_c("function")) : NULL;
    proa_jval *arguments = function && function->kind == PROA_J_DICT
                               ? proa_j_find_str(run, *function, proa_str_c("arguments"))
                               : NULL;
    proa_json *root;
    if (!arguments || arguments->kind != PROA_J_STRING) return;
    if (!proa_j_charge_chars(run, arguments->len) ||
        !proa_j_count_memory(run, (size_t)arguments->len * ARGUMENT_BYTES))
        return;
    if (proa_json_parse_within(&root, proa_j_text(*arguments), PROA_REQUEST_NODES_MAX, "arguments", NULL) !=
        PROA_OK)
        return;
    proa_arena_defer(&run->arena, free_json, root);
    if (proa_json_kind(root) == PROA_JSON_OBJECT) *arguments = proa_j_from_json(run, root);
}

typedef proa_jval content_maker(proa_jrun *run, const proa_json *content);

static proa_jval make_message(proa_jrun *run, const proa_json *message, content_maker *make)
{
    proa_jval v = proa_j_dict(run, PROA_J_DICT, proa_json_len(message));
    for (proa_json_iter it = proa_json_begin(message); proa_json_next(&it) && !run->failed;) {
        bool content = proa_str_is(it.key, "content");
        proa_jval value = content ? make(run, it.value) : proa_j_from_json(run, it.value);
        if (proa_str_is(it.key, "tool_calls") && value.kind == PROA_J_LIST)
            for (int64_t i = 0; i < value.seq->len; i++) open_arguments(run, value.seq->items[i]);
        proa_j_put(run, v, proa_j_view(it.key), value);
    }
    return v;
}

/* The text of the last message, or of its last part. */
static proa_jval *find_text(proa_jrun *run, proa_jval message)
{
    proa_jval *content = proa_j_find_str(run, message, proa_str_c("content"));
    if (!content || content->kind != PROA_J_LIST || content->seq->len == 0) return content;
    return proa_j_find_str(run, content->seq->items[content->seq->len - 1], proa_str_c("text"));
}

/* The same with the tag after it. */
static void add_tag(proa_jrun *run, proa_jval message)
{
    proa_jval *text = find_text(run, message);
    if (!text || text->kind != PROA_J_STRING) return;
    proa_buf_clear(&run->scratch);
    proa_buf_str(&run->scratch, proa_j_text(*text));
    proa_buf_str(&run->scratch, proa_str_c(CONTINUE_TAG));
    *text = proa_j_take(run, &run->scratch, 0);
}

static proa_jval make_list(proa_jrun *run, const proa_json *messages, content_maker *make)
{
    proa_jval list = proa_j_list(run, PROA_J_LIST, proa_json_len(messages));
    for (int64_t i = 0; i < proa_json_len(messages) && !run->failed; i++)
        proa_j_push(run, list, make_message(run, proa_json_at(messages, i), make));
    return list;
}

static proa_jval tag_last(proa_jrun *run, proa_jval list)
{
    if (!run->failed && list.seq->len > 0) add_tag(run, list.seq->items[list.seq->len - 1]);
    return list;
}

static proa_jval make_messages(proa_jrun *run, const proa_json *messages)
{
    return make_list(run, messages, make_content);
}

static proa_jval make_continued(proa_jrun *run, const proa_json *messages)
{
    return tag_last(run, make_list(run, messages, make_content));
}

static proa_jval make_messages_of_parts(proa_jrun *run, const proa_json *messages)
{
    return make_list(run, messages, make_parts);
}

static proa_jval make_continued_of_parts(proa_jrun *run, const proa_json *messages)
{
    return tag_last(run, make_list(run, messages, make_parts));
}

static proa_jval (*choose_maker(bool parts, bool goes_on))(proa_jrun *run, const proa_json *messages)
{
    if (parts) return goes_on ? make_continued_of_parts : make_messages_of_parts;
    return goes_on ? make_continued : make_messages;
}

static proa_jval make_no_prompt(proa_jrun *run, const proa_json *flag)
{
    PROA_UNUSED(run);
    PROA_UNUSED(flag);
    return proa_j_bool(false);
}

/* add_generation_prompt: true unless the request says false. */
static proa_jval make_prompt_flag(proa_jrun *run, const proa_json *flag)
{
    PROA_UNUSED(run);
    return proa_j_bool(proa_json_kind(flag) != PROA_JSON_BOOL || proa_json_bool(flag));
}

/* ---- templates that read parts only ---- */

#define PROBE "WhatIsShownHere"

static bool has_text(proa_str s, const char *text)
{
    return s.len && memmem(s.ptr, s.len, text, strlen(text));
}

/* Whether the prompt for one message with that text has the text. */
static bool shows_text(const proa_template *t, const proa_json *messages, bool parts)
{
    proa_buf out;
    proa_err err = {.status = PROA_OK};
    proa_buf_init(&out, PROA_TEMPLATE_BYTES_MAX);
    const proa_jinput inputs[] = {{"messages", messages, choose_maker(parts, false)},
                                  {"add_generation_prompt", NULL, make_prompt_flag}};
    bool shown = proa_j_run(proa_template_code(t), inputs, (int)PROA_COUNT(inputs), &out, &err) == PROA_OK &&
                 has_text(proa_buf_view(&out), PROBE);
    proa_buf_release(&out);
    return shown;
}

/* Templates of multimodal models may look for parts of the type "text" and leave a text out that is none. */
static bool takes_parts_only(const proa_template *t, proa_str source)
{
    proa_json *messages = NULL;
    proa_err err = {.status = PROA_OK};
    proa_str probe = proa_str_c("[{\"role\": \"user\", \"content\": \"" PROBE "\"}]");
    if (!has_text(source, "type")) return false;
    if (proa_json_parse(&messages, probe, "messages", &err) != PROA_OK) return false;
    bool parts = !shows_text(t, messages, false) && shows_text(t, messages, true);
    proa_json_free(messages);
    return parts;
}

/* ---- rendering ---- */

static const named_template *find_named(const proa_chat *chat, proa_str name)
{
    for (int i = 0; i < chat->count; i++)
        if (proa_str_is(name, chat->list[i].name)) return &chat->list[i];
    return NULL;
}

static proa_status choose_template(const named_template **out, const proa_chat *chat,
                                   const proa_json *request, bool tools, proa_err *err)
{
    proa_str wanted = proa_json_str(proa_json_get(request, "chat_template"));
    *out = NULL;
    if (wanted.len > 0) {
        *out = find_named(chat, wanted);
        if (*out) return PROA_OK;
        return PROA_FAIL(err, INVALID, "the model has no chat template named '%.*s'",
                         (int)(wanted.len < 100 ? wanted.len : 100), wanted.ptr);
    }
    if (tools) *out = find_named(chat, proa_str_c("tool_use"));
    if (!*out) *out = find_named(chat, proa_str_c("default"));
    if (!*out && chat->count == 1) *out = &chat->list[0];
    return *out ? PROA_OK
                : PROA_FAIL(err, INVALID, "the model has several chat templates and none named 'default'");
}

static proa_status check_messages(const proa_json *messages, proa_err *err)
{
    if (proa_json_kind(messages) != PROA_JSON_ARRAY || proa_json_len(messages) == 0)
        return PROA_FAIL(err, INVALID, "'messages' must be a list of at least one message");
    for (int64_t i = 0; i < proa_json_len(messages); i++)
        if (proa_json_kind(proa_json_get(proa_json_at(messages, i), "role")) != PROA_JSON_STRING)
            return PROA_FAIL(err, INVALID, "messages[%lld] has no role", (long long)i);
    return PROA_OK;
}

static proa_status check_continued(const proa_json *request, proa_err *err)
{
    const proa_json *messages = proa_json_get(request, "messages"), *prompt;
    const proa_json *content = proa_json_get(proa_json_at(messages, proa_json_len(messages) - 1), "content");
    prompt = proa_json_get(request, "add_generation_prompt");
    if (proa_json_kind(prompt) == PROA_JSON_BOOL && proa_json_bool(prompt))
        return PROA_FAIL(err, INVALID, "continue_final_message and add_generation_prompt exclude each other");
    if (proa_json_kind(content) == PROA_JSON_STRING || all_text(content)) return PROA_OK;
    return PROA_FAIL(err, INVALID, "continue_final_message: the last message has no text to continue");
}

/* Cuts the prompt, which begins at `from`, after the text of the last message; where the template removed the space
 * at the end of that text, the space before it too. */
static proa_status cut_behind_message(proa_buf *out, size_t from, proa_err *err)
{
    size_t len = strlen(CONTINUE_TAG), bare = len - 1;
    for (size_t at = out->len - from >= bare ? out->len - bare : 0; at >= from && at > 0; at--) {
        if (memcmp(out->ptr + at, CONTINUE_TAG, bare) != 0) continue;
        bool kept = out->len - at >= len && out->ptr[at + bare] == ' ';
        while (!kept && at > from && strchr(" \t\r\n", out->ptr[at - 1])) at--;
        out->len = at;
        return PROA_OK;
    }
    out->len = from;
    return PROA_FAIL(err, INVALID, "continue_final_message: the template does not keep the last message's text");
}

proa_status proa_chat_render(const proa_chat *chat, const proa_json *request, proa_buf *out, proa_err *err)
{
    const proa_json *messages = proa_json_get(request, "messages"), *tools = proa_json_get(request, "tools");
    const named_template *t;
    if (proa_json_len(tools) == 0) tools = NULL; /* transformers passes None if there are none */
    PROA_TRY(check_messages(messages, err));
    PROA_TRY(choose_template(&t, chat, request, tools != NULL, err));
    bool goes_on = proa_json_bool(proa_json_get(request, "continue_final_message"));
    if (goes_on) PROA_TRY(check_continued(request, err));
    size_t from = out->len;
    const proa_jinput inputs[] = {
        {"messages", messages, choose_maker(t->parts, goes_on)},
        {"tools", tools, NULL},
        {"documents", proa_json_get(request, "documents"), NULL},
        {"add_generation_prompt", proa_json_get(request, "add_generation_prompt"),
         goes_on ? make_no_prompt : make_prompt_flag},
        {NULL, proa_json_get(request, "chat_template_kwargs"), NULL},
        {NULL, request, NULL}, /* reasoning_effort and other members */
        {NULL, chat->specials, NULL},
    };
    PROA_TRY(proa_j_run(proa_template_code(t->template), inputs, (int)PROA_COUNT(inputs), out, err));
    return goes_on ? cut_behind_message(out, from, err) : PROA_OK;
}
