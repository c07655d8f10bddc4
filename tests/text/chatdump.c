/* SPDX-License-Identifier: Apache-2.0
 * chatdump.c - renders chats as a model's templates do: the other side of tools/check_templates.py.
 *   chatdump FOLDER TEMPLATE   FOLDER has the special tokens; requests are lines of JSON on standard input
 *   answer, a line each: {"output": text} or {"error": text}, with the forms that the template shows (message.h) and
 *   whether the prompt opens reasoning */
#include "base/limits.h"
#include "text/template.h"
#include <string.h>

static void answer(const proa_chat *chat, proa_str line)
{
    proa_json *request = NULL;
    proa_err err = {.status = PROA_OK};
    proa_buf prompt, out;
    proa_buf_init(&prompt, PROA_TEXT_BYTES_MAX);
    proa_buf_init(&out, PROA_TEXT_BYTES_MAX);
    proa_status status = proa_json_parse(&request, line, "request", &err);
    if (status == PROA_OK) status = proa_chat_render(chat, request, &prompt, &err);
    proa_message_form form = proa_chat_form(chat);
    int open = proa_message_prompt_reasons(&form, proa_buf_view(&prompt));
    proa_buf_str(&out, proa_str_c(status == PROA_OK ? "{\"output\":" : "{\"error\":"));
    proa_buf_json_str(&out, status == PROA_OK ? proa_buf_view(&prompt) : proa_str_c(err.text));
    proa_buf_printf(&out, ",\"tools\":%d,\"reasoning\":%d,\"open\":%d}\n", (int)form.tools,
                    (int)form.reasoning, open);
    fwrite(out.ptr, 1, out.len, stdout);
    proa_buf_release(&out);
    proa_buf_release(&prompt);
    proa_json_free(request);
}

int main(int argc, char **argv)
{
    proa_err err = {.status = PROA_OK};
    proa_chat *chat;
    char *line = NULL;
    size_t room = 0;
    if (argc != 3) return 2;
    proa_files files = proa_files_of(argv[1]);
    if (proa_chat_open_files(&chat, &files, argv[2], &err) != PROA_OK) {
        fprintf(stderr, "chatdump: %s\n", err.text);
        return 1;
    }
    for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) answer(chat, (proa_str){line, (size_t)n});
    free(line);
    proa_chat_free(chat);
    return 0;
}
