/* SPDX-License-Identifier: Apache-2.0
 * Bodies of OpenAI's API, of Anthropic's and of vLLM's as far as requests of inference, which are not sent: so many
 * more are read than by fuzz_openai. The first byte picks the operation. What is read has a model, prompts or a chat,
 * and options that were checked; what is refused has a status and a text. */
#include "fuzz.h"
#include "service.h"

#include "api/openai/openai.h"

static const char *const models[] = {"tests/fuzz/repository/chat", "models/polarity-bert",
                                     "tests/repository/simple_string"};

SERVICE_AT_START(models)

/* As proa_oai_send prepares it. */
static bool prepare(proa_oai *job)
{
    if (!proa_oai_read(job)) return false;
    bool chat = !job->inputs, generates = job->form->choices;
    PROA_ASSERT(job->model && job->name.len && job->prompts_count > 0);
    PROA_ASSERT(job->prompts_count * job->params.n <= PROA_OPENAI_CHOICES_MAX);
    job->typed = job->contract == PROA_OAI_NATIVE && proa_served_model_takes_generation(job->model);
    if (chat && !proa_oai_check_chat(job)) return false;
    if (generates && job->typed && !proa_oai_set_options(job)) return false;
    if (generates && !job->typed) proa_oai_print_options(job);
    return !chat || proa_oai_take_chat(job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_http_exchange exchange = {.path = {"/rerank", 7}};
    proa_oai *job = proa_calloc(1, sizeof *job);
    if (size < 1) return free(job), 0;
    service_open(models, PROA_COUNT(models));
    proa_oai_kind kind = data[0] % PROA_OAI_KINDS;
    exchange.body = memcpy(proa_calloc(size, 1), data + 1, size - 1); /* a NUL after it */
    exchange.body_len = size - 1;
    *job = (proa_oai){.api = service.api, .x = &exchange, .kind = kind, .form = &proa_oai_forms[kind], .id = "id"};
    proa_arena_init(&job->arena);
    proa_buf_init(&job->out, (size_t)PROA_OPENAI_ANSWER_MAX);
    if (prepare(job)) PROA_ASSERT(job->inputs || job->chat || job->chat_text.len);
    else PROA_ASSERT(job->error.status >= 400 && job->error.text[0]);
    job->x = NULL;
    proa_oai_release(job);
    free(exchange.body);
    return 0;
}
