/* SPDX-License-Identifier: Apache-2.0
 * generate.c - Proa as a library in a page: open a model, submit two prompts at once, print tokens as they come.
 *
 *     cc generate.c -lproa -o generate && ./generate models/classics-10m "It was" "The sea"
 */
#include <proa/proa.h>

#include <stdio.h>
#include <string.h>

enum { PROMPTS_MAX = 8, TEXT_MAX = 4096 };

/* What one sequence has said so far. The engine hands it back with every event of that sequence. */
typedef struct story {
    char text[TEXT_MAX];
    size_t len;
    long long tokens;
    proa_finish finish;
} story;

/* Runs on the thread that steps the engine, here main's. The event and its text are valid during the call only. */
static void on_event(const proa_event *event)
{
    story *s = event->arg;
    size_t room = sizeof s->text - 1 - s->len;
    size_t n = event->text_len < room ? event->text_len : room;
    if (event->text && n) memcpy(s->text + s->len, event->text, n); /* of DONE: what was still held back */
    s->len += n;
    if (event->kind != PROA_EVENT_DONE) return;
    s->finish = event->finish;
    s->tokens = event->new_tokens;
    if (event->error) fprintf(stderr, "%s\n", event->error->text);
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc - 2 > PROMPTS_MAX) {
        fprintf(stderr, "usage: %s MODEL PROMPT...\n", argv[0]);
        return 2;
    }
    proa_err err = {0};
    proa_engine *engine;
    if (proa_engine_open(&engine, argv[1], NULL, &err) != PROA_OK) { /* NULL: the default options */
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    static story stories[PROMPTS_MAX]; /* zeroed, and alive until the engine is closed */
    int count = argc - 2, failed = 0;
    for (int i = 0; i < count && !failed; i++) {
        proa_request request = {.text = argv[2 + i],
                                .on_event = on_event,
                                .arg = &stories[i],
                                .options = {.max_tokens = 32}}; /* all else zero: greedy, until an end token */
        failed = proa_engine_submit(engine, &request, NULL, &err) != PROA_OK;
    }
    if (failed) fprintf(stderr, "%s\n", err.text);
    else proa_engine_run(engine); /* all sequences together, until the last one is done */
    for (int i = 0; i < count && !failed; i++) {
        printf("%s%s\n(%lld tokens)\n", argv[2 + i], stories[i].text, stories[i].tokens);
        failed = stories[i].finish == PROA_FINISH_ERROR;
    }
    proa_engine_close(engine);
    return failed;
}
