/* SPDX-License-Identifier: Apache-2.0
 * wrap.c - the width of a terminal, and text broken into lines of that width. */
#include "cli/wrap.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

int proa_terminal_columns(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col < PROA_COLUMNS_MIN) return PROA_COLUMNS_DEFAULT;
    return size.ws_col;
}

void proa_print_wrapped(const char *text, int at, int indent, int columns)
{
    bool begun = false; /* the line has a word */
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (begun && at + 1 + word > columns) {
            printf("\n%*s", indent, "");
            at = indent, begun = false;
        }
        printf("%s%.*s", begun ? " " : "", word, text);
        at += word + begun;
        begun = true;
        text += word;
        text += strspn(text, " ");
    }
    putchar('\n');
}
