#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""golden_templates.py - what jinja2 makes of the snippets below and of tests/golden/templates/chats/*.jinja.

Writes tests/golden/templates/snippets.json and chats.json. Needs jinja2 and transformers (for its environment: the
sandbox, its extensions, tojson); their versions are written into the files. Usage: python tools/golden_templates.py
"""
import json
import pathlib

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "templates"

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <there> & \"you\""},
    {"role": "assistant", "content": "Hello!\n"},
    {"role": "user", "content": "  What's 2+2? \u00e9\u4e16\U0001f600 "},
]
VARS = {
    "messages": MESSAGES,
    "s": "Hello, World",
    "name": "stra\u00dfe",
    "empty": "",
    "n": 7,
    "neg": -7,
    "f": 2.5,
    "t": True,
    "no": False,
    "nil": None,
    "xs": [3, 1, 2],
    "words": ["banana", "Apple", "cherry", "apple"],
    "d": {"b": 2, "a": 1, "C": [1, 2.0, None, True, "x'y"]},
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 30}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d \u00e9 \"q\" </s>",
              "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}],
    "multi": "line one\nline two\n\nline four\n",
    "items": "shadow",
}

SNIPPETS = r"""
# each line (with \n as a line end) is one template
plain text
{{ s }}
{{ s }}\n
{{ s }}\n\n
 {{- s -}} x
