/* SPDX-License-Identifier: Apache-2.0
 * Bodies of OpenAI's API, of Anthropic's and of vLLM's through the real handlers to small trained models. The first
 * byte picks the operation; the client leaves after a while, as people do, so that cancels are met too. */
#include "fuzz.h"
#include "service.h"

enum { WAIT_MS = 150 };

static const char *const models[] = {"tests/fuzz/repository/chat", "models/polarity-bert",
                                     "tests/repository/simple_string"};
static const char *const paths[] = {"/v1/chat/completions",
                                    "/v1/completions",
                                    "/v1/embeddings",
                                    "/v1/models/chat",
                                    "/v1/responses",
                                    "/v1/messages",
                                    "/v1/messages/count_tokens",
                                    "/rerank",
                                    "/v2/rerank",
                                    "/score",
                                    "/tokenize",
                                    "/detokenize"};

SERVICE_AT_START(models)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_buf request, answer;
    if (size < 1) return 0;
    service_open(models, PROA_COUNT(models));
    proa_buf_init(&request, (size_t)1 << 20);
    proa_buf_init(&answer, SERVICE_ANSWER_MAX);
    proa_buf_printf(
        &request,
        "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        "Content-Length: %zu\r\n\r\n",
        data[0] % PROA_COUNT(paths) == 3 ? "GET" : "POST", paths[data[0] % PROA_COUNT(paths)], size - 1);
    proa_buf_append(&request, data + 1, size - 1);
    service_http(proa_buf_view(&request), false, &answer, WAIT_MS);
    proa_buf_release(&request);
    proa_buf_release(&answer);
    return 0;
}
