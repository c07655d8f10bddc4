/* SPDX-License-Identifier: Apache-2.0
 * call_grammar.c - the grammar of a message whose tool calls follow the schemas of their tools, in Lark's form. In each
 * form a call is: opening, name, middle, arguments, closing. */
#include "text/message/parser.h"

#include <ctype.h>
#include <string.h>

typedef struct call_writer {
    const proa_call_grammar *g;
    proa_buf *out;
} call_writer;

/* How a form writes calls. NULL: nothing. In texts, `<|..|>`, `<..>` and `[..]` that begin a member are markers. */
typedef struct call_form {
    const char *lead;          /* marker of the first call */
    const char *open, *middle; /* before and after the name */
    const char *constrain;     /* after `middle`: a marker, a text and a marker */
    const char *args;          /* marker after `middle` */
    const char *close, *last;  /* after the arguments; marker after that */
    const char *next;          /* text before the marker of a further call; NULL: there are none */
    const char *next_marker;
    const char *end; /* after the last call */
    bool parameters; /* arguments are tags, not JSON */
} call_form;

static const call_form hermes = {.lead = "<tool_call>",
                                 .open = "\n{\"name\": \"",
                                 .middle = "\", \"arguments\": ",
                                 .close = "}\n",
                                 .last = "</tool_call>",
                                 .next = "\n",
                                 .next_marker = "<tool_call>"},
                       llama = {.open = "{\"name\": \"", .middle = "\", \"parameters\": ", .close = "}"},
                       mistral = {.lead = "[TOOL_CALLS]",
                                  .open = " [{\"name\": \"",
                                  .middle = "\", \"arguments\": ",
                                  .close = "}",
                                  .next = ", {\"name\": \"",
                                  .end = "]"},
                       mistral_named = {.lead = "[TOOL_CALLS]",
                                        .open = "",
                                        .middle = "",
                                        .args = "[ARGS]",
                                        .close = "",
                                        .next = "",
                                        .next_marker = "[TOOL_CALLS]"},
                       coder = {.lead = "<tool_call>",
                                .open = "\n<function=",
                                .middle = ">\n",
                                .close = "</function>\n",
                                .last = "</tool_call>",
                                .next = "\n",
                                .next_marker = "<tool_call>",
                                .parameters = true},
                       harmony = {.lead = "<|channel|>",
                                  .open = "commentary to=functions.",
                                  .middle = " ",
                                  .constrain = "json",
                                  .close = ""};

static const call_form *form_of(const proa_message_form *form)
{
    switch (form->tools) {
    case PROA_TOOL_FORM_HERMES: return &hermes;
    case PROA_TOOL_FORM_LLAMA3: return &llama;
    case PROA_TOOL_FORM_MISTRAL: return form->named_arguments ? &mistral_named : &mistral;
    case PROA_TOOL_FORM_QWEN3_CODER: return &coder;
    case PROA_TOOL_FORM_HARMONY: return &harmony;
    case PROA_TOOL_FORM_NONE: break;
    }
    return NULL;
}

/* ---- elements ---- */

static void put_literal(call_writer *w, proa_str text)
{
    if (text.len == 0) return;
    proa_buf_json_str(w->out, text);
    proa_buf_char(w->out, ' ');
}

static void put_text(call_writer *w, const char *text)
{
    if (text) put_literal(w, proa_str_c(text));
}

/* A special token if the tokenizer has it as one, else its text. */
static int32_t special_of(const call_writer *w, const char *marker)
{
    return w->g->special ? w->g->special(w->g->arg, marker) : -1;
}

static void put_marker(call_writer *w, const char *marker)
{
    int32_t id = marker ? special_of(w, marker) : -1;
    if (id >= 0) proa_buf_printf(w->out, "<[%d]> ", (int)id);
    else put_text(w, marker);
}

