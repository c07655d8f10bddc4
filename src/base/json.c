/* SPDX-License-Identifier: Apache-2.0
 * json.c - checks a JSON text strictly before json-c parses it, and reads typed members. */
#include "base/json.h"

#include "base/file.h"
#include "base/limits.h"
#include <json-c/json.h>
#include <math.h>
#include <string.h>

/* An array or object takes json-c about 350 to 800 bytes, a number or string about 50. */
#define CONTAINER_NODES 8

/* Scans the text before json-c parses it. This bounds the size of the tree before memory is used, and
 * refuses what json-c 0.16 accepts in strict mode against RFC 8259: 'keys', -01, 1., -.5, control
 * characters and code points beyond U+10FFFF in strings. json-c itself checks the structure. */
typedef struct scanner {
    proa_str text;
    size_t at;
    int64_t nodes;   /* commas, colons and CONTAINER_NODES for each bracket that opens */
    bool python;     /* NaN and Infinity are let through */
    const char *why; /* what is wrong at `at`, or NULL */
} scanner;

static unsigned char byte_at(const scanner *s, size_t at)
{
    return at < s->text.len ? (unsigned char)s->text.ptr[at] : 0;
}

/* The offset after the digits at `at`; `at` itself if there are none. */
static size_t skip_digits(const scanner *s, size_t at)
{
    while (byte_at(s, at) >= '0' && byte_at(s, at) <= '9') at++;
    return at;
}

static void scan_number(scanner *s)
{
    size_t begin = s->at + (byte_at(s, s->at) == '-'), at = skip_digits(s, begin), digits;
    bool ok = at > begin && (byte_at(s, begin) != '0' || at == begin + 1);
    if (byte_at(s, at) == '.') {
        digits = at + 1;
        at = skip_digits(s, digits);
        ok = ok && at > digits;
    }
    if ((byte_at(s, at) | 0x20) == 'e') {
        digits = at + 1 + (byte_at(s, at + 1) == '+' || byte_at(s, at + 1) == '-');
        at = skip_digits(s, digits);
        ok = ok && at > digits;
    }
    if (ok) s->at = at;
    else s->why = "not a number";
}

/* Moves from the first character of a string to the one after its closing quote, or to the end. */
static void scan_string(scanner *s)
{
    while (s->at < s->text.len && !s->why) {
        unsigned char c = byte_at(s, s->at);
        int32_t code_point;
        int n = 1;
        if (c < 0x20) s->why = c ? "a control character in a string" : "a NUL byte";
        else if (c >= 0x80) n = proa_utf8_decode(s->text.ptr + s->at, s->text.len - s->at, &code_point);
        else if (c == '\\' && byte_at(s, s->at + 1) >= 0x20) n = 2;
        if (n == 0) s->why = "not UTF-8";
        if (s->why) return;
        s->at += (size_t)n;
        if (c == '"') return;
    }
}

/* Moves behind Python's NaN, Infinity or -Infinity. */
static bool scan_python_number(scanner *s)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    if (!s->python || !strchr("NI-", byte_at(s, s->at))) return false;
    proa_str rest = {s->text.ptr + s->at, s->text.len - s->at};
    for (size_t i = 0; i < PROA_COUNT(words); i++)
        if (proa_str_starts(rest, proa_str_c(words[i]))) return s->at += strlen(words[i]), true;
    return false;
}

static void scan_token(scanner *s)
{
    unsigned char c = byte_at(s, s->at);
    if (c == '-' || (c >= '0' && c <= '9')) {
        scan_number(s);
        return;
    }
    if (c == '\0') s->why = "a NUL byte";
    else if (c == 'N' || c == 'I') s->why = "NaN and Infinity are not numbers";
    else if (!strchr(" \t\r\n[]{},:\"", c) && (c < 'a' || c > 'z'))
        s->why = "a character that has no place here";
    else s->at++; /* words such as true: json-c checks them */
    if (c == '"') scan_string(s);
    else if (c == ',' || c == ':') s->nodes++;
    else if (c == '[' || c == '{') s->nodes += CONTAINER_NODES;
}

static proa_status scan_text(proa_str text, int64_t nodes_max, bool python, const char *what, proa_err *err)
{
    scanner s = {.text = text, .python = python};
    while (s.at < text.len && !s.why && s.nodes <= nodes_max)
        if (!scan_python_number(&s)) scan_token(&s);
    if (s.why) return PROA_FAIL(err, CORRUPT, "%s: not JSON at byte %zu: %s", what, s.at, s.why);
    if (s.nodes > nodes_max)
        return PROA_FAIL(err, LIMIT, "%s: at most %lld values are read (an array or object counts for %d)",
                         what, (long long)nodes_max, CONTAINER_NODES);
    return PROA_OK;
}

