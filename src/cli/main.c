/* SPDX-License-Identifier: Apache-2.0
 * main.c - the program: a table of commands. */
#include "cli/commands.h"

#include "backends/isolate/isolate.h"
#include "cli/decoding.h"
#include "cli/wrap.h"
#include "engine/ranks/launch.h"
#include "proa/proa.h"
#include <signal.h>
#include <string.h>

static const proa_command *const commands[] = {
    &proa_cmd_run,     &proa_cmd_serve,   &proa_cmd_client,  &proa_cmd_eval, &proa_cmd_bench,
    &proa_cmd_explain, &proa_cmd_inspect, &proa_cmd_convert, &proa_cmd_tune, &proa_cmd_pull,
    &proa_cmd_chat,    &proa_cmd_top,     &proa_cmd_version};

static void print_summary(const char *name, const char *summary, int columns)
{
    enum { INDENT = 17 };
    printf("  %-14s ", name);
    proa_print_wrapped(summary, INDENT, INDENT, columns);
}

static int print_overview(void)
{
    static const char *const helps[][2] = {
        {"help", "print this text, or the options of a command"},
        {"help decoding", "print the decoding options and their names in other engines"},
        {"help models", "print the architectures that run"},
        {"help heads", "print the classifiers, embedders and decoders on the layers of others"},
    };
    int columns = proa_help_columns();
    printf("proa %s - runs and serves transformers from a Hugging Face folder\n\nusage: proa COMMAND ...\n\n",
           proa_version());
    for (size_t i = 0; i < PROA_COUNT(commands); i++)
        print_summary(commands[i]->name, commands[i]->summary, columns);
    for (size_t i = 0; i < PROA_COUNT(helps); i++) print_summary(helps[i][0], helps[i][1], columns);
    printf("\nexamples\n"
           "  proa run models/classics-10m \"It was a dark and stormy night\"\n"
           "  proa run models/m30k-t5 \"translate English to German: A dog runs on the beach.\"\n"
           "  proa serve models/classics-10m\n"
           "  proa bench models/classics-10m\n"
           "  proa run --help\n");
    return PROA_EXIT_OK;
}

static const proa_command *find_command(const char *name)
{
    for (size_t i = 0; i < PROA_COUNT(commands); i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[PROA_COUNT(commands)];
    for (size_t i = 0; i < PROA_COUNT(commands); i++) names[i] = commands[i]->name;
    const char *near = proa_args_nearest(name, names, PROA_COUNT(commands));
    if (near) return proa_cli_fail(PROA_EXIT_USAGE, "unknown command '%s' (did you mean '%s'?)", name, near);
    return proa_cli_fail(PROA_EXIT_USAGE, "unknown command '%s' (see 'proa help')", name);
}

/* argv after `help`: a command, a topic or --json. */
static int help_command(int argc, char **argv)
{
    bool json = argc > 0 && strcmp(argv[argc - 1], "--json") == 0;
    const char *name = argc > 0 ? argv[0] : NULL;
    signal(SIGPIPE, SIG_DFL); /* `proa help run | head` ends like other programs */
    if (name && (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)) return print_overview();
    if (argc == json) return json ? proa_help_json(commands, PROA_COUNT(commands)) : print_overview();
    if (strcmp(name, "decoding") == 0) return proa_decoding_help_command(argc - 1, argv + 1);
    if (strcmp(name, "models") == 0) return proa_models_help_command(argc - 1, argv + 1);
    if (strcmp(name, "heads") == 0) return proa_heads_help_command(argc - 1, argv + 1);
    const proa_command *about = find_command(name);
    if (!about) return unknown_command(name);
    if (json) return proa_help_json(&about, 1);
    proa_args_help(about);
    return PROA_EXIT_OK;
}

/* Under mpirun the first process runs the command. The others serve as ranks of the models that it opens. */
static int run_with_ranks(const proa_command *command, int argc, char **argv)
{
    bool followed;
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_launch_begin(&followed, &err);
    if (status != PROA_OK) return proa_cli_fail_err(&err);
    if (followed) return PROA_EXIT_OK;
    int exit_status = command->run(command, argc, argv);
    fflush(stdout);
    proa_launch_end();
    return exit_status;
}

static int dispatch_command(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) return print_overview(), proa_cli_fail(PROA_EXIT_USAGE, "no command given");
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help_command(argc - 2, argv + 2);
    if (strcmp(name, "rank") == 0) return proa_rank_command(); /* started by rank 0, not by users */
    if (strcmp(name, "backend-host") == 0)
        return proa_isolate_host(argc - 2, argv + 2); /* started by `proa serve` */
    const proa_command *command = find_command(name);
    return command ? run_with_ranks(command, argc - 2, argv + 2) : unknown_command(name);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe becomes a failed write, which is reported with status 1 */
    signal(SIGXFSZ, SIG_IGN); /* the same for a file at its size limit */
    int exit_status = dispatch_command(argc, argv);
    /* help is printed through stdio; commands write through proa_output and have closed it */
    bool lost = fflush(stdout) != 0 || ferror(stdout); /* now, or at an earlier flush */
    if (lost && exit_status == PROA_EXIT_OK)
        exit_status = proa_cli_fail(PROA_EXIT_FAILED, "cannot write to standard output");
    return exit_status;
}
