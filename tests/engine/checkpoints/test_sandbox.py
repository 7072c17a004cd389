"""Templates that try to get out, or to take all time and memory."""

from __future__ import annotations

import tracemalloc

import pytest

from engine.checkpoints.chat_template import ChatTemplate
from engine.errors import GreenroomError

ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ raise_exception.__globals__ }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ self.__init__.__globals__ }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ messages.clear() }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{{ namespace(__init__=1) }}",
    "{{ dict.mro() }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
]

BOMBS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops over text": "{% set x = 'a' * 5000 %}"
    "{% for a in x %}{% for b in x %}{% for c in x %}{% endfor %}{% endfor %}{% endfor %}",
    "filtered loops": "{% for a in range(9999) %}{% for b in range(9999) if b < 0 %}{% endfor %}{% endfor %}",
    "long range": "{% for a in range(10 ** 12) %}{% endfor %}",
    "endless output": "{% for a in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "two-way recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursive loop": "{% for a in [[1]] recursive %}{{ loop([a, a]) }}{% endfor %}",
    "times": "{{ 'x' * 10 ** 10 }}",
    "times from the left": "{{ 10 ** 10 * 'x' }}",
    "list times": "{{ ([1] * 10 ** 9) | length }}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "products": "{% set ns = namespace(x=99) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "doubling +": "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "doubling ~": "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "doubling list": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "doubling set": "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}"
    "{% set ns.x = y %}{% endfor %}",
    "doubling macro": "{% macro t(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='x') %}"
    "{% for i in range(60) %}{% set ns.x = t(ns.x) %}{% endfor %}",
    "doubling replace": "{% set ns = namespace(x='xx') %}{% for i in range(60) %}"
    "{% set ns.x = ns.x | replace('x', 'xx') %}{% endfor %}",
    "doubling method": "{% set ns = namespace(x='xx') %}{% for i in range(60) %}"
    "{% set ns.x = ns.x.replace('x', 'xx') %}{% endfor %}",
    "empty replace": "{% set x = 'x' * 900000 %}{{ x.replace('', x) }}",
    "join": "{{ range(99999) | join('x' * 900000) }}",
    "join method": "{{ ('x' * 900000).join(['a'] * 900000) }}",
    "nested lists": "{% set ns = namespace(x=[1]) %}"
    "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "nested JSON": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
    "{{ ns.x | tojson }}",
    "nested text": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
    "{{ (ns.x | string) | length }}",
    "nested ~": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
    "{{ (ns.x ~ '') | length }}",
    "nested %": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
    "{{ ('%s' % [ns.x]) | length }}",
    "center": "{{ 'x' | center(10 ** 9) }}",
    "center method": "{{ 'x'.center(1000000000) }}",
    "constant center": "{{ 'x' | center(1000000000) }}",
    "named width": "{{ 'x' | center(width=1000000000) }}",
    "zfill": "{{ '1'.zfill(1000000000) }}",
    "tabs": "{{ '\t'.expandtabs(1000000000) }}",
    "indent": "{{ 'a\nb' | indent(1000000000) }}",
    "JSON indent": "{{ [1] | tojson(indent=1000000000) }}",
    "batch": "{{ [1] | batch(1000000000, 0) | list | length }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "nested width": "{{ '{:{}}'.format(1, 1000000000) }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "star width": "{{ '%*d' % (1000000000, 1) }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "time format": "{{ strftime_now('%1000000000d') }}",
    "many calls": "{% macro f() %}{% endmacro %}{% for i in range(99999) %}" + "{{ f() }}" * 20 + "{% endfor %}",
}


@pytest.mark.parametrize("source", ESCAPES)
def test_a_template_stays_inside(source: str) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    try:
        text = ChatTemplate(source).render(messages)
    except GreenroomError:
        return
    # What the sandbox hides is undefined and prints as nothing.
    assert text == ""
    assert messages == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_stopped_in_little_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(GreenroomError):
            ChatTemplate(BOMBS[name]).render([{"role": "user", "content": "Hi"}])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 256 << 20


def test_a_rendering_does_not_use_up_the_next_ones_budget() -> None:
    template = ChatTemplate("{% for i in range(60000) %}{% endfor %}done")
    for _ in range(20):
        assert template.render([]) == "done"


def test_long_conversations_are_fine() -> None:
    text = "word " * 200_000
    template = ChatTemplate("{% for m in messages %}{{ '<' ~ m.role ~ '>' + m.content | trim }}{% endfor %}")
    messages = [{"role": "user", "content": text}] * 10
    assert len(template.render(messages)) == 10 * (len(text) - 1 + len("<user>"))


def test_loop_helpers_work_through_the_counter() -> None:
    source = (
        "{% for x in items %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{{ loop.nextitem }} {% else %}"
        "none{% endfor %}|{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}"
        "|{% for x in nothing %}{% else %}empty{% endfor %}"
        "|{% for x in [[1, [2]]] recursive %}{{ loop(x) if x is not number else x }}{% endfor %}"
    )
    assert ChatTemplate(source).render([], items=["p", "q"]) == "1/2,q 2/2 |a1|empty|12"


def test_methods_of_texts_work_in_loops_that_set_something() -> None:
    """Jinja then hands every call the loop's own variables too."""
    source = """{% for m in messages %}{% set c = m.content.replace('a', 'b') %}
    {{- c.replace('b', 'c') }}|{{ '-'.join(['x', c]) }}|{{ c.center(5) }}{% endfor %}"""
    assert ChatTemplate(source).render([{"role": "user", "content": "aXa"}]) == "cXc|x-bXb| bXb "
