/* SPDX-License-Identifier: Apache-2.0
 * interrupt.c - Ctrl-C in a conversation: it ends an answer or drops the line that is typed, not the program. */
#include "cli/chat/chat.h"

#include "base/compiler.h"
#include <signal.h>

static volatile sig_atomic_t interrupted;

static void note_interrupt(int number)
{
    PROA_UNUSED(number);
    interrupted = 1;
}

bool proa_chat_interrupted(void)
{
    return interrupted != 0;
}

void proa_chat_watch_interrupt(void)
{
    struct sigaction action = {.sa_handler = note_interrupt}; /* without SA_RESTART: reads end with EINTR */
    sigemptyset(&action.sa_mask);
    interrupted = 0;
    sigaction(SIGINT, &action, NULL);
}
