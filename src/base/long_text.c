/* SPDX-License-Identifier: Apache-2.0
 * long_text.c - a small store of error texts that are too long for a proa_err. */
#include "base/long_text.h"

#include "base/compiler.h"
#include "base/limits.h"
#include <pthread.h>
#include <string.h>

/* A ring of texts indexed by key modulo its size. Keys increase by one; [oldest, next) are stored. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *rows[PROA_ERR_KEPT_MAX];
static uint64_t oldest = 1, next = 1;
static size_t kept_bytes;

static void drop_oldest(void)
{
    char **row = &rows[oldest++ % PROA_ERR_KEPT_MAX];
    kept_bytes -= strlen(*row) + 1;
    free(*row);
    *row = NULL;
}

uint64_t proa_long_text_keep(char *text)
{
    size_t bytes = strlen(text) + 1;
    PROA_ASSERT(bytes <= (size_t)PROA_ERR_TEXT_MAX + 1);
    pthread_mutex_lock(&lock);
    while (oldest < next &&
           (next - oldest == PROA_ERR_KEPT_MAX || kept_bytes + bytes > (size_t)PROA_ERR_KEPT_BYTES))
        drop_oldest();
    uint64_t key = next++;
    rows[key % PROA_ERR_KEPT_MAX] = text;
    kept_bytes += bytes;
    pthread_mutex_unlock(&lock);
    return key;
}

char *proa_long_text_copy(uint64_t key)
{
    if (key == 0) return NULL; /* most errors are short: they do not take the lock */
    pthread_mutex_lock(&lock);
    char *copy = key >= oldest && key < next ? strdup(rows[key % PROA_ERR_KEPT_MAX]) : NULL;
    pthread_mutex_unlock(&lock);
    return copy;
}
