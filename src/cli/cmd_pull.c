/* SPDX-License-Identifier: Apache-2.0
 * cmd_pull.c - `proa pull`: downloads a model from a hub into the cache of Hugging Face and prints its path. */
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/hub.h"
#include "cli/output.h"
#include "cli/session.h"

typedef struct pull_options {
    const char *name, *cache;
    bool offline, verify, dry_run, json;
    int64_t connections;
} pull_options;

#define AT(field) offsetof(pull_options, field)
static const proa_arg pull_rows[] = {
    {"NAME", PROA_ARG_OPERAND, AT(name), 0, 0, NULL, NULL,
     "ORG/NAME of the model; then, if wanted, :FILE for one GGUF file of several (its name or a part, such "
     "as Q4_K_M) "
     "and @REVISION for a branch, tag or commit"},
    {"cache", PROA_ARG_TEXT, AT(cache), 0, 0, "FOLDER", NULL,
     "the cache; default: as HF_HUB_CACHE and HF_HOME say, else ~/.cache/huggingface/hub"},
    {"offline", PROA_ARG_FLAG, AT(offline), 0, 0, NULL, NULL, "only look into the cache, as HF_HUB_OFFLINE=1 does"},
    {"verify", PROA_ARG_FLAG, AT(verify), 0, 0, NULL, NULL,
     "hash the files that are there already too, and download again what is damaged"},
    {"dry-run", PROA_ARG_FLAG, AT(dry_run), 0, 0, NULL, NULL, "download nothing: list the files and their sizes"},
    {"connections", PROA_ARG_INT, AT(connections), 0, PROA_HUB_CONNECTIONS_MAX, "N", "0",
     "connections at the same time; 0: " PROA_STR(PROA_HUB_CONNECTIONS)},
    {"json", PROA_ARG_FLAG, AT(json), 0, 0, NULL, NULL, "print JSON to standard output"},
};
#undef AT
static const proa_arg_table pull_args = PROA_ARG_TABLE("options", pull_rows);

static void print_json(proa_output *out, const proa_hub_result *r)
{
    proa_output_printf(out, "{\"repo\":\"%s\",\"commit\":\"%s\",\"path\":", r->repo, r->commit);
    proa_output_json_str(out, proa_str_c(r->path));
    proa_output_printf(out, ",\"bytes_downloaded\":%lld,\"files\":[", (long long)r->bytes_downloaded);
    for (int32_t i = 0; i < r->files_count; i++) {
        proa_output_str(out, i ? ",{\"name\":" : "{\"name\":");
        proa_output_json_str(out, proa_str_c(r->files[i].name));
        proa_output_printf(out, ",\"bytes\":%lld,\"downloaded\":%s}", (long long)r->files[i].bytes,
                           r->files[i].downloaded ? "true" : "false");
    }
    proa_output_str(out, "]}\n");
}

static void print_files(proa_output *out, const proa_hub_result *r)
{
    char size[16];
    for (int32_t i = 0; i < r->files_count; i++)
        proa_output_printf(out, "%10s  %-7s  %s\n", proa_output_bytes_text(size, (double)r->files[i].bytes),
                           r->files[i].downloaded ? "missing" : "cached", r->files[i].name);
}

static proa_status pull_model(const pull_options *o, proa_err *err)
{
    proa_hub_options options = {.cache = o->cache,
                                .offline = o->offline,
                                .verify = o->verify,
                                .dry_run = o->dry_run,
                                .connections = (int32_t)o->connections};
    proa_hub_result result;
    proa_output out;
    PROA_TRY(proa_cli_pull(o->name, &options, &result, err));
    proa_status status = proa_output_open(&out, NULL, err);
    if (status == PROA_OK) {
        if (o->json) print_json(&out, &result);
        else if (o->dry_run) print_files(&out, &result);
        else proa_output_printf(&out, "%s\n", result.path);
        status = proa_output_close(&out, err);
    }
    proa_hub_result_release(&result);
    return status;
}

static int pull_command(const proa_command *self, int argc, char **argv)
{
    pull_options o = {.name = NULL};
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status >= 0) return exit_status;
    proa_interrupt_watch();
    return pull_model(&o, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const pull_tables[] = {&pull_args, NULL};
const proa_command proa_cmd_pull = {
    .name = "pull",
    .summary = "download a model from a Hugging Face hub into the cache that transformers uses too",
    .examples = "  proa pull Qwen/Qwen3-0.6B\n"
                "  proa pull google-t5/t5-small@main --dry-run\n"
                "  proa pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M\n"
                "  HF_TOKEN=hf_... proa pull meta-llama/Llama-3.2-1B\n",
    .tables = pull_tables,
    .run = pull_command,
};
