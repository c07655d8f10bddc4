/* SPDX-License-Identifier: Apache-2.0
 * llama_cpp.c - decode of a GGUF file by llama.cpp, for bench/llama_cpp.sh: seconds of each of N steps at batch 1. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void quiet(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char **argv)
{
    if (argc != 5) return fprintf(stderr, "usage: llama_cpp FILE.gguf THREADS PROMPT TOKENS\n"), 2;
    int threads = atoi(argv[2]), prompt = atoi(argv[3]), tokens = atoi(argv[4]);
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) return 1;
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)(prompt + tokens + 8);
    params.n_threads = params.n_threads_batch = threads;
    struct llama_context *context = llama_init_from_model(model, params);
    if (!context) return 1;
    int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_token *ids = malloc((size_t)prompt * sizeof *ids);
    if (!ids) return 1;
    srand(1);
    for (int i = 0; i < prompt; i++) ids[i] = (llama_token)(rand() % vocabulary);
    double start = seconds();
    if (llama_decode(context, llama_batch_get_one(ids, prompt))) return 1;
    double first = seconds() - start;
    start = seconds();
    for (int i = 0; i < tokens; i++) {
        const float *logits = llama_get_logits_ith(context, -1);
        llama_token best = 0;
        for (int v = 1; v < vocabulary; v++)
            if (logits[v] > logits[best]) best = v;
        if (llama_decode(context, llama_batch_get_one(&best, 1))) return 1;
    }
    printf("%.3f,%.3f\n", (double)tokens / (seconds() - start), (double)prompt / first);
    return 0;
}
