#!/usr/bin/env python3
"""Writes tests/fixtures/data/chats.json: chat templates with the texts that transformers renders from them.

    python3 -m venv target/peers && target/peers/bin/pip install transformers jinja2
    target/peers/bin/python tools/chat_fixtures.py

The templates are written for this test. They use what the templates of published models use: the turns of ChatML, Llama 2 and 3,
Mistral, Gemma, Phi and Qwen in style, tools, system messages, thoughts, and every expression whose meaning could differ.
tests/files/data/chat.rs compares our texts with them.
"""

import json
import pathlib

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "data" / "chats.json"

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "zebra_count",
            "description": "Count \"zebras\" <in> a herd & more: é ☃\n\t\u0007",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string", "enum": ["a", "b"]}, "at": {"type": "number", "default": 1.0}},
                "required": ["place"],
                "extra": [],
                "more": {},
                "none": None,
                "yes": True,
                "numbers": [0, -3, 1e16, 1.5e-7, 0.1, 123456789012345680.0, 1e22, 100.0, 12345678901234567890],
            },
        },
    },
    {"type": "function", "function": {"name": "add", "description": "", "parameters": {}}},
]

TEMPLATES = {
    "turns": """
{%- for message in messages -%}
    {{ '[' ~ message['role'] ~ ']\n' + message['content'] + '[end]' + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '[assistant]\n' }}
{%- endif -%}
""",
    "turns with whitespace of blocks": """{{ bos_token }}
{% for message in messages %}
    {% if loop.first and message.role != 'system' %}
      [system] default [end]
    {% endif %}
  {{- message.role }}: {{ message.content | trim }}
    {#- a comment -#}
  {%+ if true %} kept{% endif +%}

{% endfor %}
{% if add_generation_prompt %}
assistant:{% endif %}
""",
    "instructions": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set system = messages[0]['content'] -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set rest = messages -%}
    {%- set system = false -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('roles must be user and assistant in turn') -}}
    {%- endif -%}
    {%- if loop.index0 == 0 and system != false -%}
        {%- set content = '<<' + system + '>>\n\n' + message['content'] -%}
    {%- else -%}
        {%- set content = message['content'] -%}
    {%- endif -%}
    {%- if message['role'] == 'user' -%}
        {{- '(I) ' + content.strip() + ' (/I)' -}}
    {%- elif message['role'] == 'assistant' -%}
        {{- ' ' + content | trim + ' ' + eos_token -}}
    {%- endif -%}
{%- endfor -%}
""",
    "headers with tools": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{% set date_string = 'some day' %}{% else %}{% set date_string = 'no day' %}{% endif %}
{%- endif %}
{%- if not tools is defined %}{% set tools = none %}{% endif %}
{%- set ns = namespace(system='', found=false) %}
{%- if messages[0]['role'] == 'system' %}
    {%- set ns.system = messages[0]['content']|trim %}
    {%- set ns.found = true %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- '<head>system</head>\n\nToday: ' + date_string + '\n\n' }}
{%- if tools is not none %}
    {{- 'Tools:\n\n' }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- '\n\n' }}
    {%- endfor %}
{%- endif %}
{{- ns.system }}{{ '<end>' }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<head>' + message['role'] + '</head>\n\n' + message['content'] | trim + '<end>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception('one call at a time') }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<head>assistant</head>\n\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}{{ '}<end>' }}
    {%- else %}
        {{- '<head>tool</head>\n\n' }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- '<end>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<head>assistant</head>\n\n' }}{% endif %}
""",
    "thoughts": """
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not (message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</t>' in content %}
            {%- set thought = content.split('</t>')[0].rstrip('\n').split('<t>')[-1].lstrip('\n') %}
            {%- set content = content.split('</t>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and thought)) %}
            {{- '[a]\n<t>\n' + thought.strip('\n') + '\n</t>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '[a]\n' + content }}
        {%- endif %}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{ '[u]' }}{% endif %}
        {{- '\n<r>\n' }}{{- content }}{{- '\n</r>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{ '[e]\n' }}{% endif %}
    {%- else %}
        {{- '[' + message.role[0] + ']' + content + '[e]' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[a]\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{ '<t>\n\n</t>\n\n' }}{% endif %}
{%- endif %}
""",
    "macros": """
{%- macro describe(type, depth=0) -%}
    {%- if type is mapping -%}
        {%- for name, value in type|items -%}
            {{- '\n' + '  ' * depth + name + ':' -}}{{- describe(value, depth + 1) -}}
        {%- endfor -%}
    {%- elif type is sequence and type is not string -%}
        {%- for item in type -%}
            {{- describe(item, depth) -}}{%- if not loop.last -%}{{- ' | ' -}}{%- endif -%}
        {%- endfor -%}
    {%- elif type is boolean -%}{{- 'flag ' ~ type -}}
    {%- elif type is none -%}nothing
    {%- elif type is number -%}{{- 'number' -}}
    {%- else -%}{{- type|upper -}}
    {%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] -%}{{- describe(tool.function.parameters) -}}{%- endfor -%}
{%- macro wrap(name) -%}<{{ name }}>{{ caller() }}</{{ name }}>{%- endmacro -%}
{%- call wrap('x') -%}inside{%- endcall -%}
{%- filter upper -%}filtered {{ messages[0].content }}{%- endfilter -%}
{%- set block -%}a block of {{ messages|length }}{%- endset -%}
{{- block|length }} {{ block -}}
""",
    "parts": """
{%- for message in messages -%}
    {{- '<turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' -}}
    {%- if message['content'] is string -%}
        {{- message['content'] | trim -}}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{- '<image>' -}}
            {%- elif item['type'] == 'text' -%}{{- item['text'] | trim -}}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{- raise_exception("content of " ~ message.role ~ " is invalid") -}}
    {%- endif -%}
    {{- '</turn>\n' -}}
{%- endfor -%}
""",
    "generation": """{% for message in messages %}{% if message.role == 'assistant' %}
A: {% generation %}{{ message.content }}{{ eos_token }}
{% endgeneration %}
{%- else %}
Q: {{ message.content }}
{% endif %}
{% endfor %}{%- generation -%} x {%- endgeneration -%}""",
    "expressions": """
{{ none }} {{ true }} {{ false }} {{ 1 }} {{ 1.0 }} {{ 1.5 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ 2 ** 5 }}
{{ [1, 'a', none, true, 2.0, "it's"] }} {{ {'a': 1, 'b': [none]} }} {{ (1, 'x') }} {{ "quote\\"d" }} {{ undefined_name }}|
{{ 'a' ~ 1 ~ none ~ true ~ 1.0 }} {{ 'ab' * 3 }} {{ [1] + [2] }} {{ 'b' in 'abc' }} {{ 1 in [1, 2] }} {{ 'k' in {'k': 1} }} {{ 1 < 2 }}
{{ 'Hello'[1:3] }} {{ 'Hello'[-1] }} {{ 'Hello'[::-1] }} {{ [1, 2, 3][1:] }} {{ [1, 2, 3][::2] }} {{ [1, 2, 3][:-1] }}
{{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'a,b,,c'.split(',') }}|{{ 'a b  c'.split() }}|{{ 'a-b-c'.split('-', 1) }}|{{ 'abc'.replace('b', 'd') }}
{{ 'abc'.upper() }} {{ 'ABC'.lower() }} {{ 'a b'.title() }} {{ 'abc'.capitalize() }} {{ 'abc'.find('c') }} {{ 'abcb'.count('b') }}
{{ 'a.b'.removeprefix('a.') }} {{ 'a.b'.removesuffix('.b') }} {{ 'x\ny'.splitlines() }} {{ '12'.isdigit() }} {{ ','.join(['a', 'b']) }}
{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 'c') }} {{ {'a': 1, 'b': 2}.keys()|list }} {{ {'a': 1}.items()|list }} {{ {'a': 1}.values()|list }}
{{ [3, 1, 2]|sort }} {{ [3, 1, 2]|first }} {{ [3, 1, 2]|last }} {{ [1, 2]|sum }} {{ ['a', 'b']|join(', ') }} {{ [1, 1, 2]|unique|list }} {{ 'abc'|length }} {{ [1, 2]|reverse|list }}
{{ '3'|int + 1 }} {{ 'x'|default('y') }} {{ missing|default('y') }} {{ ''|default('y', true) }} {{ 3|string + 'a' }} {{ 'abc'|list }} {{ 3.7|int }} {{ 2.345|round(1) }} {{ -3|abs }}
{{ messages|map(attribute='role')|list }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ messages|rejectattr('role', 'equalto', 'user')|map(attribute='content')|join('/') }}
{{ [1, 2, 3]|select('odd')|list }} {{ ['b', 'A', 'c']|sort }} {{ {'b': 1, 'a': 2}|dictsort }} {{ 'a b'|replace(' ', '_') }} {{ '<b>'|e }} {{ 'text'|indent(2, true) }} {{ 'abc'|batch(2)|list }}
{{ 1 is number }} {{ 'a' is string }} {{ none is none }} {{ x is undefined }} {{ [] is iterable }} {{ {} is mapping }} {{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ true is true }} {{ 1 is integer }} {{ 1.5 is float }} {{ [] is sequence }} {{ 'a' is in ['a'] }}
{{ 'yes' if messages else 'no' }} {{ 'only' if false }}| {{ not true }} {{ 1 and 0 }} {{ 0 or 'x' }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ range(3)|list }} {{ range(1, 6, 2)|list }}
{% for i in range(6) if i != 2 %}{% if i == 4 %}{% break %}{% endif %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{{ loop.index }}{{ loop.revindex }}{{ loop.length }}{% else %}none{% endfor %}
{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}{% for c in 'ab' %}{{ loop.cycle('1', '2') }}{% endfor %}
{% set x, y = 1, 2 %}{{ x }}{{ y }}{% for i in [1] %}{% set x = 5 %}{% endfor %}{{ x }} {% with z = 3 %}{{ z }}{% endwith %}{{ z }}|{% raw %}{{ raw }}{% endraw %}
{{ {'z': 1, 'a': [1, {'é': '☃\n"\\\\'}], 'f': 1.0, 'e': {}} | tojson }} {{ {'z': 1, 'a': '☃'} | tojson(ensure_ascii=True, sort_keys=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ {1: none, 'b': [[], [1]]} | tojson(indent=2) }}
{{ "%s and %d" | format('a', 3) }} {{ dict(a=1)['a'] }} {{ "{} {}".format('a', 1) }} {{ 'a\tb\u00e9' }} {{ 1e3 }} {{ 10000000000000000 }} {{ messages[5] }}| {{ messages[0].nothing }}|
""",
    "raises for an unknown role": """{% for message in messages %}{% if message.role not in ['user', 'assistant'] %}{{ raise_exception('unknown role: ' + message.role) }}{% endif %}{{ message.content }}{% endfor %}""",
    "attribute of an undefined": "{{ messages[9].role.name }}",
    "adds a number to a text": "{{ 'a' + 1 }}",
    "calls what is no function": "{{ messages() }}",
    "unknown filter": "{{ messages | nofilter }}",
    "unclosed": "{% for message in messages %}{{ message.content }}",
    "json of an undefined": "{{ nothing | tojson }}",
}

