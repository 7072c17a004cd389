<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="en" sourcelanguage="en">
<context>
    <name>greenroom</name>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>Instead of the first %n messages, this summary is sent: {text}</source>
        <translation>
            <numerusform>Instead of the first message, this summary is sent: {text}</numerusform>
            <numerusform>Instead of the first %n messages, this summary is sent: {text}</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>The first %n messages are not sent: “{first}” to “{last}”.</source>
        <translation>
            <numerusform>The first message is not sent: “{first}” to “{last}”.</numerusform>
            <numerusform>The first %n messages are not sent: “{first}” to “{last}”.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>Leave out the oldest %n messages</source>
        <translation>
            <numerusform>Leave out the oldest message</numerusform>
            <numerusform>Leave out the oldest %n messages</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/card.py"/>
        <source>%n tokens written</source>
        <translation>
            <numerusform>%n token written</numerusform>
            <numerusform>%n tokens written</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/card.py"/>
        <source>%n tokens read, first token after {time}</source>
        <translation>
            <numerusform>%n token read, first token after {time}</numerusform>
            <numerusform>%n tokens read, first token after {time}</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/card.py"/>
        <source>%n tokens of context</source>
        <translation>
            <numerusform>%n token of context</numerusform>
            <numerusform>%n tokens of context</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/chips.py"/>
        <source>%n characters</source>
        <translation>
            <numerusform>%n character</numerusform>
            <numerusform>%n characters</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>Importing: %n chats left</source>
        <translation>
            <numerusform>Importing: %n chat left</numerusform>
            <numerusform>Importing: %n chats left</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>%n chats were imported</source>
        <translation>
            <numerusform>%n chat was imported</numerusform>
            <numerusform>%n chats were imported</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>Exporting: %n chats left</source>
        <translation>
            <numerusform>Exporting: %n chat left</numerusform>
            <numerusform>Exporting: %n chats left</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exporting.py"/>
        <source>%n chats</source>
        <translation>
            <numerusform>%n chat</numerusform>
            <numerusform>%n chats</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/figures.py"/>
        <location filename="../../app/chat/performance_chart.py"/>
        <source>%n tokens</source>
        <translation>
            <numerusform>%n token</numerusform>
            <numerusform>%n tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/figures.py"/>
        <source>Read %n tokens</source>
        <translation>
            <numerusform>Read %n token</numerusform>
            <numerusform>Read %n tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/figures.py"/>
        <source>Read %n tokens at {speed} tok/s</source>
        <translation>
            <numerusform>Read %n token at {speed} tok/s</numerusform>
            <numerusform>Read %n tokens at {speed} tok/s</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>%n cores</source>
        <translation>
            <numerusform>%n core</numerusform>
            <numerusform>%n cores</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>%n threads</source>
        <translation>
            <numerusform>%n thread</numerusform>
            <numerusform>%n threads</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>{speed} GB/s with %n threads</source>
        <translation>
            <numerusform>{speed} GB/s with %n thread</numerusform>
            <numerusform>{speed} GB/s with %n threads</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/shelf.py"/>
        <source>On Hugging Face · %n repositories</source>
        <translation>
            <numerusform>On Hugging Face · %n repository</numerusform>
            <numerusform>On Hugging Face · %n repositories</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/shelf.py"/>
        <source>On this PC · %n models</source>
        <translation>
            <numerusform>On this PC · %n model</numerusform>
            <numerusform>On this PC · %n models</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/survey.py"/>
        <source>%n downloads</source>
        <translation>
            <numerusform>%n download</numerusform>
            <numerusform>%n downloads</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/stage/replay_bar.py"/>
        <source>{done} of {whole} · %n tokens</source>
        <translation>
            <numerusform>{done} of {whole} · %n token</numerusform>
            <numerusform>{done} of {whole} · %n tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/stage/summary.py"/>
        <source>called %n times, {share} of its layer&apos;s calls</source>
        <translation>
            <numerusform>called once, {share} of its layer&apos;s calls</numerusform>
            <numerusform>called %n times, {share} of its layer&apos;s calls</numerusform>
        </translation>
    </message>
</context>
</TS>