/* The place of a failure: in the text, or at its end if more was expected. */
static proa_status report_error(const char *what, struct json_tokener *tok, enum json_tokener_error code,
                                bool at_end, size_t len, proa_err *err)
{
    size_t at = at_end ? len : json_tokener_get_parse_end(tok);
    const char *why = at_end ? "cut short" : json_tokener_error_desc(code);
    if (code == json_tokener_error_depth)
        return PROA_FAIL(err, LIMIT, "%s: nested deeper than %d at byte %zu", what, PROA_JSON_DEPTH_MAX, at);
    return PROA_FAIL(err, CORRUPT, "%s: not JSON at byte %zu: %s", what, at, why);
}

/* json-c returns NULL both for the text `null` and when memory ran out. */
static bool is_null(proa_str text)
{
    size_t from = 0;
    while (from < text.len && strchr(" \t\r\n", text.ptr[from])) from++;
    return text.len - from >= 4 && memcmp(text.ptr + from, "null", 4) == 0;
}

static proa_status parse_text(proa_json **out, proa_str text, int64_t nodes_max, bool python,
                              const char *what, proa_err *err)
{
    *out = NULL;
    if (text.len > INT32_MAX) return PROA_FAIL(err, LIMIT, "%s: more than 2 GiB of JSON", what);
    if (text.len == 0) return PROA_FAIL(err, CORRUPT, "%s: not JSON: it is empty", what);
    PROA_TRY(scan_text(text, nodes_max, python, what, err));
    struct json_tokener *tok = json_tokener_new_ex(PROA_JSON_DEPTH_MAX);
    if (!tok) return PROA_FAIL(err, NO_MEMORY, "%s: not enough memory to read it", what);
    json_tokener_set_flags(tok, JSON_TOKENER_STRICT);
    *out = json_tokener_parse_ex(tok, text.ptr, (int)text.len);
    enum json_tokener_error code = json_tokener_get_error(tok);
    bool at_end = code == json_tokener_continue;
    if (at_end) { /* a number alone is complete only at the end of the text */
        *out = json_tokener_parse_ex(tok, "", 1);
        code = json_tokener_get_error(tok);
    }
    proa_status status = PROA_OK;
    if (code != json_tokener_success) status = report_error(what, tok, code, at_end, text.len, err);
    else if (!*out && !is_null(text))
        status = PROA_FAIL(err, NO_MEMORY, "%s: not enough memory to read it", what);
    json_tokener_free(tok);
    if (status == PROA_OK) return PROA_OK;
    json_object_put(*out);
    *out = NULL;
    return status;
}

proa_status proa_json_parse_within(proa_json **out, proa_str text, int64_t nodes_max, const char *what,
                                   proa_err *err)
{
    return parse_text(out, text, nodes_max, false, what, err);
}

/* NaN, Infinity or -Infinity; not 1e999, which is a number that is too large. */
static bool is_python_number(proa_json *j)
{
    if (json_object_get_type(j) != json_type_double || isfinite(json_object_get_double(j))) return false;
    const char *text = json_object_to_json_string(j); /* as it was read */
    return text[0] == 'N' || text[text[0] == '-'] == 'I';
}

/* As deep as PROA_JSON_DEPTH_MAX. */
static void drop_python_numbers(proa_json *j)
{
    for (int64_t i = 0; json_object_is_type(j, json_type_array) && i < proa_json_len(j); i++) {
        if (is_python_number(proa_json_at(j, i))) json_object_array_put_idx(j, (size_t)i, NULL);
        else drop_python_numbers(proa_json_at(j, i));
    }
    for (proa_json_iter it = proa_json_begin(j); proa_json_next(&it);) {
        if (is_python_number(it.value)) json_object_object_add(j, it.key.ptr, NULL);
        else drop_python_numbers(it.value);
    }
}

proa_status proa_json_parse_python(proa_json **out, proa_str text, const char *what, proa_err *err)
{
    PROA_TRY(parse_text(out, text, PROA_JSON_NODES_MAX, true, what, err));
    if (is_python_number(*out)) proa_json_free(*out), *out = NULL;
    else drop_python_numbers(*out);
    return PROA_OK;
}

proa_status proa_json_parse(proa_json **out, proa_str text, const char *what, proa_err *err)
{
    return proa_json_parse_within(out, text, PROA_JSON_NODES_MAX, what, err);
}

proa_status proa_json_load(proa_json **out, const char *path, int64_t bytes_max, proa_err *err)
{
    proa_buf buf;
    *out = NULL;
    proa_status status = proa_file_read(&buf, path, bytes_max, err);
    if (status == PROA_OK) status = proa_json_parse(out, proa_buf_view(&buf), path, err);
    proa_buf_release(&buf);
    return status;
}

