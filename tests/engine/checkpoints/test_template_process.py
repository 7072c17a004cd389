"""Templates that try to get out, or to take all time and memory, and children that answer nonsense."""

from __future__ import annotations

import contextlib
import gc
import random
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import psutil
import pytest
from fuzzing import Fuzzer

from engine.checkpoints import template_process
from engine.checkpoints.chat_template import ChatTemplate
from engine.checkpoints.template_child import environment
from engine.errors import GreenroomError

HI = [{"role": "user", "content": "Hi"}]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes for ever is ended soon."""
    monkeypatch.setattr(template_process, "CPU_SECONDS", 0.25)


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
    "{{ messages[0].__class__.__base__.__subclasses__() }}",
    "{{ ('' | attr)('__class__') }}",
    "{{ '%(a.__class__)s' % {'a': 1} }}",
    "{{ '{a.__init__.__globals__}'.format_map({'a': joiner}) }}",
    "{{ messages | map(attribute='__class__') | list | string | replace('[Undefined]', '') }}",
    "{{ (messages | groupby('__class__'))[0].__class__ }}",
    "{{ strftime_now.__globals__ }}",
    "{{ lipsum.__globals__['os'].system('true') }}",
    "{{ raise_exception.__code__ }}",
    "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}",
    "{{ (range | attr('__self__')) }}",
    "{{ messages.clear() }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{{ dict.mro() }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
]

#: Sixty times the same, on what came out before.
CHAIN = "{{% set ns = namespace(x='x') %}}{{% for i in range(60) %}}{{% set ns.x = {} %}}{{% endfor %}}{{{{ ns.x }}}}"
DEEP = (
    "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
)

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
    "round": "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "round in dead code": "{% if false %}{{ 1.5 | round(999999999, 'ceil') }}{% endif %}"
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "many calls": "{% macro f() %}{% endmacro %}{% for i in range(99999) %}" + "{{ f() }}" * 20 + "{% endfor %}",
    "chained indent": CHAIN.format("('a\n' * 5000 ~ ns.x) | indent(5000)"),
    "chained wordwrap": CHAIN.format("('x ' * 9999) | wordwrap(1, wrapstring=ns.x ~ 'y' * 999)"),
    "chained format": CHAIN.format("'%s%s%s' | format(ns.x, ns.x, ns.x)"),
    "chained expandtabs": CHAIN.format("(ns.x ~ '\t' * 999).expandtabs(9999).replace(' ', '\t')"),
    "chained translate": CHAIN.format("ns.x.translate({120: 'x' * 9999})"),
    "chained tojson": CHAIN.format("ns.x | tojson | tojson"),
    "chained bytes": CHAIN.format("ns.x.encode().replace('x'.encode(), ('x' * 99).encode()).decode()"),
    "bytes": "{{ 'x'.encode().ljust(10 ** 10) }}",
    "zeroed bytes": "{{ '1'.encode().zfill(10 ** 10) }}",
    "to bytes": "{{ (1).to_bytes(10 ** 10, 'little') }}",
    "sum of lists": "{{ ([[1] * 1000] * 99999) | sum(start=[]) | length }}",
    "sum of texts": CHAIN.format("([ns.x ~ 'y' * 99999] * 100) | join"),
    "compared lists": DEEP + "{{ ns.x == ns.y }}",
    "ordered lists": DEEP + "{{ [ns.x, ns.y] | sort | length }}",
    "unlike lists": DEEP + "{{ ns.x in [ns.y] }}",
    "printed lists": DEEP + "{{ ns.x | pprint }}",
    "unique letters": "{% set x = ('%s' * 99999) %}{{ range(99999) | map('string') | map('center', 9999) | join }}",
    "placeholder text": "{% for i in range(9999) %}{% set x = lipsum(n=99999) %}{% endfor %}",
    "links": "{{ ('http://a.b/' * 99999) | urlize | wordcount }}{{ ('(' * 999999) | urlize }}"
    "{% for i in range(99999) %}{{ ('(' * 999999) | urlize | length }}{% endfor %}",
    "too long a text": "{% for i in range(1700) %}{{ 'x' * 10000 }}{% endfor %}",
    "assertion": "{{ ('x' * 99) | truncate(1) }}",
    "look-up": "{{ 'x'.encode('nothing') }}",
    "unknown encoding": "{{ 'x'.encode('idna2000') }}",
    "overflow": "{{ 'x' * 10 ** 30 }}",
    "letter": "{{ '%c' % -1 }}",
    "undecodable": "{{ '\ud800'.encode() }}",
    "long number": "{{ 10 ** 5000 }}",
    "cycler": "{{ cycler() }}",
    "no member": "{{ ({} | dictsort(by='nothing')) }}",
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


#: What Jinja's and Python's parsers and compilers make of these is their affair, as long as we go on.
TANGLES = {
    "brackets": "{{ " + "(" * 50_000,
    "lists": "{{ " + "[" * 5_000 + "]" * 5_000 + " }}",
    "minus": "{{ " + "-" * 100_000 + "1 }}",
    "not": "{{ " + "not " * 50_000 + "1 }}",
    "plus": "{{ 1" + "+1" * 100_000 + " }}",
    "members": "{{ a" + ".b" * 100_000 + " }}",
    "filters": "{{ a" + "|e" * 100_000 + " }}",
    "choices": "{{ " + "1 if a else " * 20_000 + "1 }}",
    "blocks": "{% if a %}" * 3_000 + "{% endif %}" * 3_000,
    "loops": "{% for a in b %}" * 300 + "{% endfor %}" * 300,
    "elif": "{% if a %}" + "{% elif a %}" * 50_000 + "{% endif %}",
    "macros": "{% macro m() %}{% endmacro %}" * 30_000,
    "powers": "{{ 9" + "**9" * 200 + " }}",
    "folded": "{% if false %}{{ 'x' * 9999999999 }}{{ 9 ** 9 ** 9 ** 9 }}{% endif %}",
    "calls": "{% call " * 5_000,
}


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_stopped_in_little_memory_of_ours(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(GreenroomError):
            ChatTemplate(BOMBS[name]).render(HI)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("name", TANGLES)
def test_the_compiler_may_fail_but_not_take_us_along(name: str) -> None:
    try:
        text = ChatTemplate(TANGLES[name]).render(HI)
    except GreenroomError:
        return
    assert len(text) < 1000


@pytest.mark.usefixtures("hurried")
def test_after_a_limit_was_hit_the_same_template_goes_on() -> None:
    template = ChatTemplate(
        "{% if messages | length > 1 %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
        "{% endif %}{% if messages | length > 2 %}{{ 'x' * 10 ** 10 }}{% endif %}fine"
    )
    assert template.render(HI) == "fine"
    with pytest.raises(GreenroomError, match="does not come to an end"):
        template.render(HI * 2)
    assert template.render(HI) == "fine"


def test_memory_that_is_not_there_is_said_and_the_next_prompt_is_written() -> None:
    template = ChatTemplate("{% if messages | length > 1 %}{{ 'x' * 10 ** 9 }}{% endif %}fine")
    with pytest.raises(GreenroomError, match="too much memory"):
        template.render(HI * 2)
    assert template.render(HI) == "fine"


@pytest.mark.usefixtures("hurried")
def test_time_that_a_rendering_took_is_not_missing_in_the_next() -> None:
    template = ChatTemplate("{% for i in range(90000) %}{% set a = i * i %}{% endfor %}done")
    for _ in range(20):
        assert template.render([]) == "done"


@pytest.mark.usefixtures("hurried")
def test_a_template_that_never_ends_is_asked_about_thinking_once() -> None:
    source = "{% if enable_thinking is defined or reasoning_effort is defined %}{% for a in range(99999) %}"
    source += "{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
    started = time.process_time()
    assert ChatTemplate(source).thinking == ()
    assert time.process_time() - started < 5


@linux_only
def test_the_child_opens_nothing_and_knows_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy:1")
    template = ChatTemplate("fine")
    child = child_of(template)
    limits = Path(f"/proc/{child.pid}/limits").read_text()
    assert limit(limits, "Max open files") == "0"
    assert limit(limits, "Max processes") == "0"
    assert limit(limits, "Max file size") == "0"
    assert limit(limits, "Max address space") == str(template_process.MEMORY)
    assert b"secret" not in Path(f"/proc/{child.pid}/environ").read_bytes()


def limit(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(name))[len(name) :].split()[0]


def child_of(template: ChatTemplate) -> subprocess.Popen[bytes]:
    process = template._process._process
    assert process is not None
    return process


def test_the_child_goes_with_its_template() -> None:
    template = ChatTemplate("fine")
    pid = child_of(template).pid
    assert psutil.pid_exists(pid)
    del template
    gc.collect()
    assert not psutil.pid_exists(pid)


def test_the_child_goes_when_we_are_killed() -> None:
    code = (
        "import sys, time\n"
        "from engine.checkpoints.chat_template import ChatTemplate\n"
        "template = ChatTemplate('fine')\n"
        "print(template._process._process.pid, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        child = psutil.Process(pid)
        program.kill()
    child.wait(timeout=20)


def test_renderings_of_several_threads_wait_for_each_other() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    wrong: list[str] = []

    def ask(name: str) -> None:
        for _ in range(50):
            text = template.render([{"role": "user", "content": name}])
            if text != name:
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(str(i) * 1000,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_every_filter_works_where_no_file_can_be_opened() -> None:
    """Some are imported by Jinja only when they are used."""
    made, sources = environment(), []
    for value in ("'ab cd'", "[3, 1]", "2.5", "{'a': 1}"):
        for name in sorted(set(made.filters) - {"random"}):
            source = f"{{{{ {value} | {name} }}}}"
            with contextlib.suppress(Exception):
                if " at 0x" not in made.from_string(source).render():
                    sources.append(source)
    assert len(sources) > 80
    everything = "|".join(sources)
    assert ChatTemplate(everything).render([]) == made.from_string(everything).render()


def test_signs_can_be_named_where_no_file_can_be_opened() -> None:
    assert ChatTemplate(r"{{ '\N{BULLET} a' }}").render([]) == "• a"


NONSENSE = {
    "nothing": "",
    "half a length": "out.write(b'abc')",
    "an endless answer": "out.write((1 << 50).to_bytes(8, 'little') + b'x' * 1000)",
    "no JSON": "out.write((3).to_bytes(8, 'little') + b'abc')",
    "deep JSON": "out.write((200000).to_bytes(8, 'little') + b'[' * 200000)",
    "half an answer": "out.write((300).to_bytes(8, 'little') + b'{')",
    "a list": "out.write((2).to_bytes(8, 'little') + b'[]')",
    "no text": "out.write((10).to_bytes(8, 'little') + b'{\"text\":1}')",
    "an unknown failure": "out.write((14).to_bytes(8, 'little') + b'{\"failed\":[1]}')",
    "silence": "import time; time.sleep(60)",
    "a crash": "import os; os.abort()",
}


@pytest.mark.parametrize("name", NONSENSE)
def test_a_child_that_answers_nonsense_is_ended(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"import sys; out = sys.stdout.buffer; {NONSENSE[name]}"
    monkeypatch.setattr(template_process, "command", lambda child: [sys.executable, "-c", code])
    if name == "silence":
        monkeypatch.setattr(template_process, "SECONDS", 0.3)
        monkeypatch.setattr(template_process, "START_SECONDS", 0.0)
    with pytest.raises(GreenroomError, match="chat template cannot be used"):
        ChatTemplate("fine")


def test_a_child_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_process, "command", lambda child: ["/nowhere/greenroom"])
    with pytest.raises(GreenroomError, match="could not be started"):
        ChatTemplate("fine")


def test_where_the_system_limits_no_memory_we_look_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(template_process, "MEMORY", 1)
    with pytest.raises(GreenroomError, match="too much memory"):
        template.render(HI)


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


HOSTILE = ("x", "'x'", "'a\n' * 999", "99999", "10 ** 9", "-1", "0.5", "[]", "[x]", "[x, x]", "{'a': x}", "messages",
           "none", "true", "ns", "namespace(a=x)", "x.encode()", "'%9999s'", "range(99999)", "loop", "cycler(1, x)",
           "undefined", "'\\ud800'", "'{:9999}'", "joiner()", "1e308", "lipsum()")  # fmt: skip
METHODS = ("center", "ljust", "zfill", "replace", "join", "split", "format", "format_map", "expandtabs", "translate",
           "encode", "decode", "upper", "count", "find", "partition", "items", "keys", "index", "strip", "splitlines",
           "hex", "to_bytes", "conjugate", "as_integer_ratio", "next", "maketrans", "__class__", "mro")  # fmt: skip
OPERATORS = ("+", "*", "**", "%", "~", "//", "/", "-", "==", "<", "in", "and", "or")


class Grammar:
    """Templates that are nearly always valid Jinja, and seldom kind."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._filters = sorted(environment().filters)
        self._tests = sorted(environment().tests)

    def template(self) -> str:
        body = "".join(self._statement(3) for _ in range(self._rng.randint(1, 6)))
        return f"{{% set ns = namespace(x='x') %}}{{% set x = 'x' %}}{body}"

    def _statement(self, depth: int) -> str:
        rng = self._rng
        inner = "".join(self._statement(depth - 1) for _ in range(rng.randint(1, 3))) if depth else "{{ x }}"
        return rng.choice(
            (
                lambda: f"{{{{ {self._value(3)} }}}}",
                lambda: f"{{% set x = {self._value(3)} %}}",
                lambda: f"{{% set ns.x = {self._value(3)} %}}",
                lambda: f"{{% for x in {self._value(2)} %}}{inner}{{% endfor %}}",
                lambda: f"{{% for i in range({rng.choice((3, 60, 99999))}) %}}{inner}{{% endfor %}}",
                lambda: f"{{% if {self._value(2)} %}}{inner}{{% else %}}{inner}{{% endif %}}",
                lambda: f"{{% macro m(x) %}}{inner}{{% endmacro %}}{{{{ m({self._value(2)}) }}}}",
                lambda: f"{{% set x %}}{inner}{{% endset %}}",
                lambda: f"{{% filter {rng.choice(self._filters)} %}}{inner}{{% endfilter %}}",
                lambda: f"{{% generation %}}{inner}{{% endgeneration %}}",
                lambda: f"{{% with x = {self._value(2)} %}}{inner}{{% endwith %}}",
            )
        )()

    def _value(self, depth: int) -> str:
        rng = self._rng
        if not depth:
            return rng.choice(HOSTILE)
        one, other = self._value(depth - 1), self._value(depth - 1)
        return rng.choice(
            (
                lambda: rng.choice(HOSTILE),
                lambda: f"({one} {rng.choice(OPERATORS)} {other})",
                lambda: f"({one} | {rng.choice(self._filters)})",
                lambda: f"({one} | {rng.choice(self._filters)}({other}))",
                lambda: f"({one}).{rng.choice(METHODS)}({other})",
                lambda: f"({one}).{rng.choice(METHODS)}",
                lambda: f"({one})[{other}]",
                lambda: f"({one} is {rng.choice(self._tests)})",
                lambda: f"[{one}, {other}]",
                lambda: f"({one} if {other} else x)",
            )
        )()


def test_templates_of_a_hostile_grammar_end_in_a_text_or_a_sentence(
    fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_process, "CPU_SECONDS", 0.2)
    for rng in fuzzer.rounds():
        # Several in one, of which each rendering picks one: starting a child takes longer than most renderings.
        grammar = Grammar(rng)
        source = "".join(f"{{% if n == {i} %}}{grammar.template()}{{% endif %}}" for i in range(8))
        with contextlib.suppress(GreenroomError):
            template = ChatTemplate(source)
            for i in range(8):
                with contextlib.suppress(GreenroomError):
                    assert len(template.render(HI, n=i)) <= template_process.LONGEST