/* Special tokens of the form that free text may have, each followed by the rule `next`: its markers but `stop`. */
static void put_free_specials(call_writer *w, const char *stop, const char *next)
{
    const char *markers[PROA_MESSAGE_MARKERS_MAX];
    int count = proa_message_markers(w->g->form, markers, PROA_MESSAGE_MARKERS_MAX);
    bool channels = w->g->form->tools == PROA_TOOL_FORM_HARMONY;
    for (int i = 0; i < count && !channels; i++) {
        int32_t id = stop && strcmp(markers[i], stop) == 0 ? -1 : special_of(w, markers[i]);
        if (id >= 0) proa_buf_printf(w->out, " | <[%d]> %s", (int)id, next);
    }
}

static void put_class_char(call_writer *w, char c)
{
    if (!isalnum((unsigned char)c) && c != '_') proa_buf_char(w->out, '\\');
    proa_buf_char(w->out, c);
}

/* Rules NAME, NAME_1, ...: any text without `stop`, whose first character occurs in it once. NAME_i: the text so far
 * ends in i characters of it (Knuth, Morris and Pratt 1977). specials: the form's other special tokens may come. */
static void put_text_without(call_writer *w, const char *name, const char *stop, bool specials)
{
    size_t len = strlen(stop);
    for (size_t i = 0; i < len; i++) {
        if (i == 0) proa_buf_printf(w->out, "%s: /[^", name);
        else proa_buf_printf(w->out, "%s_%zu: /[^", name, i);
        put_class_char(w, stop[0]);
        if (i > 0) put_class_char(w, stop[i]);
        proa_buf_printf(w->out, "]/ %s | ", name);
        put_text(w, (char[]){stop[0], 0});
        proa_buf_printf(w->out, "%s_1", name);
        if (i > 0 && i + 1 < len) {
            proa_buf_str(w->out, proa_str_c(" | "));
            put_text(w, (char[]){stop[i], 0});
            proa_buf_printf(w->out, "%s_%zu", name, i + 1);
        }
        if (specials) put_free_specials(w, stop, name);
        proa_buf_str(w->out, proa_str_c(" |\n"));
    }
}

/* Rule `text`: free text up to the marker. */
static void put_free_text(call_writer *w, const char *stop)
{
    if (stop && special_of(w, stop) < 0) {
        put_text_without(w, "text", stop, true);
        return;
    }
    proa_buf_str(w->out, proa_str_c("text: (/./s"));
    put_free_specials(w, stop, "");
    proa_buf_str(w->out, proa_str_c(")*\n"));
}

/* ---- arguments ---- */

static const proa_json *function_of(const call_writer *w, int64_t i)
{
    return proa_json_get(proa_json_at(w->g->tools, i), "function");
}

/* A schema holds unless the tool says strict false, or the call may come by itself and the tool does not say true. */
static bool is_held(const call_writer *w, const proa_json *function)
{
    const proa_json *strict = proa_json_get(function, "strict");
    return strict && proa_json_kind(strict) == PROA_JSON_BOOL ? proa_json_bool(strict) : w->g->forced;
}

static bool is_object(const proa_json *j)
{
    return proa_json_kind(j) == PROA_JSON_OBJECT;
}

static void put_json_arguments(call_writer *w, const proa_json *function)
{
    const proa_json *schema = proa_json_get(function, "parameters");
    proa_buf_str(w->out, proa_str_c("%json "));
    if (is_held(w, function) && is_object(schema) && proa_json_len(schema) > 0)
        proa_json_print(w->out, schema);
    else proa_buf_str(w->out, proa_str_c("{\"type\":\"object\"}"));
    proa_buf_char(w->out, '\n');
}

