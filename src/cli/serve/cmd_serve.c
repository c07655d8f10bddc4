/* SPDX-License-Identifier: Apache-2.0
 * cmd_serve.c - `proa serve`: loads models, opens ports, waits for a signal, and shuts down cleanly. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/guard.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/serve/options.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ---- signals: the first asks for the end, the second ends ---- */

static sem_t shutdown_requested;

/* timeout(1) and some supervisors send one signal twice, to the process and to its group. */
#define SAME_SIGNAL_NS ((int64_t)200000000)

static void *wait_for_signals(void *arg)
{
    const sigset_t *set = arg;
    int number = 0;
    sigwait(set, &number);
    int64_t first_ns = proa_clock_ns();
    PROA_LOG(INFO, "%s: finishing what runs (once more: at once)",
             number == SIGINT ? "interrupted" : "terminated");
    sem_post(&shutdown_requested);
    do sigwait(set, &number);
    while (proa_clock_ns() - first_ns < SAME_SIGNAL_NS);
    PROA_LOG(ERROR, "exiting at once");
    proa_log_flush();
    _exit(PROA_EXIT_FAILED);
}

/* Before any other thread is made, so that all of them have the signals blocked. */
static void signals_block(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, set, NULL);
    sem_init(&shutdown_requested, 0, 0);
}

static void signals_watch(sigset_t *set)
{
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_signals, set);
    pthread_detach(thread);
}

/* ---- what is served ---- */

static const char *status_of(const Inference__RepositoryIndexResponse__ModelIndex *m, proa_arena *arena)
{
    if (!m->reason[0]) return m->state;
    proa_buf text;
    proa_buf_init(&text, PROA_ERR_JSON_MAX);
    proa_log_escape(&text, m->reason);
    const char *shown = proa_arena_printf(arena, "%s: %s", m->state, text.ptr ? text.ptr : "");
    proa_buf_release(&text);
    return shown;
}

/* As tritonserver prints it, so that scripts which read it go on working. */
static void log_table(proa_server *server, proa_arena *arena)
{
    Inference__RepositoryIndexResponse *index = NULL;
    proa_err err = {0};
    if (proa_server_index(server, false, &index, arena, &err) != PROA_OK) {
        PROA_LOG(ERROR, "%s", err.text);
        return;
    }
    int width = 5;
    for (size_t i = 0; i < index->n_models; i++) {
        int len = (int)strlen(index->models[i]->name);
        width = len > width && len < 64 ? len : width;
    }
    proa_buf out;
    proa_buf_init(&out, (size_t)1 << 20);
    char line[80];
    memset(line, '-', sizeof line);
    proa_buf_printf(
        &out, "\n+-%.*s-+---------+--------+\n| %-*s | Version | Status |\n+-%.*s-+---------+--------+\n",
        width, line, width, "Model", width, line);
    for (size_t i = 0; i < index->n_models; i++) {
        const Inference__RepositoryIndexResponse__ModelIndex *m = index->models[i];
        proa_buf_printf(&out, "| %-*s | %-7s | %-6s |\n", width, m->name, m->version[0] ? m->version : "-",
                        m->state[0] ? status_of(m, arena) : "-");
    }
    proa_buf_printf(&out, "+-%.*s-+---------+--------+", width, line);
    proa_log_rows(PROA_LOG_INFO, __FILE__, __LINE__, out.ptr);
    proa_buf_release(&out);
    if (index->n_models == 0)
        PROA_LOG(WARNING,
                 "there is no model: a repository has a folder for each model, and in it config.pbtxt or "
                 "folders of versions (docs/server.md)");
}

static void json_model(proa_output *out, const Inference__RepositoryIndexResponse__ModelIndex *m)
{
    proa_output_str(out, "{\"name\":");
    proa_output_json_str(out, proa_str_c(m->name));
    proa_output_str(out, ",\"version\":");
    proa_output_json_str(out, proa_str_c(m->version));
    proa_output_str(out, ",\"state\":");
    proa_output_json_str(out, proa_str_c(m->state));
    proa_output_str(out, ",\"reason\":");
    proa_output_json_str(out, proa_str_c(m->reason));
    proa_output_str(out, "}");
}

/* {"http_port":8000,...,"models":[...]}: for scripts that let the kernel pick the ports. */
static proa_status print_json(proa_server *server, proa_api *api, const proa_serve_plan *plan, proa_err *err)
{
    proa_output out;
    proa_arena arena;
    Inference__RepositoryIndexResponse *index = NULL;
    proa_arena_init(&arena);
    proa_status status = proa_server_index(server, false, &index, &arena, err);
    if (status == PROA_OK) status = proa_output_open(&out, NULL, err);
    if (status == PROA_OK) {
        proa_output_printf(&out, "{\"http_port\":%d,\"grpc_port\":%d,\"metrics_port\":%d,\"models\":[",
                           plan->api.http.allow ? proa_api_http_port(api) : 0,
                           plan->api.grpc.allow ? proa_api_grpc_port(api) : 0,
                           plan->api.metrics.allow ? proa_api_metrics_port(api) : 0);
        for (size_t i = 0; i < index->n_models; i++) {
            if (i) proa_output_str(&out, ",");
            json_model(&out, index->models[i]);
        }
        proa_output_str(&out, "]}\n");
        status = proa_output_close(&out, err);
    }
    proa_arena_release(&arena);
    return status;
}

