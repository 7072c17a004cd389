<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="en" sourcelanguage="en">
<context>
    <name>greenroom</name>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>Instead of the first %n messages, this summary is sent: {text}</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>The first %n messages are not sent: “{first}” to “{last}”.</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>Leave out the oldest %n messages</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
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
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>Importing: %n chats left</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>%n chats were imported</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>Exporting: %n chats left</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
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
