/* SPDX-License-Identifier: Apache-2.0
 * cmd_chat.c - `proa chat`: options, the loop over messages, and the commands that begin with a slash. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/chat/chat.h"
#include "cli/commands.h"
#include "cli/hub.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct chat_options {
    proa_serve_options serve; /* first: the engine's options are those of `proa serve` */
    const char *model, *url, *system, *api_key, *ca, *history;
    bool no_history, quiet;
    proa_decoding decoding;
} chat_options;

#define AT(field) offsetof(chat_options, field)
static const proa_arg chat_rows[] = {
    {"[MODEL]", PROA_ARG_OPERAND, AT(model), 0, 0, NULL, NULL,
     "a model's folder, .gguf file or ORG/NAME on a hub; with --url the server's name of it (or its first)"},
    {"url", PROA_ARG_TEXT, AT(url), 0, 0, "URL", NULL,
     "talk to a server with OpenAI's API, http:// or https://HOST:PORT or unix:PATH; no model is loaded"},
    {"system", PROA_ARG_TEXT, AT(system), 0, 0, "TEXT", NULL, "system prompt; @FILE: from a file"},
    {"api-key", PROA_ARG_TEXT, AT(api_key), 0, 0, "KEY", NULL,
     "with --url: sent as a bearer token (or OPENAI_API_KEY)"},
    {"ca", PROA_ARG_TEXT, AT(ca), 0, 0, "FILE", NULL, "with --url: PEM file of trusted CAs"},
    {"history", PROA_ARG_TEXT, AT(history), 0, 0, "FILE", NULL,
     "file of the lines that the arrow keys bring back (default ~/.local/state/proa/chat_history)"},
    {"no-history", PROA_ARG_FLAG, AT(no_history), 0, 0, NULL, NULL, "read and write no such file"},
    {"quiet", PROA_ARG_FLAG, AT(quiet), 0, 0, NULL, NULL, "print no line about the speed"},
};
#undef AT
static const proa_arg_table chat_args = PROA_ARG_TABLE("options", chat_rows);

/* ---- commands ---- */

static void list_options(const proa_decoding *d)
{
    bool any = false;
    for (int i = 0; i < PROA_OPTION_COUNT; i++)
        if (d->texts[i]) any = true, fprintf(stderr, "%s = %s\n", proa_option_rows[i].name, d->texts[i]);
    if (!any)
        fprintf(stderr,
                "all options have their defaults; /set NAME VALUE changes one ('proa help decoding')\n");
}

/* The name up to a space in `text`, and the value after it. */
static const proa_option_row *find_option(const char *text, size_t *len)
{
    *len = strcspn(text, " =");
    const proa_option_row *row = proa_decoding_find(text, *len);
    if (row) return row;
    const char *nearest = NULL;
    proa_err err = {0};
    (void)proa_option_find((proa_str){text, *len}, &nearest);
    if (proa_option_unknown((proa_str){text, *len}, nearest, &err) != PROA_OK)
        fprintf(stderr, "%s\n", err.text);
    return NULL;
}

static void command_set(proa_talk *c, const char *rest)
{
    size_t len;
    proa_decoding_arg arg;
    if (!*rest) {
        list_options(c->decoding);
        return;
    }
    const proa_option_row *row = find_option(rest, &len);
    if (!row) return;
    const char *value = rest + len + strspn(rest + len, " =");
    proa_decoding_arg_of(&arg, row, rest, len);
    if (*value || arg.arg.kind == PROA_ARG_FLAG)
        proa_decoding_set(c->decoding, row, &arg.arg, *value ? value : NULL);
    else
        fprintf(stderr, "%s = %s  (%s)\n", row->name,
                c->decoding->texts[row->option] ? c->decoding->texts[row->option] : "default", row->help);
}

static void command_unset(proa_talk *c, const char *rest)
{
    size_t len;
    const proa_option_row *row = *rest ? find_option(rest, &len) : NULL;
    if (row) c->decoding->texts[row->option] = NULL;
    else if (!*rest) memset(c->decoding->texts, 0, sizeof c->decoding->texts);
}

static void command_system(proa_talk *c, const char *rest)
{
    if (*rest) {
        free(c->system);
        c->system = proa_strdup(rest);
    } else {
        fprintf(stderr, "%s\n",
                c->system ? c->system : "no system prompt; /system TEXT sets one, /system - removes it");
    }
    if (strcmp(rest, "-") == 0) free(c->system), c->system = NULL;
}

static void command_clear(proa_talk *c, const char *rest)
{
    PROA_UNUSED(rest);
    proa_chat_drop(c, c->count);
}

static void command_undo(proa_talk *c, const char *rest)
{
    PROA_UNUSED(rest);
    proa_chat_drop(c, 2);
}

static void say_message(proa_talk *c, const char *text)
{
    proa_err err = {0};
    if (proa_chat_say(c, text, &err) != PROA_OK && err.status != PROA_CANCELLED)
        fprintf(stderr, "%s\n", err.text);
}