/* One property as a schema of its own: references are those of the whole. */
static void put_property(call_writer *w, const proa_json *schema, const proa_json *property)
{
    const proa_json *defs = proa_json_get(schema, "$defs");
    proa_buf_str(w->out, proa_str_c("%json "));
    size_t from = w->out->len;
    proa_json_print(w->out, property);
    if (!is_object(defs) || w->out->full || w->out->len == from) return;
    w->out->len--; /* its } */
    proa_buf_printf(w->out, "%s\"$defs\":", proa_json_len(property) > 0 ? "," : "");
    proa_json_print(w->out, defs);
    proa_buf_char(w->out, '}');
}

static bool is_required(const proa_json *schema, proa_str name)
{
    const proa_json *list = proa_json_get(schema, "required");
    for (int64_t i = 0; i < proa_json_len(list); i++)
        if (proa_str_eq(proa_json_str(proa_json_at(list, i)), name)) return true;
    return false;
}

/* <parameter=NAME>\nVALUE\n</parameter>\n for each property, in their order. Text is not quoted. */
static void put_tag_arguments(call_writer *w, const proa_json *function)
{
    const proa_json *schema = proa_json_get(function, "parameters"),
                    *properties = proa_json_get(schema, "properties");
    if (!is_object(properties) || !is_held(w, function)) {
        proa_buf_str(w->out,
                     proa_str_c("(\"<parameter=\" /[^\\s<>]+/ \">\\n\" value \"\\n</parameter>\\n\")*\n"));
        return;
    }
    for (proa_json_iter it = proa_json_begin(properties); proa_json_next(&it);) {
        bool nullable = false,
             text = proa_toolset_is_text(w->g->toolset, proa_json_str(proa_json_get(function, "name")),
                                         it.key, &nullable);
        const proa_json *values = proa_json_get(it.value, "enum");
        proa_buf_str(w->out, proa_str_c("(\"<parameter=\" "));
        put_literal(w, it.key);
        proa_buf_str(w->out, proa_str_c("\">\\n\" "));
        if (text && proa_json_len(values) > 0) {
            proa_buf_char(w->out, '(');
            for (int64_t i = 0; i < proa_json_len(values); i++) {
                if (i > 0) proa_buf_str(w->out, proa_str_c("| "));
                put_literal(w, proa_json_str(proa_json_at(values, i)));
            }
            proa_buf_char(w->out, ')');
        } else if (text) proa_buf_str(w->out, proa_str_c("value"));
        else put_property(w, schema, it.value);
        proa_buf_printf(w->out, " \"\\n</parameter>\\n\")%s ", is_required(schema, it.key) ? "" : "?");
    }
    proa_buf_char(w->out, '\n');
}

/* ---- calls ---- */

static void put_middle(call_writer *w, const call_form *f)
{
    put_text(w, f->middle);
    if (f->constrain) {
        put_marker(w, "<|constrain|>");
        put_text(w, f->constrain);
        put_marker(w, "<|message|>");
    }
    put_marker(w, f->args);
}

/* tool_I: the name of tool I and what follows it; arguments_I. */
static void put_tool(call_writer *w, const call_form *f, int64_t i)
{
    const proa_json *function = function_of(w, i);
    proa_buf_printf(w->out, "tool_%lld: ", (long long)i);
    put_literal(w, proa_json_str(proa_json_get(function, "name")));
    put_middle(w, f);
    proa_buf_printf(w->out, "arguments_%lld ", (long long)i);
    put_text(w, f->close);
    put_marker(w, f->last);
    proa_buf_printf(w->out, "\narguments_%lld: ", (long long)i);
    if (f->parameters) put_tag_arguments(w, function);
    else put_json_arguments(w, function);
}

static void put_tools(call_writer *w, const call_form *f)
{
    int64_t count = proa_json_len(w->g->tools);
    proa_buf_str(w->out, proa_str_c("call:"));
    for (int64_t i = 0; i < count; i++) proa_buf_printf(w->out, "%s tool_%lld", i ? " |" : "", (long long)i);
    proa_buf_char(w->out, '\n');
    for (int64_t i = 0; i < count; i++) put_tool(w, f, i);
    if (f->parameters) put_text_without(w, "value", "</parameter>", false);
}

