/* SPDX-License-Identifier: Apache-2.0
 * fuzz_folder.c - a whole model folder: configuration, weights, tokenizer, chat templates. It is refused with a text,
 * or it opens, and then a prompt is answered and a chat is rendered.
 *
 * An input holds the files (files.h). */
#include "base/alloc.h"
#include "files.h"
#include "proa/proa.h"
#include "text/template.h"

static const char *const names[] = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "part1.safetensors",
    "part2.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
};

static const fuzz_files files = {names, PROA_COUNT(names)};

typedef struct outcome {
    bool done;
} outcome;

static void on_event(const proa_event *event)
{
    outcome *o = event->arg;
    if (event->kind == PROA_EVENT_DONE) {
        PROA_ASSERT(!o->done && (event->finish != PROA_FINISH_ERROR || event->error->text[0]));
        o->done = true;
    }
}

static void run(proa_engine *engine, proa_request *request)
{
    outcome o = {.done = false};
    proa_err err = {.status = PROA_OK};
    request->on_event = on_event;
    request->arg = &o;
    request->options.max_tokens = 3;
    if (proa_engine_submit(engine, request, NULL, &err) != PROA_OK) {
        PROA_ASSERT(err.text[0]);
        return;
    }
    proa_engine_run(engine);
    PROA_ASSERT(o.done);
}

static void try_engine(const char *folder)
{
    const int32_t ids[] = {1, 3, 4};
    proa_engine *engine = NULL;
    proa_info info;
    proa_err err = {.status = PROA_OK};
    proa_engine_options options = {.threads = 1, .sequences_max = 2, .step_tokens = 16, .kv_tokens = 256};
    if (proa_engine_open(&engine, folder, &options, &err) != PROA_OK) {
        PROA_ASSERT(!engine && err.text[0]);
        return;
    }
    proa_engine_info(engine, &info);
    PROA_ASSERT(info.vocab > 0 && info.hidden > 0 && info.context > 0 && info.outputs > 0);
    bool encoder = info.kind == PROA_KIND_ENCODER;
    proa_request by_ids = {.ids = ids, .ids_count = 3, .task = encoder ? PROA_TASK_ROWS : PROA_TASK_GENERATE};
    proa_request by_text = {.text = "It was h\xc3\xa9", .task = by_ids.task};
    run(engine, &by_ids);
    if (info.has_tokenizer) run(engine, &by_text);
    proa_engine_close(engine);
}

static void try_chat(const char *folder)
{
    static const char request[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
                                  "\"content\":\"h\\u00e9\\n\"}],\"add_generation_prompt\":true}";
    proa_chat *chat = NULL;
    proa_json *json;
    proa_buf out;
    proa_err err = {.status = PROA_OK};
    proa_files of_folder = proa_files_of(folder);
    if (proa_chat_open_files(&chat, &of_folder, NULL, &err) != PROA_OK) {
        PROA_ASSERT(!chat && err.text[0]);
        return;
    }
    proa_buf_init(&out, PROA_MIB);
    PROA_ASSERT(proa_json_parse(&json, proa_str_c(request), "request", NULL) == PROA_OK);
    if (proa_chat_render(chat, json, &out, &err) != PROA_OK) PROA_ASSERT(err.text[0] && out.len == 0);
    else PROA_ASSERT(proa_utf8_valid(proa_buf_view(&out)));
    proa_json_free(json);
    proa_buf_release(&out);
    proa_chat_free(chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *folder = files_write(&files, data, size);
    try_engine(folder);
    try_chat(folder);
    return 0;
}