a {%- if true %} b {%- endif %} c
a\n  {% if true %}\n  b\n  {% endif %}\nc
a\n  {%+ if true %}\n  b\n  {%+ endif %}\nc
a\n  {% if true +%}\n  b\n  {% endif +%}\nc
a\n\t{# comment #}\nb
a {# comment #} b
a\n  {#- comment -#}\n  b
x{#+ c +#}\ny
  {% set x = 1 %}  {{ x }}  \n
{% for i in xs %}\n{{ i }}\n{% endfor %}\nend
{% for i in xs -%}\n  {{ i }},\n{%- endfor %}
{% raw %}{{ not }} {% run %}{% endraw %}
{%- raw -%}  {{ a }}  {%- endraw -%}  z
a\n  {% raw %}\n {{ x }}\n  {% endraw %}\nb
{{ '{{' }} {{ "%}" }} {{ '}}' }}
{{ {'a': {'b': 1}}['a']['b'] }}
{{ {'a': {'b': 1}} }}
{{ {} }}{{ [] }}{{ () }}{{ (1,) }}{{ (1, 2) }}
{{ 1, 2 }}
{{ "a" "b" 'c' }}
{{ 'tab\tnl\nq\'\"\\ \x41\u00e9\U0001F600 \q' }}
{{ ['tab\t', "it's", 'say "x"', 'both \' and "', 'é', '\x07', '\x7f', '\u200b', '\u00a0'] }}
{{ none }} {{ None }} {{ true }} {{ True }} {{ false }} {{ nil }} {{ t }}
{{ 1 }} {{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 123456789012345678 }} {{ 0.1 + 0.2 }} {{ 1/3 }} {{ 100000000000000000000.0 }}
{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000_000 }} {{ 1_0.5_0 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7 / 2 }} {{ 6 / 2 }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 2.0 ** 3 }} {{ 2 * 3.5 }} {{ 1 - 2.5 }}
{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ - 3 + 5 }} {{ +4 }} {{ 2 + 3 * 4 - 5 }}
{{ 1 + 2 ~ 3 }} {{ 'a' ~ 1 ~ none ~ 2.5 ~ true ~ [1] }} {{ 'a' + 'b' * 3 }} {{ 3 * 'ab' }} {{ [1] + [2] * 2 }}
{{ 'a' 'b' ~ 'c' }}
{{ true + true }} {{ true * 3 }} {{ 1 == true }} {{ 1 == 1.0 }} {{ 'a' == 'a' }} {{ [1] == [1.0] }} {{ {'a': 1} == {'a': 1.0} }} {{ (1,) == [1] }} {{ none == false }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 3 > 2 >= 2 != 1 }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ [1, 2] < [1, 3] }} {{ 'é' > 'z' }}
{{ not true }} {{ not 0 }} {{ 1 and 0 }} {{ 0 or 'x' }} {{ '' and 1 }} {{ none or [] or 3 }} {{ not 1 == 2 }} {{ 1 or 0 and 0 }}
{{ 'a' in 'abc' }} {{ 'd' not in 'abc' }} {{ 1 in xs }} {{ 'a' in d }} {{ 'z' in d }} {{ not 'z' in d }} {{ 2 in d.values() }} {{ ('b', 2) in d.items() }}
{{ 'x' if t else 'y' }} {{ 'x' if no else 'y' }} {{ 'x' if no }} {{ 'a' if no else 'b' if no else 'c' }}
{{ 1 if t else 2 + 3 }} {{ (1 if no else 2) + 3 }}
{{ undefined_thing }}|{{ undefined_thing is defined }}|{{ undefined_thing is undefined }}|{{ undefined_thing == other_thing }}
{{ undefined_thing or 'fallback' }} {{ undefined_thing|default('d') }} {{ nil|default('d') }} {{ nil|default('d', true) }} {{ ''|d('e', boolean=True) }}
{{ undefined_thing|length }} {{ undefined_thing|upper }} {{ undefined_thing|list }} {{ undefined_thing|join(',') }} {% for x in undefined_thing %}x{% else %}none{% endfor %}
{{ undefined_thing.attr }}
{{ undefined_thing['attr'] }}
{{ undefined_thing + 1 }}
{{ undefined_thing() }}
{{ d.missing.more }}
{{ d.missing }}|{{ d['missing'] }}|{{ xs[10] }}|{{ s[100] }}|{{ nil.x }}|{{ n.x }}
{{ xs[10].x }}
{{ nil.x.y }}
{{ s.nothing.y }}
{{ -undefined_thing }}
{{ undefined_thing < 1 }}
{{ 1 in undefined_thing }} {{ undefined_thing in [1] }}
{{ d.a }} {{ d['b'] }} {{ d.C[1] }} {{ d.C.0 }} {{ d['C'][-1] }} {{ people[0].name }} {{ people[0]['tags'][0] }} {{ people.1.age }}
{{ s[0] }} {{ s[-1] }} {{ s[1:5] }} {{ s[:5] }} {{ s[-5:] }} {{ s[::2] }} {{ s[::-1] }} {{ s[5:1:-1] }} {{ s[:] }} {{ s[100:] }} {{ s[:-100] }}
{{ xs[0:2] }} {{ xs[1:] }} {{ xs[::-1] }} {{ xs[-2:] }} {{ messages[1:]|length }} {{ (1, 2, 3)[1:] }} {{ messages[::2]|map(attribute='role')|list }}
{{ 'é世😀x'[1] }} {{ 'é世😀x'[::-1] }} {{ 'é世😀x'[1:3] }} {{ 'é世😀x'|length }}
{{ nil[1:] }}
{{ xs[::0] }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ 'hELLO wORLD'.capitalize() }} {{ s.swapcase() }} {{ name.upper() }} {{ 'ΑΣ'.lower() }} {{ "they're bill's".title() }}
[{{ '  x '.strip() }}] [{{ '  x '.lstrip() }}] [{{ '  x '.rstrip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ 'abcba'.strip('ab') }}] [{{ 'é\u3000\x1c'.strip() }}] [{{ 'x\n\n'.rstrip('\n') }}]
{{ 'a b  c'.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a b c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a--b'.split('--') }}
{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b c '.rsplit(None, 1) }} {{ 'a,b'.rsplit(',') }} {{ '  a b  c '.rsplit(none, 5) }} {{ 'abc'.rsplit('b', 0) }}
{{ '</think>x</think>y'.split('</think>')[-1].lstrip('\n') }} {{ 'abc'.partition('b') }} {{ 'abcbd'.rpartition('b') }} {{ 'abc'.partition('z') }} {{ 'abc'.rpartition('z') }}
{{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ ''.splitlines() }}
{{ s.startswith('Hell') }} {{ s.startswith('x') }} {{ s.endswith('World') }} {{ s.startswith(('x', 'H')) }} {{ s.startswith('World', 7) }} {{ s.endswith('Hello', 0, 5) }}
{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.find('o', 5) }} {{ s.index('W') }} {{ s.count('l') }} {{ 'é世é'.find('世') }} {{ 'aaa'.count('') }} {{ 'é世é'.rfind('é') }} {{ ''.find('') }}
{{ s.index('zz') }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'abc'.replace('', '-') }} {{ 'aaa'.replace('aa', 'b') }} {{ ''.replace('', 'x') }}
{{ ', '.join(['a', 'b']) }} {{ ''.join(words) }} {{ '-'.join('abc') }}
{{ ','.join([1]) }}
{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ 'abc'.removeprefix('x') }}
{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ ''.isdigit() }} {{ '½'.isnumeric() }} {{ 'é'.isascii() }}
[{{ 'x'.center(5) }}] [{{ 'x'.ljust(4, '.') }}] [{{ 'x'.rjust(4) }}] [{{ 'ab'.center(5, '*') }}] [{{ '-5'.zfill(4) }}] [{{ 'abc'.center(2) }}] [{{ 'abc'.center(6) }}]
{{ '{} {}'.format('a', 1) }} {{ '{1} {0}'.format('a', 'b') }} {{ '{x}'.format(x=3) }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}'.format('a', 'b', 'c', 42, 3.14159, 1234567) }} {{ '{{}}'.format() }} {{ '{0[a]} {0[b]}'.format(d) }} {{ '{!r:>6}'.format('x') }} {{ '{:x} {:#x} {:b} {:e} {:%}'.format(255, 255, 5, 12345.678, 0.25) }}
{{ '%s and %d and %.2f and %r %%' % ('a', 3, 2.5, 'q') }} {{ '%s' % 'x' }} {{ '%(a)s-%(b)s' % d }} {{ '%5s|%-5s|%05d|%+d|%x|%c' % ('a', 'b', 42, 5, 255, 'z') }} {{ '%s' % [1] }}
{{ '%s %s' % ('a',) }}
{{ '%d' % 'x' }}
{{ '%s' % ('a', 'b') }}
{{ "%s: %s"|format('a', 2) }} {{ "%(x)s"|format(x=1) }}
{{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.keys() }} {{ d.items() }} {{ d|list }} {{ d|length }}
{{ d.copy() == d }} {{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1)]) }} {{ {1: 'a', 1.5: 'b', none: 'c', true: 'd', (1, 2): 'e'} }}
{{ {[1]: 2} }}
{{ {'items': 1}.items() }}
{{ {'items': 1}['items'] }} {{ {'keys': 1}.get('keys') }} {{ {'x-y': 1}['x-y'] }}
{{ xs.append(4) }}
{{ d.update({'a': 2}) }}
{{ d.pop('a') }}
{{ xs.count(1) }} {{ xs.index(2) }} {{ xs.sort }}
{{ s.__class__ }}
{{ ''.__class__.__mro__ }}
{{ d._private is defined }}
{% set x = 5 %}{{ x }} {% set x = x + 1 %}{{ x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (c, e) = [3, 4] %}{{ c }}{{ e }} {% set z = 1, 2 %}{{ z }}
{% set a, b = [1, 2, 3] %}
{% set x %}  block {{ s }} {% endset %}[{{ x }}]
{% set x | upper | trim %}  block {{ s }} {% endset %}[{{ x }}]
{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.n }}
{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }} {{ ns.b is defined }} {{ ns['a'] }} {{ ns }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{% set ns.a, ns.b = 8, 9 %}{{ ns.a }}{{ ns.b }}
{% set x = {} %}{% set x.a = 1 %}
{% set ns.x = 1 %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}
{% if true %}{% set inner = 3 %}{% endif %}{{ inner }} {% for i in [1] %}{% set leak = 1 %}{% endfor %}{{ leak is defined }}
{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %} {% if no %}a{% elif nil %}b{% elif t %}c{% endif %} {% if empty %}x{% endif %}
{% for i in range(5) %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %} {{ range(3) }} {{ range(2, 10, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3)|length }} {{ range(10)[2:5] }}
{{ range(1000000) }}
{{ range(1, 2, 0) }}
{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.previtem.role if loop.previtem is defined }} {{ loop.nextitem.role if loop.nextitem is defined else '-' }} {{ loop.cycle('odd', 'even') }} {{ loop.depth }}{{ loop.depth0 }};{% endfor %}
{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.last }}{{ m.content }}{% else %}none{% endfor %}
{% for m in messages if m.role == 'nobody' %}x{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k, v in d|items %}{{ k }}{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for c in 'é世' %}<{{ c }}>{% endfor %} {% for a, b in [[1, 2], (3, 4)] %}{{ a + b }} {% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [1, 2] %}{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.index }}{% if j == 1 %}{% continue %}{% endif %}{% break %}{% endfor %}{{ loop.index }};{% endfor %}
{% for i in [1, 2, 3] %}{% set outer = loop %}{% for j in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}
{% for n in [{'v': 1, 'c': [{'v': 2, 'c': []}]}] recursive %}{{ n.v }}{{ loop.depth }}({{ loop(n.c) }}){% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in nil %}{% endfor %}
{% for i in [1, 2] %}{{ i }}{% endfor %}{{ i is defined }}{% for i in [] %}{% else %}{% set q = 1 %}e{% endfor %}{{ q is defined }}
{% macro greet(who, punct='!') %}Hello {{ who }}{{ punct }}{% endmacro %}{{ greet('Ann') }} {{ greet('Bob', '?') }} {{ greet(who='Cy', punct='.') }} {{ greet() }} {{ greet.name }} {{ greet.arguments }}
{% macro a(x) %}{{ x }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ a(1, 2, 3, z=4) }}
{% macro a(x) %}{{ x }}{% endmacro %}{{ a(1, 2) }}
{% macro a(x) %}{{ x }}{% endmacro %}{{ a(y=2) }}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * (fact(n - 1)|int) }}{% endif %}{% endmacro %}{{ fact(5) }}
{% macro schema(p, depth=0) -%}{% for k, v in p.items() %}{{ '  ' * depth }}{{ k }}: {% if v is mapping %}\n{{ schema(v, depth + 1) }}{% else %}{{ v }}\n{% endif %}{% endfor %}{%- endmacro %}{{ schema({'a': 1, 'b': {'c': 2, 'd': {'e': 3}}}) }}
{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}{% for i in [1] %}{% set x = 3 %}{{ m() }}{% endfor %}
{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('x') }}
{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}text {{ s }}{% endcall %}
{% macro each(list) %}{% for x in list %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) each(xs) %}[{{ i }}:{{ x }}]{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b')|upper %}aXa{% endfilter %}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
{% generation %}gen {{ s }}{% endgeneration %} {% for m in messages %}{% generation %}{{ m.role }}{% set k = 1 %}{% endgeneration %}{{ k is defined }} {% endfor %}
{{ raise_exception('This is bad: ' + s) }}
{% if messages[0].role != 'user' %}{{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}{% endif %}
{{ strftime_now('%Y')|length }} {{ strftime_now('%d %b %Y')|length }} {{ strftime_now('%%') }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }} {% set j = joiner('; ') %}{% for i in xs %}{{ j() }}{{ i }}{% endfor %}
{{ tools|tojson }}
{{ tools|tojson(indent=2) }}
{{ d|tojson(indent=4) }}
{{ d|tojson(sort_keys=true) }} {{ 'é"\\/\n\x01<>&\u2028'|tojson }} {{ 'é😀\x7f'|tojson(ensure_ascii=true) }} {{ d|tojson(separators=(',', ':')) }} {{ [1.0, 1e20, 0.1, true, none]|tojson }} {{ {1: 2, true: 3, none: 4, 1.5: 5}|tojson }} {{ []|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ (1, 2)|tojson }}
{{ undefined_thing|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ (xs|map('string'))|tojson }}
{{ '  x y '|trim }}| {{ 'xxyxx'|trim('x') }} {{ nil|trim }} {{ 5|string + '!' }} {{ [1]|string }}
{{ s|length }} {{ xs|length }} {{ d|count }} {{ messages|length }}
{{ n|length }}
{{ xs|join(', ') }} {{ people|join('; ', attribute='name') }} {{ [1, none, 'a', undefined_thing]|join('|') }} {{ 'abc'|join('-') }} {{ []|join(',') }}
{{ s|upper }} {{ s|lower }} {{ 'hello world-foo (bar) "baz"'|title }} {{ 'hELLO'|capitalize }} {{ nil|upper }} {{ 'éCOLE'|capitalize }}
{{ xs|first }} {{ xs|last }} {{ []|first }} {{ []|last }} {{ 'abc'|first }} {{ 'abc'|last }} {{ d|first }} {{ (xs|map('abs'))|first }}
{{ xs|map('abs')|last }}
{{ xs|list }} {{ 'ab'|list }} {{ d|list }} {{ range(3)|list }}
{{ people|map(attribute='name')|list }} {{ people|map(attribute='tags', default='none')|list }} {{ people|map(attribute='tags.0')|list }} {{ words|map('upper')|list }} {{ words|map('replace', 'a', 'o')|join(' ') }} {{ [[1, 2], [3]]|map('length')|list }} {{ [[1, 2], [3]]|map('first')|list }} {{ people|map(attribute='age')|sum }}
{{ people|map('nosuch')|list }}
{{ xs|map('upper') is iterable }} {{ (xs|map('upper')) is sequence }} {% if []|map('upper') %}generators are true{% endif %} {% if [1]|select('odd') %}y{% endif %}
{{ xs|map('abs')|length }}
{{ (xs|map('abs'))[0] }}|
{% set g = xs|map('string') %}{{ g|join }}-{{ g|join }}-
{{ [0, 1, 2, '', none, 'a']|select|list }} {{ range(6)|select('odd')|list }} {{ range(6)|reject('odd')|list }} {{ range(6)|select('gt', 3)|list }} {{ range(10)|select('divisibleby', 3)|list }} {{ [1, 'a', none]|select('string')|list }} {{ [1, none]|reject('none')|list }}
{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list }} {{ people|selectattr('tags', 'defined')|list|length }} {{ people|rejectattr('age', 'gt', 26)|map(attribute='name')|list }} {{ people|selectattr('tags')|map(attribute='name')|join }} {{ (messages|selectattr('role', '==', 'system')|first).content }} {{ messages|selectattr('role', 'in', ['user', 'system'])|list|length }}
{{ xs|sort }} {{ xs|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name', reverse=true)|map(attribute='name')|list }} {{ 'cab'|sort }}
{{ [1, 'a']|sort }}
{{ words|unique|list }} {{ words|unique(case_sensitive=true)|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }} {{ [1, 1.0, true, 2]|unique|list }}
{{ xs|reverse|list }} {{ 'abc'|reverse }} {{ d|reverse|list }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ {'x': 2, 'y': 1}|dictsort(by='value') }} {{ {'x': 2, 'y': 1}|dictsort(reverse=true) }}
{{ d|items|list }} {{ undefined_thing|items|list }}
{{ xs|items|list }}
{{ '42'|int }} {{ ' 42 '|int + 1 }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '1f'|int(0, 16) }} {{ '0x1f'|int(0, 16) }} {{ '3.9'|int }} {{ 3.9|int }} {{ true|int }} {{ none|int }} {{ '-5'|int }} {{ '1_000'|int }}
{{ '1.5'|float }} {{ 3|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ '1e3'|float }}
{{ -3|abs }} {{ (-3)|abs }} {{ (-2.5)|abs }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.5|round(0, 'ceil') }} {{ 2.567|round(1, 'floor') }} {{ 7|round }} {{ 1234|round(-2) }}
{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 2) }} {{ 123|replace(2, 'x') }}
{{ multi|indent }}| {{ multi|indent(2, true) }}| {{ multi|indent(2, blank=true) }}| {{ 'x'|indent('> ', first=true) }} {{ ''|indent }}|
{{ '<a href="x">&\'</a>'|escape }} {{ '<b>'|e }} {{ '<b>'|safe }} {{ ('<'|e)|e }} {{ ('<'|e)|forceescape }} {{ '<'|e + '<' }} {{ '<'|safe ~ '<' }} {{ '<'|e is escaped }}
{{ xs|sum }} {{ people|sum(attribute='age') }} {{ [[1], [2]]|sum(start=[]) }} {{ [0.1, 0.2]|sum }} {{ []|sum }}
{{ xs|min }} {{ xs|max }} {{ words|min }} {{ words|max }} {{ []|min }}| {{ people|max(attribute='age') }} {{ words|min(case_sensitive=true) }} {{ [2, 2.0, 1]|max }}
{{ range(7)|batch(3)|list }} {{ range(7)|batch(3, 'x')|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }}
{{ people|groupby('age')|length }} {% for age, group in people|groupby('age') %}{{ age }}:{{ group|map(attribute='name')|join(',') }};{% endfor %}
{{ 'one two  three'|wordcount }} {{ 'hello big world'|truncate(9) }} {{ 'hello big world'|truncate(9, true) }} {{ 'hello'|truncate(9) }} [{{ 'x'|center(5) }}]
{{ d|attr('a') is defined }} {{ d|attr('items') is callable }} {{ s|attr('upper')() }}
{{ 5 is odd }} {{ 5 is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ s is string }} {{ d is mapping }} {{ xs is iterable }} {{ xs is sequence }} {{ s is iterable }} {{ n is iterable }} {{ n is number }} {{ f is float }} {{ n is integer }} {{ t is integer }} {{ t is boolean }} {{ t is true }} {{ 1 is true }} {{ no is false }} {{ nil is none }} {{ nil is not none }} {{ d.items is callable }} {{ 'a' is lower }} {{ 'A' is upper }} {{ 1 is sameas 1 }} {{ true is sameas true }}
{{ 3 is eq 3 }} {{ 3 is equalto(3) }} {{ 3 is ne 4 }} {{ 3 is lt 4 }} {{ 3 is ge 4 }} {{ 3 is greaterthan 2 }} {{ 'a' is in ['a'] }} {{ 'a' is in 'abc' }} {{ 'x' is not in 'abc' }} {{ 'upper' is filter }} {{ 'nosuch' is filter }} {{ 'odd' is test }} {{ undefined_thing is iterable }} {{ undefined_thing is mapping }}
{{ message is defined and message.x }} {{ messages is defined and messages is not none }} {{ not undefined_thing is defined }} {{ s is defined and s is string and s|length > 3 }}
{{ 1 is number == true }} {{ (n is number) ~ 'x' }} {{ not n is number }} {{ n is number|upper }}
{{ s | nosuch }}
{% if no %}{{ s | nosuch }}{% endif %}fine
{% if t %}{{ s | nosuch }}{% endif %}
{{ s is nosuch }}
{% nosuch %}
{% if t %}no end
{% for x in xs %}{% endif %}
{{ s
{{ (1 }}
{{ 'open }}
{{ 1 + }}
{{ }}
{% set %}
{% set 1 = 2 %}
{% endif %}
{# open
{% raw %} open
{% break %}
{{ a b }}
{{ f(a=1, 2) }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 1 < 'a' }}
{{ none > 1 }}
{{ s() }}
{{ 3 in 5 }}
{{ 3 in 'abc' }}
{{ -s }}
{{ s|int + f|int }} {{ (s ~ n)|length }} {{ s|length * 2 }} {{ -n|abs }} {{ 2 ** 3|int }}
{{ messages[0]['content'] | trim + '\n\n' }} {{ messages[-1].content.strip() }} {{ messages[0].role == 'system' and messages|length > 1 }}
{{ (messages | selectattr('role', 'equalto', 'user') | list | last).content | trim }}
{{ messages | map(attribute='role') | unique | join('>') }}
{{ bos_token }}{{ '<s>' if bos_token is not defined else bos_token }}
{{- '\n' -}} x {{- '' -}}
{{ "\n".join(['a', 'b']) }}{{ '\\n' }}
{%- set ns = namespace(i=0) -%}\n{%- for m in messages -%}\n{%- set ns.i = loop.index0 -%}\n{%- endfor -%}\n{{ ns.i }}
{% set loop_messages = messages[1:] if messages[0].role == 'system' else messages %}{{ loop_messages|length }}{{ items }}
{% for m in messages %}{% if loop.index0 % 2 == 1 and m['role'] != 'assistant' %}{{ m['role'] }}{% endif %}{% endfor %}
{{ f({}) if f is callable else 'not callable' }}
{% macro p(a) %}{{ a.x if a is mapping else a }}{% endmacro %}{{ p({'x': 1}) }}{{ p(2) }}{{ p(*[3]) }}{{ p(**{'a': 4}) }}
{{ [1, 2, 3]|first + [4]|last }}
{{ ['a', 'b'][1 if t else 0] }} {{ {'k': [1, {'z': 'deep'}]}['k'][1].z }}
{{ (xs|sort)[0] }} {{ xs|sort|first }} {{ (s|lower).split(', ')|last|capitalize }}
{{ 'yes' if 'tools' in d or tools else 'no' }} {{ tools is iterable and tools | length > 0 }}
{% if tools is defined and tools %}T{% endif %}{% if not (documents is defined) %}D{% endif %}
{% for tool in tools %}{% set fn = tool.function %}{{ fn.name }}({% for p in fn.parameters.properties %}{{ p }}: {{ fn.parameters.properties[p].type }}{{ ', ' if not loop.last }}{% endfor %}){% if 'a' in fn.parameters.required %} req{% endif %}{% endfor %}
{{ messages|tojson|length }} {{ messages[3]|tojson }}
{{ "a\r\nb" }}\r\nc\rd
{{ 10 // 3 * 3 + 10 % 3 == 10 }} {{ 0.1 * 3 }} {{ 1e-5 }} {{ 123456.789e3 }} {{ -0.0 }} {{ 5 // 2.0 }} {{ 1e300 * 1e10 }}
{{ 9223372036854775807 }} {{ 'x' * 0 }} {{ 'x' * -1 }} {{ [] * 3 }}
{{ [1, [2, [3, {'a': (1,)}]]] }} {{ {'a': none, 'b': [true]} }} {{ ['a'|safe] }}
{{ not true or true }} {{ not (true or true) }} {{ true and not false }} {{ 1 if 0 else 2 if 0 else 3 }}
{{ '%.3f' % 2 }} {{ '%5.1f|' % 3.14159 }} {{ '%e' % 12345.678 }} {{ '%g' % 0.0001 }} {{ '%i' % 3.9 }} {{ '%o' % 8 }} {{ '%-6s|' % 'ab' }} {{ '%.2s' % 'abcdef' }} {{ '%*d' % (5, 42) }}
{{ "%s" % none }} {{ "%s" % true }} {{ "%s" % {'a': 1} }} {{ '%s%%' % 50 }}
{% set dict = {'a': 1} %}{{ dict.a }}{% set range = 5 %}{{ range }}
{{ caller is defined }} {{ loop is defined }} {{ varargs is defined }}
{% set x = [] %}{% set x = x + [1] %}{% for i in [2, 3] %}{% set x = x + [i] %}{% endfor %}{{ x }}
{% set ns = namespace(out=[]) %}{% for m in messages %}{% set ns.out = ns.out + [m.role] %}{% endfor %}{{ ns.out|join(',') }}
{% set ns = namespace(last=none) %}{% for m in messages[::-1] %}{% if ns.last is none and m.role == 'user' %}{% set ns.last = m.content|trim %}{% endif %}{% endfor %}{{ ns.last }}
{% if messages[0]['role'] == 'system' -%}\n    {%- set system = messages[0]['content'] -%}\n{%- else -%}\n    {%- set system = '' -%}\n{%- endif -%}\n[{{ system }}]
a{% if t %}\n\n  b  \n{% endif %}\n\n\nc
   {% if t %}x{% endif %}   \n  {{ s }}\n
{%- for k, v in {'a': 1}.items() %}\n  {{- k }}: {{ v -}}\n{% endfor %}.
{{ x.y.z if x is defined else 'no x' }} {{ (x|default({})).y|default('no y') }}
{{ [['a', 1], ['b', 2]]|map('join', ':')|join(' ') }} {{ ['1', '2']|map('int')|sum }}
{{ xs|truncate(8) }} {{ undefined_thing|reverse|list }} {{ undefined_thing is callable }} {{ 2.5 is even }} {{ 4.0 is even }} {{ name.casefold() }} {{ 'a,b' % [1] }} {{ people|map(attribute='x')|sort|length }}
{% if n|map('upper') %}lazy{% endif %} {{ 'never' if n|map('upper') else 'x' }}
{{ n|map('upper')|list }}
{{ 'İ'.lower()|length }} {{ 'ﬁ'.upper() }} {{ 'ǆ'.title() }} {{ 'ß'.capitalize() }}
"""


def snippets():
    for line in SNIPPETS.strip("\n").split("\n"):
        if not line.startswith("# "):
            yield protect(line)


def protect(line):
    """Real line ends where \\n stands outside of {{ }} and {% %}; inside, the template's own escapes stay."""
    out, inside, i = "", False, 0
    while i < len(line):
        two = line[i:i + 2]
        if two in ("{{", "{%", "{#"):
            inside = two != "{#"
        if two in ("}}", "%}"):
            inside = False
        if two in (r"\n", r"\t", r"\r") and not inside:
            out += {"n": "\n", "t": "\t", "r": "\r"}[two[1]]
            i += 2
            continue
        out += line[i]
        i += 1
    return out


def run(template, variables):
    try:
        return {"output": _compile_jinja_template(template).render(**variables)}
    except Exception as error:  # noqa: BLE001 - whatever Python raises is what the template fails with
        exact = isinstance(error, jinja2.exceptions.UndefinedError) or type(error) is jinja2.exceptions.TemplateError
        return {"error": str(error), "exact": exact}


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather of a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city's name"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "default": 1}}, "required": ["city"]}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Search the web",
    "parameters": {"type": "object", "properties": {
        "query": {"type": ["string", "integer"]},
        "filters": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}}},
        "required": ["query", "filters"]}}}


def call(name, arguments, ident="call00001"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": " You are a helpful assistant. "}
USER = {"role": "user", "content": "Hi! "}
BOT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello. How can I help?"}
AGAIN = {"role": "user", "content": "Tell me about \u00e9t\u00e9 <b>&</b> \U0001f600"}
ASK = {"role": "user", "content": "Weather in Paris?"}
CALLS = {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"city": "Paris", "days": 2})]}
TWO = {"role": "assistant", "content": "Let me look.", "tool_calls": [
    call("get_weather", {"city": "Paris"}), call("search", {"query": "caf\u00e9", "filters": [{"k": "v"}]}, "call00002")]}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"temp\": 21.5}"}