/* (further call)* and the end of all calls */
static void put_more(call_writer *w, const call_form *f)
{
    if (!w->g->one_call && f->next) {
        proa_buf_char(w->out, '(');
        put_text(w, f->next);
        put_marker(w, f->next_marker);
        if (f->next_marker) put_text(w, f->open);
        proa_buf_str(w->out, proa_str_c("call)* "));
    }
    put_text(w, f->end);
}

/* The prompt has begun the call: up to the name, or with a named tool up to its arguments. */
static void put_forced(call_writer *w, const call_form *f)
{
    int64_t named = -1;
    for (int64_t i = 0; i < proa_json_len(w->g->tools) && w->g->named.len > 0; i++)
        if (proa_str_eq(proa_json_str(proa_json_get(function_of(w, i), "name")), w->g->named)) named = i;
    proa_buf_str(w->out, proa_str_c("start: "));
    if (named >= 0) {
        proa_buf_printf(w->out, "arguments_%lld ", (long long)named);
        put_text(w, f->close);
        put_marker(w, f->last);
    } else proa_buf_str(w->out, proa_str_c("call "));
    put_more(w, f);
    proa_buf_char(w->out, '\n');
}

/* <|channel|>NAME<|message|>TEXT, or a call; further ones after <|end|><|start|>assistant. */
static void put_channels(call_writer *w)
{
    proa_buf_str(w->out, proa_str_c("start: turn ("));
    put_marker(w, "<|end|>");
    put_marker(w, "<|start|>");
    proa_buf_str(w->out, proa_str_c("\"assistant\" turn)*\nturn: "));
    put_marker(w, "<|channel|>");
    proa_buf_str(w->out, proa_str_c("(\"analysis\" | \"final\" | \"commentary\") "));
    put_marker(w, "<|message|>");
    proa_buf_str(w->out, proa_str_c("text | "));
    put_marker(w, harmony.lead);
    put_text(w, harmony.open);
    proa_buf_str(w->out, proa_str_c("call\n"));
    put_free_text(w, "<|end|>");
}

/* The model may call: what it writes is free up to the form's marker. A Llama's call has none, but begins the text. */
static void put_free(call_writer *w, const call_form *f)
{
    if (f == &harmony) {
        put_channels(w);
        return;
    }
    if (f == &llama) {
        int32_t tag = special_of(w, "<|python_tag|>");
        proa_buf_str(w->out, proa_str_c("start: /[^{\\s]/ text | "));
        if (tag >= 0) proa_buf_printf(w->out, "<[%d]>? ", (int)tag);
        put_text(w, f->open);
        proa_buf_str(w->out, proa_str_c("call |\n"));
        put_free_text(w, tag >= 0 ? "<|python_tag|>" : NULL);
        return;
    }
    proa_buf_str(w->out, proa_str_c("start: text ("));
    put_marker(w, f->lead);
    put_text(w, f->open);
    proa_buf_str(w->out, proa_str_c("call "));
    bool again = f->last && !w->g->one_call; /* after more text */
    if (again) proa_buf_str(w->out, proa_str_c("text"));
    else put_more(w, f);
    proa_buf_str(w->out, proa_str_c(again ? ")*\n" : ")?\n"));
    put_free_text(w, f->lead);
}

bool proa_message_call_grammar(const proa_call_grammar *g, proa_buf *out)
{
    call_writer w = {g, out};
    const call_form *f = form_of(g->form);
    bool any = g->forced;
    for (int64_t i = 0; i < proa_json_len(g->tools) && !any; i++) any = is_held(&w, function_of(&w, i));
    if (!f || !any || proa_json_kind(g->tools) != PROA_JSON_ARRAY) return false;
    if (g->forced) put_forced(&w, f);
    else put_free(&w, f);
    put_tools(&w, f);
    return true;
}