SIMPLE = [{"role": "user", "content": " Hello, <b>world</b>! "}]
CHATS = {
    "simple": SIMPLE,
    "system": [{"role": "system", "content": "Be brief.\n"}, *SIMPLE],
    "long": [
        {"role": "system", "content": "Be 'brief'."},
        {"role": "user", "content": "One\n"},
        {"role": "assistant", "content": "<t>\nsome thought\n</t>\n\n Two "},
        {"role": "user", "content": "☃ {{ not a template }}"},
        {"role": "assistant", "content": "Four"},
    ],
    "twice": [*SIMPLE, *SIMPLE],
    "tools": [
        {"role": "user", "content": "How many?"},
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "zebra_count", "arguments": {"place": "é", "at": 2.0, "any": [None, True]}}}]},
        {"role": "tool", "content": {"count": 3, "at": "b"}},
        {"role": "assistant", "content": "3", "reasoning_content": "It is\nthree."},
    ],
    "parts": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What? "}]}, {"role": "assistant", "content": "That."}],
    "number": [{"role": "user", "content": 3}],
    "empty": [],
}


def cases():
    for name, template in TEMPLATES.items():
        for chat, messages in CHATS.items():
            for options in [
                {"add_generation_prompt": True},
                {"add_generation_prompt": False},
                {"add_generation_prompt": True, "tools": TOOLS, "enable_thinking": False, "date_string": "1 Jan"},
                {"continue_final_message": True},
            ]:
                # These say the same for every conversation.
                if name == "expressions" and chat != "long":
                    continue
                case = {"template": name, "chat": chat, "options": options}
                try:
                    texts, _ = render_jinja_template([messages], chat_template=template, **TOKENS, **options)
                    case["text"] = texts[0]
                except Exception as error:
                    raised = type(error).__name__ == "TemplateError"
                    case["error"] = str(error) if raised else None
                yield case


def main():
    # Texts that transformers makes of its own fields would be others.
    made = list(cases())
    used = {case["template"] for case in made if "text" in case}
    print(len(made), "cases,", sum("error" in case for case in made), "errors; never rendered:", sorted(set(TEMPLATES) - used))
    out = {"transformers": transformers.__version__, "tokens": TOKENS, "tools": TOOLS, "templates": TEMPLATES, "chats": CHATS}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in out.items())
    rows = ",\n".join(json.dumps(case) for case in made)
    FILE.write_text("{\n" + lines + ',\n"cases": [\n' + rows + "\n]\n}\n")


if __name__ == "__main__":
    main()