RESULT2 = {"role": "tool", "name": "search", "tool_call_id": "call00002", "content": "nothing"}

CASES = {
    "user": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER]},
    "turns": {"messages": [SYSTEM, USER, BOT, AGAIN]},
    "turns_no_system": {"messages": [USER, BOT, AGAIN]},
    "no_prompt": {"messages": [SYSTEM, USER, BOT], "add_generation_prompt": False},
    "tools": {"messages": [SYSTEM, ASK], "tools": [WEATHER, SEARCH]},
    "tools_no_system": {"messages": [ASK], "tools": [WEATHER]},
    "tool_call": {"messages": [ASK, CALLS, RESULT], "tools": [WEATHER]},
    "tool_calls": {"messages": [SYSTEM, ASK, TWO, RESULT, RESULT2], "tools": [WEATHER, SEARCH]},
    "tool_done": {"messages": [ASK, CALLS, RESULT, {"role": "assistant", "content": "21.5 degrees."}, AGAIN],
                  "tools": [WEATHER]},
    "bad_order": {"messages": [USER, USER, BOT]},
    "starts_with_bot": {"messages": [BOT, USER]},
    "no_think": {"messages": [USER, BOT, AGAIN], "chat_template_kwargs": {"enable_thinking": False}},
    "think": {"messages": [USER, BOT, AGAIN], "chat_template_kwargs": {"enable_thinking": True, "thinking": True}},
    "documents": {"messages": [USER], "documents": [{"title": "T1", "text": "One."}, {"title": "T2", "text": "Two."}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "only text"}]}]},
    "reasoned": {"messages": [ASK, {**CALLS, "content": "", "reasoning_content": "hm", "thinking": "hm"}, RESULT],
                 "tools": [WEATHER]},
    "continue": {"messages": [USER, {"role": "assistant", "content": "It is  "}], "continue_final_message": True},
    "continue_tight": {"messages": [SYSTEM, USER, {"role": "assistant", "content": "It is"}],
                       "continue_final_message": True},
    "custom": {"messages": [SYSTEM, USER], "chat_template_kwargs": {
        "date_string": "26 Jul 2024", "custom_tools": [WEATHER], "tools_in_user_message": False,
        "builtin_tools": ["brave_search", "code_interpreter"], "reasoning_effort": "high"}},
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def flat(case):
    """The variables that transformers hands to a template for such a request; contents are texts, as Proa joins them."""
    messages = [dict(m) for m in case["messages"]]
    for m in messages:
        if isinstance(m.get("content"), list):
            m["content"] = "\n".join(p["text"] for p in m["content"])
    prompt = case.get("add_generation_prompt", not case.get("continue_final_message"))
    return {**TOKENS, **case.get("chat_template_kwargs", {}), "messages": messages, "tools": case.get("tools"),
            "documents": case.get("documents"), "add_generation_prompt": prompt}