void proa_json_free(proa_json *root)
{
    json_object_put(root);
}

proa_json_type proa_json_kind(const proa_json *j)
{
    switch (json_object_get_type(j)) {
    case json_type_boolean: return PROA_JSON_BOOL;
    case json_type_double: return PROA_JSON_DOUBLE;
    case json_type_int: return PROA_JSON_INT;
    case json_type_object: return PROA_JSON_OBJECT;
    case json_type_array: return PROA_JSON_ARRAY;
    case json_type_string: return PROA_JSON_STRING;
    case json_type_null: break;
    }
    return PROA_JSON_NULL;
}

const char *proa_json_kind_name(proa_json_type kind)
{
    static const char *const names[] = {"null",     "a boolean", "an integer", "a number",
                                        "a string", "an array",  "an object"};
    return (unsigned)kind < PROA_COUNT(names) ? names[kind] : "unknown";
}

proa_json *proa_json_get(const proa_json *obj, const char *key)
{
    struct json_object *value = NULL;
    if (proa_json_kind(obj) != PROA_JSON_OBJECT) return NULL;
    return json_object_object_get_ex(obj, key, &value) ? value : NULL;
}

int64_t proa_json_len(const proa_json *j)
{
    if (proa_json_kind(j) == PROA_JSON_ARRAY) return (int64_t)json_object_array_length(j);
    return proa_json_kind(j) == PROA_JSON_OBJECT ? json_object_object_length(j) : 0;
}

proa_json *proa_json_at(const proa_json *array, int64_t i)
{
    if (proa_json_kind(array) != PROA_JSON_ARRAY || i < 0) return NULL;
    return json_object_array_get_idx(array, (size_t)i);
}

proa_str proa_json_str(const proa_json *j)
{
    if (proa_json_kind(j) != PROA_JSON_STRING) return (proa_str){"", 0};
    proa_json *mutable = (proa_json *)(uintptr_t)j; /* json-c's getter is not const, but does not write to strings */
    return (proa_str){json_object_get_string(mutable), (size_t)json_object_get_string_len(j)};
}

int64_t proa_json_int(const proa_json *j)
{
    return proa_json_kind(j) == PROA_JSON_INT ? json_object_get_int64(j) : 0;
}

uint64_t proa_json_uint(const proa_json *j)
{
    return proa_json_kind(j) == PROA_JSON_INT ? json_object_get_uint64(j) : 0;
}

double proa_json_double(const proa_json *j)
{
    proa_json_type kind = proa_json_kind(j);
    return kind == PROA_JSON_INT || kind == PROA_JSON_DOUBLE ? json_object_get_double(j) : 0;
}

bool proa_json_bool(const proa_json *j)
{
    return proa_json_kind(j) == PROA_JSON_BOOL && json_object_get_boolean(j);
}

void proa_json_put_str(proa_json *obj, const char *key, proa_str value)
{
    struct json_object *text = json_object_new_string_len(value.ptr, (int)value.len);
    json_object_object_add(obj, key, text);
}

void proa_json_put(proa_json *obj, const char *key, proa_json *value)
{
    json_object_object_add(obj, key, value);
}

void proa_json_remove(proa_json *obj, const char *key)
{
    json_object_object_del(obj, key);
}

proa_json *proa_json_new_object(void)
{
    return json_object_new_object();
}

proa_json *proa_json_new_array(void)
{
    return json_object_new_array();
}

proa_json *proa_json_new_str(proa_str value)
{
    return json_object_new_string_len(value.ptr ? value.ptr : "", (int)value.len);
}

void proa_json_add(proa_json *array, proa_json *value)
{
    if (proa_json_kind(array) != PROA_JSON_ARRAY || json_object_array_add(array, value) != 0)
        proa_json_free(value);
}

void proa_json_move_all(proa_json *to, proa_json *from)
{
    for (int64_t i = 0; proa_json_kind(from) == PROA_JSON_ARRAY && i < proa_json_len(from); i++)
        proa_json_add(to, json_object_get(proa_json_at(from, i)));
    for (proa_json_iter it = proa_json_begin(from); proa_json_next(&it);)
        json_object_object_add(to, it.key.ptr, json_object_get(it.value));
    proa_json_free(from);
}

proa_json *proa_json_hold(proa_json *j)
{
    return json_object_get(j);
}

proa_json *proa_json_take(proa_json *obj, const char *key)
{
    proa_json *value = proa_json_get(obj, key);
    if (!value) return NULL;
    json_object_get(value);
    proa_json_remove(obj, key);
    return value;
}

void proa_json_print(proa_buf *out, const proa_json *j)
{
    enum { FLAGS = JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE };
    proa_json *mutable = (proa_json *)(uintptr_t)j; /* json-c keeps the text in the object */
    proa_buf_str(out, proa_str_c(json_object_to_json_string_ext(mutable, FLAGS)));
}