static void log_port(const char *what, const proa_port *port, int number)
{
    if (!port->allow) return;
    if (strncmp(port->address, "unix:", 5) == 0) PROA_LOG(INFO, "Started %s at %s", what, port->address);
    else PROA_LOG(INFO, "Started %s at %s:%d", what, port->address, number);
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 || strncmp(address, "127.", 4) == 0 ||
           strcmp(address, "::1") == 0 || strcmp(address, "localhost") == 0;
}

/* May anybody who reaches this port load models, and so run code? */
static bool is_open(const proa_port *port, const proa_api_options *a)
{
    bool restricted = false;
    for (int i = 0; i < port->restrictions_count; i++)
        restricted |= port->restrictions[i].category == PROA_CATEGORY_MODEL_REPOSITORY;
    return port->allow && !a->api_keys_count && !restricted && !port->client_ca && !is_loopback(port->address);
}

static void warn_open(const proa_serve_plan *plan)
{
    const proa_api_options *a = &plan->api;
    const struct {
        const char *name;
        const proa_port *port;
    } protocols[] = {{"HTTP", &a->http}, {"gRPC", &a->grpc}};
    if (plan->server.control != PROA_CONTROL_EXPLICIT) return;
    for (size_t i = 0; i < PROA_COUNT(protocols); i++)
        if (is_open(protocols[i].port, a))
            PROA_LOG(WARNING,
                     "ANYBODY WHO REACHES THE %s PORT AT %s CAN LOAD MODELS AND RUN CODE AS THIS USER: "
                     "control mode "
                     "explicit without a key. Give --api-key-file, restrict model-repository, or listen on "
                     "127.0.0.1 (docs/hardening.md)",
                     protocols[i].name, protocols[i].port->address);
}

static proa_status announce_server(proa_server *server, proa_api *api, proa_serve_plan *plan, bool json,
                                   proa_err *err)
{
    log_table(server, &plan->arena);
    log_port("GRPCInferenceService", &plan->api.grpc, proa_api_grpc_port(api));
    log_port("HTTPService", &plan->api.http, proa_api_http_port(api));
    warn_open(plan);
    log_port("Metrics Service", &plan->api.metrics, proa_api_metrics_port(api));
    return json ? print_json(server, api, plan, err) : PROA_OK;
}

/* False if something still ran when the time was over. */
static bool drain_server(proa_server *server, proa_api *api, int64_t timeout_ms)
{
    int64_t start = proa_clock_ns();
    bool ended = proa_api_drain(api, timeout_ms);
    int64_t left = timeout_ms - (proa_clock_ns() - start) / 1000000;
    ended = proa_server_stop(server, left > 0 ? left : 0) && ended;
    if (!ended) PROA_LOG(ERROR, "Exit timeout expired. Exiting immediately.");
    return ended;
}

static int run_server(proa_serve_plan *plan, const proa_serve_options *o, proa_err *err)
{
    proa_server *server = NULL;
    proa_api *api = NULL;
    if (proa_log_set(&plan->log, err) != PROA_OK) return proa_cli_fail_err(err);
    proa_serve_warn_ignored(o);
    proa_serve_warn_unknown(plan, o);
    proa_status status = proa_api_check(&plan->api, err);
    if (status == PROA_OK) status = proa_server_new(&server, &plan->server, err);
    if (status == PROA_OK) status = proa_api_open(&api, server, &plan->api, err);
    if (status == PROA_OK) status = announce_server(server, api, plan, o->json, err);
    if (status != PROA_OK) {
        proa_api_close(api);
        if (server) log_table(server, &plan->arena), proa_server_stop(server, plan->exit_ms);
        proa_server_free(server);
        return proa_cli_fail_err(err);
    }
    while (sem_wait(&shutdown_requested) != 0) continue;
    bool ended = drain_server(server, api, plan->exit_ms);
    if (!ended) proa_log_flush();
    if (!ended)
        _exit(PROA_EXIT_FAILED); /* what still runs cannot be waited for: nothing is torn down under it */
    proa_api_close(api);
    proa_server_free(server);
    return PROA_EXIT_OK;
}

static int serve_command(const proa_command *self, int argc, char **argv)
{
    static proa_serve_options o;
    static proa_serve_plan plan;
    static sigset_t set;
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status >= 0) return exit_status;
    if (proa_serve_plan_make(&plan, &o, &err) != PROA_OK) {
        exit_status = proa_cli_fail(PROA_EXIT_USAGE, "%s", err.text);
    } else {
        if (!proa_reserve_open())
            PROA_LOG(WARNING, "the system gives less memory than the %d MiB that are kept in reserve",
                     (int)(PROA_RESERVE_BYTES / PROA_MIB));
        proa_guards_install();
        proa_log_in_background();
        signals_block(&set);
        signals_watch(&set);
        exit_status = run_server(&plan, &o, &err);
    }
    proa_serve_plan_release(&plan);
    proa_log_flush();
    return exit_status;
}

const proa_command proa_cmd_serve = {
    .name = "serve",
    .summary = "serve models over HTTP, gRPC and OpenAI's API, as Triton Inference Server does",
    .examples =
        "  proa serve models/classics-10m\n"
        "  proa serve --model-repository /models --model-control-mode explicit --load-model llama\n"
        "  proa serve models/m30k-t5 --http-port 80 --grpc-port 80 --metrics-port 80   one port for all\n"
        "  curl -s localhost:8000/v1/completions -d '{\"model\":\"classics-10m\",\"prompt\":\"It was\"}'\n",
    .tables = proa_serve_tables,
    .run = serve_command,
};
