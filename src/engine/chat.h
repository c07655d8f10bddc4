/* SPDX-License-Identifier: Apache-2.0
 * chat.h - an engine's chat template, opened when a caller of the library first needs it. */
#ifndef PROA_ENGINE_CHAT_H
#define PROA_ENGINE_CHAT_H

#include "text/template.h"
#include <pthread.h>

typedef struct proa_engine_chat_template {
    pthread_mutex_t lock; /* guards the opening; a template that is open never changes */
    proa_chat *chat;      /* NULL: not opened yet */
} proa_engine_chat_template;

void proa_engine_chat_init(proa_engine_chat_template *t);
void proa_engine_chat_release(proa_engine_chat_template *t);

#endif