void proa_json_keep(proa_json *obj, const char *const *names, int count)
{
    if (proa_json_kind(obj) != PROA_JSON_OBJECT) return;
    for (struct lh_entry *entry = json_object_get_object(obj)->head, *next; entry; entry = next) {
        const char *key = lh_entry_k(entry);
        bool kept = false;
        next = entry->next;
        for (int i = 0; i < count && !kept; i++) kept = strcmp(names[i], key) == 0;
        if (!kept || !lh_entry_v(entry)) json_object_object_del(obj, key);
    }
}

/* The sizes are those of json-c 0.16 on 64 bits, where a new object has a table for 16 members. */
size_t proa_json_bytes(const proa_json *j)
{
    enum { VALUE = 64, ARRAY = 384, OBJECT = 800, MEMBER = 96, ELEMENT = 8 };
    size_t bytes = VALUE;
    if (!j) return 0;
    switch (proa_json_kind(j)) {
    case PROA_JSON_STRING: return bytes + proa_json_str(j).len;
    case PROA_JSON_ARRAY:
        bytes = ARRAY + ELEMENT * (size_t)proa_json_len(j);
        for (int64_t i = 0; i < proa_json_len(j); i++) bytes += proa_json_bytes(proa_json_at(j, i));
        return bytes;
    case PROA_JSON_OBJECT:
        bytes = OBJECT;
        for (proa_json_iter it = proa_json_begin(j); proa_json_next(&it);)
            bytes += MEMBER + it.key.len + proa_json_bytes(it.value); /* as deep as PROA_JSON_DEPTH_MAX */
        return bytes;
    default: return bytes;
    }
}

proa_json_iter proa_json_begin(const proa_json *obj)
{
    proa_json_iter it = {.key = {"", 0}};
    if (proa_json_kind(obj) == PROA_JSON_OBJECT) it.entry = json_object_get_object(obj)->head;
    return it;
}

bool proa_json_next(proa_json_iter *it)
{
    struct lh_entry *entry = it->entry;
    if (!entry) return false;
    it->key = proa_str_c(lh_entry_k(entry));
    it->value = lh_entry_v(entry);
    it->entry = entry->next;
    return true;
}

static proa_status wrong_kind(const char *key, const char *want, const proa_json *j, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "'%s' must be %s, not %s", key, want, proa_json_kind_name(proa_json_kind(j)));
}

proa_status proa_json_get_int(int64_t *out, const proa_json *obj, const char *key, int64_t min, int64_t max,
                              proa_err *err)
{
    const proa_json *j = proa_json_get(obj, key);
    if (!j) return PROA_OK;
    int64_t value = proa_json_int(j);
    if (proa_json_kind(j) == PROA_JSON_DOUBLE && fabs(proa_json_double(j)) < 9e15 &&
        floor(proa_json_double(j)) == proa_json_double(j)) /* some writers use 1e6 for a count */
        value = (int64_t)proa_json_double(j);
    else if (proa_json_kind(j) != PROA_JSON_INT) return wrong_kind(key, "an integer", j, err);
    if (value < min || value > max)
        return PROA_FAIL(err, INVALID, "'%s' is %lld, must be %lld to %lld", key, (long long)value,
                         (long long)min, (long long)max);
    *out = value;
    return PROA_OK;
}

proa_status proa_json_get_double(double *out, const proa_json *obj, const char *key, double min, double max,
                                 proa_err *err)
{
    const proa_json *j = proa_json_get(obj, key);
    if (!j) return PROA_OK;
    if (proa_json_kind(j) != PROA_JSON_INT && proa_json_kind(j) != PROA_JSON_DOUBLE)
        return wrong_kind(key, "a number", j, err);
    double value = proa_json_double(j);
    if (!(value >= min && value <= max))
        return PROA_FAIL(err, INVALID, "'%s' is %g, must be %g to %g", key, value, min, max);
    *out = value;
    return PROA_OK;
}

proa_status proa_json_get_bool(bool *out, const proa_json *obj, const char *key, proa_err *err)
{
    const proa_json *j = proa_json_get(obj, key);
    if (!j) return PROA_OK;
    if (proa_json_kind(j) != PROA_JSON_BOOL) return wrong_kind(key, "true or false", j, err);
    *out = proa_json_bool(j);
    return PROA_OK;
}

proa_status proa_json_get_str(proa_str *out, const proa_json *obj, const char *key, proa_err *err)
{
    const proa_json *j = proa_json_get(obj, key);
    if (!j) return PROA_OK;
    if (proa_json_kind(j) != PROA_JSON_STRING) return wrong_kind(key, "a string", j, err);
    *out = proa_json_str(j);
    return PROA_OK;
}
