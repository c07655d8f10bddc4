/* SPDX-License-Identifier: Apache-2.0
 * chat.c - messages to a prompt by the model's chat template, for callers of the library. */
#include "engine/chat.h"

#include "engine/access.h"
#include "engine/engine.h"
#include <string.h>

void proa_engine_chat_init(proa_engine_chat_template *t)
{
    pthread_mutex_init(&t->lock, NULL);
    t->chat = NULL;
}

void proa_engine_chat_release(proa_engine_chat_template *t)
{
    proa_chat_free(t->chat);
    pthread_mutex_destroy(&t->lock);
}

static proa_status open_chat(proa_engine *e, proa_err *err)
{
    proa_engine_chat_template *t = &e->chat;
    proa_status status = PROA_OK;
    pthread_mutex_lock(&t->lock);
    if (!t->chat) status = proa_chat_open_files(&t->chat, proa_engine_files(e), NULL, err);
    pthread_mutex_unlock(&t->lock);
    return status;
}

proa_status proa_engine_chat(proa_engine *engine, const char *request, char *text, size_t cap,
                             size_t *text_len, proa_err *err)
{
    proa_json *object;
    proa_buf prompt;
    PROA_TRY(open_chat(engine, err));
    PROA_TRY(proa_json_parse(&object, proa_str_c(request), "chat", err));
    proa_buf_init(&prompt, PROA_TEXT_BYTES_MAX);
    proa_status status = proa_chat_render(engine->chat.chat, object, &prompt, err);
    *text_len = prompt.len;
    if (prompt.len) memcpy(text, prompt.ptr, prompt.len < cap ? prompt.len : cap);
    proa_buf_release(&prompt);
    proa_json_free(object);
    return status;
}
