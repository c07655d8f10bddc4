/* SPDX-License-Identifier: Apache-2.0
 * fuzz_folder.c - a whole model folder: configuration, weights, tokenizer, chat templates. It is refused with a text,
 * or it opens, and then a prompt is answered and a chat is rendered.
 *
 * An input holds the files one after the other, each behind a line "@@ NAME". Behind "@@ NAME header" stands the
 * header of a safetensors file alone: its length is put before it, and the tensors are filled with small numbers, so
 * that inputs stay short. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "fuzz.h"
#include "proa/proa.h"
#include "text/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TENSORS_BYTES 1200000 /* of a file whose header stands alone: what the largest seed needs */
#define MARK          "@@ "

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

static char folder[64];

static void make_folder(void)
{
    if (folder[0]) return;
    bool memory = access("/dev/shm", W_OK) == 0; /* in memory, where there is such a folder */
    snprintf(folder, sizeof folder, "%s/proa-fuzz-XXXXXX", memory ? "/dev/shm" : "/tmp");
    PROA_ASSERT(mkdtemp(folder));
}

static void remove_files(void)
{
    char path[PROA_PATH_MAX];
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_path_join(path, folder, names[i], NULL) == PROA_OK) unlink(path);
}

static void remove_folder(void)
{
    remove_files();
    rmdir(folder);
}

/* Where the last tensor ends by the data_offsets of a header, at most TENSORS_BYTES. */
static size_t tensors_end(const char *header, size_t len)
{
    static const char key[] = "\"data_offsets\":[";
    unsigned long long last = 0;
    const char *end = header + len;
    for (const char *at = header; at < end && (at = memmem(at, (size_t)(end - at), key, sizeof key - 1));) {
        char numbers[48] = "";
        at += sizeof key - 1;
        size_t left = (size_t)(end - at), most = sizeof numbers - 1;
        memcpy(numbers, at, left < most ? left : most);
        const char *comma = strchr(numbers, ',');
        unsigned long long to = comma ? strtoull(comma + 1, NULL, 10) : 0;
        if (to > last && to <= TENSORS_BYTES) last = to;
    }
    return (size_t)last;
}

static void write_tensors(FILE *f, size_t len)
{
    static unsigned char bytes[TENSORS_BYTES]; /* 0x3c11: 1.004 as f16, 0.009 as bf16; 0x3c113c11: 0.009 as f32 */
    for (size_t i = bytes[0] ? sizeof bytes : 0; i < sizeof bytes; i += 2) memcpy(bytes + i, "\x11\x3c", 2);
    if (len) fwrite(bytes, 1, len, f);
}

static void write_file(const char *name, bool header_alone, const char *text, size_t len)
{
    char path[PROA_PATH_MAX];
    PROA_ASSERT(proa_path_join(path, folder, name, NULL) == PROA_OK);
    FILE *f = fopen(path, "w");
    PROA_ASSERT(f);
    uint64_t header = len;
    if (header_alone) fwrite(&header, sizeof header, 1, f); /* little endian, as all CPUs that we build for */
    if (len) fwrite(text, 1, len, f);
    if (header_alone) write_tensors(f, tensors_end(text, len));
    PROA_ASSERT(fclose(f) == 0);
}

/* The name behind a mark, out of the list; NULL for any other. */
static const char *known_name(const char *line, size_t len, bool *header_alone)
{
    static const char more[] = " header";
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        size_t n = strlen(names[i]);
        *header_alone = len == n + sizeof more - 1 && memcmp(line + n, more, sizeof more - 1) == 0;
        if ((len == n || *header_alone) && memcmp(line, names[i], n) == 0) return names[i];
    }
    return NULL;
}

static const char *find_mark(const char *at, const char *end)
{
    const char *mark = at < end ? memmem(at, (size_t)(end - at), "\n" MARK, strlen("\n" MARK)) : NULL;
    return mark ? mark : end;
}

static void write_files(const char *at, const char *end)
{
    bool header_alone;
    size_t mark = strlen(MARK);
    while ((size_t)(end - at) > mark && memcmp(at, MARK, mark) == 0) {
        at += mark;
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) return;
        const char *name = known_name(at, (size_t)(line_end - at), &header_alone);
        const char *file_end = find_mark(line_end, end);
        size_t len = file_end > line_end ? (size_t)(file_end - line_end - 1) : 0;
        if (name) write_file(name, header_alone, line_end + 1, len);
        at = file_end < end ? file_end + 1 : end;
    }
}

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

static void try_engine(void)
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

static void try_chat(void)
{
    static const char request[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
                                  "\"content\":\"h\\u00e9\\n\"}],\"add_generation_prompt\":true}";
    proa_chat *chat = NULL;
    proa_json *json;
    proa_buf out;
    proa_err err = {.status = PROA_OK};
    proa_files files = proa_files_of(folder);
    if (proa_chat_open_files(&chat, &files, NULL, &err) != PROA_OK) {
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
    if (!folder[0]) atexit(remove_folder);
    make_folder();
    remove_files();
    write_files((const char *)data, (const char *)data + size);
    try_engine();
    try_chat();
    return 0;
}
