"""What the window says with a count in it is right for one, too, and in languages with more forms than English."""

from __future__ import annotations

from plurals import agreeing, calls, counted

#: Texts whose count is never 1, or none, each as it stands in the code.
NEVER_ONE = frozenset(
    {
        # Sizes of a context, and what does not fit into one.
        "Too long: {used} tokens plus at least {room} for an answer exceed the {size}-token context.",
        "A context of {count} tokens needs {more} more memory ({all} in total). The model will be loaded again.",
        "Load with {count} tokens",
        "The context is full: {size} tokens.",
        "Calculating memory for a context of {count} tokens…",
        "This model does not support a context of {count} tokens.",
        "{used} of {size} tokens",
        # Of all that a model has.
        "%n of {all} experts are in VRAM.",
        # Limits.
        "it is longer than {most} characters",
        "it has more than {most} lists of chats",
        "it contains {chats} chats; at most {most} can be imported at once",
        "a chat in it has more than {most} messages",
        "it has more than {most} presets",
        "you can have at most {most} presets",
        # Said of several only.
        "{cores} in {sockets} sockets",
        "{total} of {kind}, {count} channels, {free} free.",
        "RAM is split across {count} NUMA nodes, each close to some cores.",
        # Shares and ranges.
        "{share} of experts cached in VRAM",
        "{share} of the experts were not called in this run.",
        "{share} of the calls were served from VRAM.",
        "{range} tokens per second.",
        # No counts stand before these words.
        "Loading it unloads {model} and frees {freed}.",
        "{send} to send, {newline} for a new line",
        "{name} shares the system's RAM, so its memory is not counted as VRAM.",
    }
)


def test_texts_with_a_count_have_plural_forms() -> None:
    """A plural behind a hole reads wrong for 1, and its translation has one form only: what can be 1 is %n."""
    wrong, unused = [], set(NEVER_ONE)
    for where, call, text in calls(["app"], ["tr", "mark"]):
        unused.discard(text)
        keywords = {keyword.arg for keyword in call.keywords}
        if call.func.id == "tr" and ("%n" in text) != ("n" in keywords):  # type: ignore[attr-defined]
            wrong.append(f"{where}: %n and n= belong together: {text}")
        elif (words := counted(text) + agreeing(text)) and text not in NEVER_ONE:
            wrong.append(f"{where}: {' and '.join(words)}: {text}")
    assert not wrong, "\n".join(wrong)
    assert not unused


def test_a_new_one_would_be_found() -> None:
    assert counted("{count} tokens") == ["tokens"]
    assert counted("about {count:,} long messages in {place}") == ["messages"]
    assert counted("{name} is ready") == counted("{count} ms") == counted("%n tokens of {name}") == []
    assert agreeing("{free} are free") == agreeing("; {count} more are left") == ["are"]
    assert agreeing("{name} is ready") == []