static void command_retry(proa_talk *c, const char *rest)
{
    PROA_UNUSED(rest);
    if (c->count < 2) return;
    char *text = proa_strdup(c->messages[c->count - 2].content);
    proa_chat_drop(c, 2);
    say_message(c, text);
    free(text);
}

static void command_save(proa_talk *c, const char *rest)
{
    proa_output out;
    proa_buf text;
    proa_err err = {0};
    if (!*rest) {
        fprintf(stderr, "/save needs the name of a file\n");
        return;
    }
    proa_buf_init(&text, (size_t)PROA_HTTP_BODY_MAX);
    proa_chat_json(c, &text);
    proa_status status = proa_output_open(&out, rest, &err);
    if (status == PROA_OK) {
        proa_output_bytes(&out, text.ptr, text.len);
        proa_output_str(&out, "\n");
        status = proa_output_close(&out, &err);
    }
    if (status != PROA_OK) fprintf(stderr, "%s\n", err.text);
    proa_buf_release(&text);
}

static void command_help(proa_talk *c, const char *rest);

static const struct {
    const char *name, *help;
    void (*run)(proa_talk *c, const char *rest);
} chat_commands[] = {
    {"set", "/set [NAME [VALUE]]  show or change options of the answers: /set temperature 0.7", command_set},
    {"unset", "/unset [NAME]        back to the default, without a name all of them", command_unset},
    {"system", "/system [TEXT]       show or change the system prompt; '-' removes it", command_system},
    {"clear", "/clear               begin a new conversation", command_clear},
    {"undo", "/undo                forget the last message and its answer", command_undo},
    {"retry", "/retry               another answer to the last message", command_retry},
    {"save", "/save FILE           write the conversation as JSON", command_save},
    {"help", "/help                this text", command_help},
};

static void command_help(proa_talk *c, const char *rest)
{
    PROA_UNUSED(c), PROA_UNUSED(rest);
    for (size_t i = 0; i < PROA_COUNT(chat_commands); i++) fprintf(stderr, "%s\n", chat_commands[i].help);
    fprintf(stderr, "/exit                end, as Ctrl-D does\n"
                    "A line that ends in \\ goes on in the next; \"\"\" alone on a line begins and ends a "
                    "message of several.\n"
                    "Ctrl-C ends an answer, or drops what is typed.\n");
}

/* False to end the conversation. */
static bool run_command(proa_talk *c, const char *line)
{
    size_t len = strcspn(line, " ");
    const char *rest = line + len + strspn(line + len, " ");
    if ((len == 4 && (memcmp(line, "exit", 4) == 0 || memcmp(line, "quit", 4) == 0)) ||
        (len == 3 && memcmp(line, "bye", 3) == 0))
        return false;
    for (size_t i = 0; i < PROA_COUNT(chat_commands); i++)
        if (strlen(chat_commands[i].name) == len && memcmp(chat_commands[i].name, line, len) == 0) {
            chat_commands[i].run(c, rest);
            return true;
        }
    fprintf(stderr, "unknown command '/%.*s' (see /help)\n", (int)len, line);
    return true;
}

/* ---- the loop ---- */

/* Without a terminal a message that fails ends the program: a script must see it. */
static proa_status run_conversation(proa_talk *c, proa_chat_input *in, bool script, proa_err *err)
{
    proa_buf line;
    proa_status status = PROA_OK;
    bool more = true;
    proa_buf_init(&line, (size_t)PROA_TEXT_BYTES_MAX);
    while (more && status == PROA_OK) {
        proa_chat_watch_interrupt();
        proa_chat_read got = proa_chat_input_read(in, &line);
        if (got == PROA_CHAT_END || (script && got == PROA_CHAT_ABANDONED)) break;
        if (got == PROA_CHAT_ABANDONED || line.len == 0) continue;
        if (line.full)
            fprintf(stderr, "the message is longer than %lld bytes\n", (long long)PROA_TEXT_BYTES_MAX);
        else if (line.ptr[0] == '/') more = run_command(c, line.ptr + 1);
        else if (script) status = proa_chat_say(c, line.ptr, err);
        else say_message(c, line.ptr);
    }
    if (script && status == PROA_OK && proa_chat_interrupted())
        status = PROA_FAIL(err, CANCELLED, "interrupted");
    proa_buf_release(&line);
    return status;
}

/* ~/.local/state/proa/chat_history, whose folders are made; "" without a home. */
static void default_history(char out[PROA_PATH_MAX])
{
    static const char *const folders[] = {".local", "state", "proa"};
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    size_t first = state && state[0] ? 2 : 0;
    snprintf(out, PROA_PATH_MAX, "%s", first ? state : home ? home : "");
    for (size_t i = first; i < PROA_COUNT(folders) && out[0]; i++) {
        char next[PROA_PATH_MAX];
        if (proa_path_join(next, out, folders[i], NULL) != PROA_OK ||
            (mkdir(next, 0700) != 0 && errno != EEXIST)) {
            out[0] = '\0';
            return;
        }
        memcpy(out, next, sizeof next);
    }
    size_t n = strlen(out);
    if (n) snprintf(out + n, PROA_PATH_MAX - n, "/chat_history");
}