def run_chat(source, case):
    """What apply_chat_template makes of a request; one whose last message goes on, by transformers' own cut."""
    if not case.get("continue_final_message"):
        return run(source, flat(case))
    variables = flat(case)
    try:
        chats, _ = render_jinja_template([variables.pop("messages")], chat_template=source, continue_final_message=True,
                                         **variables)
        return {"output": chats[0]}
    except Exception as error:  # noqa: BLE001 - as in run
        return {"error": str(error), "exact": False}


def main():
    versions = {"jinja2": jinja2.__version__, "transformers": transformers.__version__}
    done = [{"template": t, **run(t, VARS)} for t in snippets()]
    text = json.dumps({"versions": versions, "variables": VARS, "snippets": done}, ensure_ascii=False, indent=1)
    (FOLDER / "snippets.json").write_text(text + "\n")
    chats = {}
    for path in sorted((FOLDER / "chats").glob("*.jinja")):
        source = path.read_text()
        chats[path.name] = {name: run_chat(source, case) for name, case in CASES.items()}
    text = json.dumps({"versions": versions, "tokens": TOKENS, "cases": CASES, "chats": chats}, ensure_ascii=False,
                      indent=1)
    (FOLDER / "chats.json").write_text(text + "\n")
    print(len(done), "snippets,", len(chats), "chat templates with", len(CASES), "requests each")


if __name__ == "__main__":
    main()
