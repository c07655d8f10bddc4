/* SPDX-License-Identifier: Apache-2.0
 * line.c - reads messages: by libedit on a terminal, with history and the arrow keys; else line by line.
 *          libedit is opened at run time, so that no other command needs it. Without it a terminal has the kernel's
 *          line editing. */
#include "base/alloc.h"
#include "base/limits.h"
#include "cli/chat/chat.h"
#include <dlfcn.h>
#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#define LIBEDIT_LIST(X)                                                                                      \
    X(el_init)                                                                                               \
    X(el_end)                                                                                                \
    X(el_set)                                                                                                \
    X(el_gets)                                                                                               \
    X(history_init)                                                                                          \
    X(history_end)                                                                                           \
    X(history)

enum { HISTORY_LINES = 1000 };

#define LIBEDIT_FIELD(name) __typeof__(name) *name;
struct proa_chat_input {
    LIBEDIT_LIST(LIBEDIT_FIELD)
    EditLine *editor; /* NULL: plain lines */
    History *past;
    const char *file;
    char *plain; /* of getline */
    size_t plain_cap;
    bool terminal;
};

#define LIBEDIT_NAME(name) #name,
static const char *const libedit_names[] = {LIBEDIT_LIST(LIBEDIT_NAME)};
_Static_assert(offsetof(proa_chat_input, editor) == sizeof libedit_names, "a pointer for each name");

static bool continuing; /* which prompt libedit is to show; it passes no argument of ours */

static char *show_prompt(EditLine *editor)
{
    static char first[] = "> ", further[] = ". ";
    PROA_UNUSED(editor);
    return continuing ? further : first;
}

/* libedit's own reader begins again after a signal, so that Ctrl-C would have no effect. */
static int read_key(EditLine *editor, wchar_t *key)
{
    mbstate_t state = {0};
    char c;
    PROA_UNUSED(editor);
    for (;;) {
        ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n < 0 && errno == EINTR && !proa_chat_interrupted()) continue;
        if (n <= 0) return (int)n;
        size_t used = mbrtowc(key, &c, 1, &state);
        if (used == (size_t)-1) memset(&state, 0, sizeof state); /* no character of this locale: dropped */
        else if (used != (size_t)-2) return 1;
    }
}

static bool load_libedit(proa_chat_input *in)
{
    void *handle = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!handle) handle = dlopen("libedit.so.0", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; handle && i < PROA_COUNT(libedit_names); i++) {
        void *symbol = dlsym(handle, libedit_names[i]);
        if (!symbol) return false;
        memcpy((char *)in + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return handle != NULL;
}

static void open_editor(proa_chat_input *in)
{
    HistEvent event;
    const char *term = getenv("TERM");
    if (!term || strcmp(term, "dumb") == 0 || !load_libedit(in)) return;
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    in->editor = in->el_init("proa", stdin, stderr, stderr);
    if (!in->editor) return;
    in->past = in->history_init();
    in->el_set(in->editor, EL_PROMPT, show_prompt);
    in->el_set(in->editor, EL_EDITOR, "emacs");
    in->el_set(in->editor, EL_GETCFN, read_key);
    if (!in->past) return;
    in->history(in->past, &event, H_SETSIZE, HISTORY_LINES);
    in->history(in->past, &event, H_SETUNIQUE, 1);
    in->el_set(in->editor, EL_HIST, in->history, in->past);
    if (in->file) in->history(in->past, &event, H_LOAD, in->file);
}

proa_chat_input *proa_chat_input_open(const char *history)
{
    proa_chat_input *in = proa_calloc(1, sizeof *in);
    in->file = history;
    in->terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    if (in->terminal) open_editor(in);
    return in;
}

void proa_chat_input_close(proa_chat_input *in)
{
    HistEvent event;
    mode_t mask = umask(077); /* what was typed is nobody else's business */
    if (in->past && in->file) in->history(in->past, &event, H_SAVE, in->file);
    umask(mask);
    if (in->past) in->history_end(in->past);
    if (in->editor) in->el_end(in->editor);
    free(in->plain);
    free(in);
}

/* A line without its end; NULL at the end of the input and after Ctrl-C. */
static const char *read_plain(proa_chat_input *in, size_t *len)
{
    if (in->terminal) fputs(continuing ? ". " : "> ", stderr);
    ssize_t n = getline(&in->plain, &in->plain_cap, stdin);
    if (n < 0) clearerr(stdin);
    *len = n > 0 ? (size_t)n : 0;
    return n < 0 ? NULL : in->plain;
}

static const char *read_line(proa_chat_input *in, size_t *len)
{
    int count = 0;
    const char *line = in->editor ? in->el_gets(in->editor, &count) : read_plain(in, len);
    if (in->editor) *len = count > 0 ? (size_t)count : 0;
    if (!line || *len == 0) return NULL;
    if (line[*len - 1] == '\n') --*len;
    if (*len && line[*len - 1] == '\r') --*len;
    return line;
}

static void remember_line(proa_chat_input *in, const char *line, size_t len)
{
    HistEvent event;
    if (!in->past || len == 0) return;
    char *copy = proa_str_copy((proa_str){line, len});
    in->history(in->past, &event, H_ENTER, copy);
    free(copy);
}

proa_chat_read proa_chat_input_read(proa_chat_input *in, proa_buf *out)
{
    bool block = false, more = true;
    proa_buf_clear(out);
    for (int lines = 0; more; lines++) {
        size_t len = 0;
        continuing = lines > 0;
        const char *line = read_line(in, &len);
        if (!line) {
            if (in->terminal) fputs("\n", stderr);
            if (proa_chat_interrupted()) return PROA_CHAT_ABANDONED;
            return lines ? PROA_CHAT_MESSAGE : PROA_CHAT_END;
        }
        remember_line(in, line, len);
        bool quotes = len == 3 && memcmp(line, "\"\"\"", 3) == 0;
        if (quotes && (block || lines == 0)) {
            more = block = !block;
            continue;
        }
        more = block || (len && line[len - 1] == '\\');
        if (out->len) proa_buf_char(out, '\n');
        proa_buf_append(out, line, more && !block ? len - 1 : len);
    }
    return PROA_CHAT_MESSAGE;
}