static proa_status open_conversation(proa_talk *c, chat_options *o, proa_chat_server *local, proa_err *err)
{
    bool grpc = false;
    const char *url = o->url;
    if (!o->url) {
        PROA_TRY(proa_cli_find_model(&o->model, err));
        o->serve.paths.items[0] = o->model, o->serve.paths.count = 1;
        if (c->terminal) fprintf(stderr, "loading %s ...\n", o->model);
        PROA_TRY(proa_chat_server_open(local, &o->serve, err));
        url = local->address;
    }
    PROA_TRY(proa_target_parse(&c->target, &grpc, url, err));
    if (grpc)
        return PROA_FAIL(err, INVALID, "--url '%s': OpenAI's API is spoken over http:// or https://", url);
    c->target.api_key = o->api_key ? o->api_key : o->url ? getenv("OPENAI_API_KEY") : NULL;
    c->target.ca = o->ca;
    if (!o->url || !o->model) return proa_chat_find_model(c, err);
    c->model = proa_strdup(o->model);
    return PROA_OK;
}

static proa_status read_system(proa_talk *c, const char *text, proa_err *err)
{
    proa_buf file;
    if (!text || text[0] != '@') return c->system = text ? proa_strdup(text) : NULL, PROA_OK;
    proa_status status = proa_file_read(&file, text + 1, PROA_TEXT_BYTES_MAX, err);
    if (status == PROA_OK) c->system = proa_str_copy(proa_buf_view(&file));
    proa_buf_release(&file);
    return status;
}

static proa_status run_chat(chat_options *o, proa_err *err)
{
    char history[PROA_PATH_MAX] = "";
    proa_talk c;
    proa_chat_server local = {.server = NULL};
    bool script = !isatty(STDIN_FILENO);
    proa_chat_init(&c);
    c.decoding = &o->decoding, c.quiet = o->quiet || script,
    c.terminal = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    proa_status status = read_system(&c, o->system, err);
    if (status == PROA_OK) status = open_conversation(&c, o, &local, err);
    if (status == PROA_OK) status = proa_output_open(&c.out, NULL, err);
    if (status == PROA_OK) {
        if (o->history) snprintf(history, sizeof history, "%s", o->history);
        else if (!o->no_history && !script) default_history(history);
        proa_chat_input *in = proa_chat_input_open(history[0] ? history : NULL);
        if (!script) fprintf(stderr, "%s: /help lists the commands, Ctrl-D ends\n", c.model);
        status = run_conversation(&c, in, script, err);
        proa_chat_input_close(in);
        proa_status closed = proa_output_close(&c.out, status == PROA_OK ? err : NULL);
        if (status == PROA_OK) status = closed;
    }
    if (!o->url) proa_chat_server_close(&local);
    proa_chat_release(&c);
    return status;
}

static int chat_command(const proa_command *self, int argc, char **argv)
{
    static chat_options o;
    static char no_grpc[] = "--allow-grpc=false", no_metrics[] = "--allow-metrics=false",
                quiet[] = "--log-info=false";
    char *serve_args[] = {no_grpc, no_metrics, quiet};
    proa_err err = {0};
    /* what `proa serve` would take; the rows of this command then change the engine's part of it */
    int exit_status = proa_args_parse(&proa_cmd_serve, &o.serve, PROA_COUNT(serve_args), serve_args);
    proa_decoding_init(&o.decoding);
    if (exit_status < 0) exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status < 0 && !o.model && !o.url)
        exit_status = proa_cli_fail(PROA_EXIT_USAGE, "'proa chat' needs a MODEL, or --url with a server");
    if (exit_status < 0) exit_status = run_chat(&o, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
    proa_decoding_release(&o.decoding);
    return exit_status;
}

static const proa_arg_table *const chat_tables[] = {&chat_args, &proa_serve_engine_args, NULL};
const proa_command proa_cmd_chat = {
    .name = "chat",
    .summary = "hold a conversation in the terminal, with a local model or a server",
    .examples = "  proa chat Qwen/Qwen3-0.6B\n"
                "  proa chat models/llama --system \"Answer in one sentence.\" --temperature 0.7\n"
                "  proa chat --url http://localhost:8000\n"
                "  echo \"What is a proa?\" | proa chat Qwen/Qwen3-0.6B\n",
    .tables = chat_tables,
    .decoding = offsetof(chat_options, decoding),
    .decoding_title = "options of the answers (/set changes them; defaults: the server's)",
    .run = chat_command,
};
