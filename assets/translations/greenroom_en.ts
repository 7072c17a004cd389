<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="en" sourcelanguage="en">
<context>
    <name>greenroom</name>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>A summary is sent instead of the first %n messages: {text}</source>
        <translation>
            <numerusform>A summary is sent instead of the first message: {text}</numerusform>
            <numerusform>A summary is sent instead of the first %n messages: {text}</numerusform>
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
        <location filename="../../app/chat/advice.py"/>
        <source>{name} has %n tokens</source>
        <translation>
            <numerusform>{name} has %n token</numerusform>
            <numerusform>{name} has %n tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>{file}, but only %n are free in this chat.</source>
        <translation>
            <numerusform>{file}, but only %n is free in this chat.</numerusform>
            <numerusform>{file}, but only %n are free in this chat.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/composing/chips.py"/>
        <source>%n characters</source>
        <translation>
            <numerusform>%n character</numerusform>
            <numerusform>%n characters</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/composing/chips.py"/>
        <location filename="../../app/chat/speed/figures.py"/>
        <location filename="../../app/chat/speed/performance_chart.py"/>
        <location filename="../../engine/placement/explain.py"/>
        <source>%n tokens</source>
        <translation>
            <numerusform>%n token</numerusform>
            <numerusform>%n tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>and %n more</source>
        <translation>
            <numerusform>and %n more</numerusform>
            <numerusform>and %n more</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>%n files were not imported</source>
        <translation>
            <numerusform>%n file was not imported</numerusform>
            <numerusform>%n files were not imported</numerusform>
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
        <location filename="../../app/chat/options_opener.py"/>
        <source>%n presets were imported</source>
        <translation>
            <numerusform>%n preset was imported</numerusform>
            <numerusform>%n presets were imported</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/card.py"/>
        <source>%n tokens written</source>
        <translation>
            <numerusform>%n token written</numerusform>
            <numerusform>%n tokens written</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/card.py"/>
        <source>%n tokens read, first token after {time}</source>
        <translation>
            <numerusform>%n token read, first token after {time}</numerusform>
            <numerusform>%n tokens read, first token after {time}</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/card.py"/>
        <source>%n tokens of context</source>
        <translation>
            <numerusform>%n token of context</numerusform>
            <numerusform>%n tokens of context</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <location filename="../../engine/executors/loading.py"/>
        <location filename="../../engine/placement/token_time.py"/>
        <source>%n threads</source>
        <translation>
            <numerusform>%n thread</numerusform>
            <numerusform>%n threads</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <source>%n cores</source>
        <translation>
            <numerusform>%n core</numerusform>
            <numerusform>%n cores</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/figures.py"/>
        <source>Read %n tokens</source>
        <translation>
            <numerusform>Read %n token</numerusform>
            <numerusform>Read %n tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/figures.py"/>
        <source>Read %n tokens at {speed} tok/s</source>
        <translation>
            <numerusform>Read %n token at {speed} tok/s</numerusform>
            <numerusform>Read %n tokens at {speed} tok/s</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/figures.py"/>
        <source>; %n more were cached</source>
        <translation>
            <numerusform>; %n more was cached</numerusform>
            <numerusform>; %n more were cached</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/performance_chart.py"/>
        <source>%n steps: median {median} ms per token, fastest {least} ms, slowest {most} ms.</source>
        <translation>
            <numerusform>%n step: median {median} ms per token, fastest {least} ms, slowest {most} ms.</numerusform>
            <numerusform>%n steps: median {median} ms per token, fastest {least} ms, slowest {most} ms.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/storage/exporting.py"/>
        <source>%n chats</source>
        <translation>
            <numerusform>%n chat</numerusform>
            <numerusform>%n chats</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/compare/dialog.py"/>
        <source>%n years</source>
        <translation>
            <numerusform>%n year</numerusform>
            <numerusform>%n years</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/compare/dialog.py"/>
        <source>%n hours a day</source>
        <translation>
            <numerusform>%n hour a day</numerusform>
            <numerusform>%n hours a day</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>%n fast cores</source>
        <translation>
            <numerusform>%n fast core</numerusform>
            <numerusform>%n fast cores</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>%n slower cores</source>
        <translation>
            <numerusform>%n slower core</numerusform>
            <numerusform>%n slower cores</numerusform>
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
        <location filename="../../app/models/details.py"/>
        <source>up to %n tokens</source>
        <translation>
            <numerusform>up to %n token</numerusform>
            <numerusform>up to %n tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/details.py"/>
        <source>%n files, {detail}</source>
        <translation>
            <numerusform>%n file, {detail}</numerusform>
            <numerusform>%n files, {detail}</numerusform>
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
        <location filename="../../app/stage/panel.py"/>
        <location filename="../../app/stage/summary.py"/>
        <location filename="../../engine/placement/explain.py"/>
        <source>%n layers</source>
        <translation>
            <numerusform>%n layer</numerusform>
            <numerusform>%n layers</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/stage/panel.py"/>
        <location filename="../../app/stage/summary.py"/>
        <source>%n experts</source>
        <translation>
            <numerusform>%n expert</numerusform>
            <numerusform>%n experts</numerusform>
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
    <message numerus="yes">
        <location filename="../../app/stage/summary.py"/>
        <source>%n of {all} experts are in VRAM.</source>
        <translation>
            <numerusform>%n of {all} experts is in VRAM.</numerusform>
            <numerusform>%n of {all} experts are in VRAM.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/checkpoints/assembly.py"/>
        <source>does not put %n columns into every group</source>
        <translation>
            <numerusform>does not put %n column into every group</numerusform>
            <numerusform>does not put %n columns into every group</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>%n of its parts are missing: {listed}</source>
        <translation>
            <numerusform>%n of its parts is missing: {listed}</numerusform>
            <numerusform>%n of its parts are missing: {listed}</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>has %n columns in groups of {group}, which are no multiples of {value}</source>
        <translation>
            <numerusform>has %n column in groups of {group}, which is no multiple of {value}</numerusform>
            <numerusform>has %n columns in groups of {group}, which are no multiples of {value}</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>tensor {name} of shape {shape} does not fill its %n bytes</source>
        <translation>
            <numerusform>tensor {name} of shape {shape} does not fill its %n byte</numerusform>
            <numerusform>tensor {name} of shape {shape} does not fill its %n bytes</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer has %n tokens, but its {key} has {entries}</source>
        <translation>
            <numerusform>its tokenizer has %n token, but its {key} has {entries}</numerusform>
            <numerusform>its tokenizer has %n tokens, but its {key} has {entries}</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>VRAM ran short in an answer: %n experts are left in it, so answers are slower.</source>
        <translation>
            <numerusform>VRAM ran short in an answer: %n expert is left in it, so answers are slower.</numerusform>
            <numerusform>VRAM ran short in an answer: %n experts are left in it, so answers are slower.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/executors/hybrid/expert_slots.py"/>
        <source>The experts of %n layers are stored in an order that only the CPU can use: none of them has a place in VRAM.</source>
        <translation>
            <numerusform>The experts of %n layer are stored in an order that only the CPU can use: none of them has a place in VRAM.</numerusform>
            <numerusform>The experts of %n layers are stored in an order that only the CPU can use: none of them has a place in VRAM.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/executors/kv_cache.py"/>
        <source>there is no room for the memory of a conversation of %n tokens</source>
        <translation>
            <numerusform>there is no room for the memory of a conversation of %n token</numerusform>
            <numerusform>there is no room for the memory of a conversation of %n tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>Reading RAM with %n threads</source>
        <translation>
            <numerusform>Reading RAM with %n thread</numerusform>
            <numerusform>Reading RAM with %n threads</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/hub/downloads.py"/>
        <source>%n of its downloads cannot be read</source>
        <translation>
            <numerusform>%n of its downloads cannot be read</numerusform>
            <numerusform>%n of its downloads cannot be read</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/hub/repository.py"/>
        <source>it holds %n models</source>
        <translation>
            <numerusform>it holds %n model</numerusform>
            <numerusform>it holds %n models</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/models/shortcuts.py"/>
        <source>%n experts per token cannot be used</source>
        <translation>
            <numerusform>%n expert per token cannot be used</numerusform>
            <numerusform>%n experts per token cannot be used</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/models/shortcuts.py"/>
        <source>%n experts per token cannot be deferred</source>
        <translation>
            <numerusform>%n expert per token cannot be deferred</numerusform>
            <numerusform>%n experts per token cannot be deferred</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Asked for: %n experts per token instead of the {trained} that the model was trained with. Weights are read in proportion faster; answers get worse, noticeably below three quarters.</source>
        <translation>
            <numerusform>Asked for: %n expert per token instead of the {trained} that the model was trained with. Weights are read in proportion faster; answers get worse, noticeably below three quarters.</numerusform>
            <numerusform>Asked for: %n experts per token instead of the {trained} that the model was trained with. Weights are read in proportion faster; answers get worse, noticeably below three quarters.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/explain.py"/>
        <source>VRAM has room for copies of all %n experts; they lie in RAM as well.</source>
        <translation>
            <numerusform>VRAM has room for a copy of its %n expert; it lies in RAM as well.</numerusform>
            <numerusform>VRAM has room for copies of all %n experts; they lie in RAM as well.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/explain.py"/>
        <source>%n tokens of the {most} this model allows</source>
        <translation>
            <numerusform>%n token of the {most} this model allows</numerusform>
            <numerusform>%n tokens of the {most} this model allows</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/explain.py"/>
        <source>%n heads</source>
        <translation>
            <numerusform>%n head</numerusform>
            <numerusform>%n heads</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/explain.py"/>
        <source>%n bytes</source>
        <translation>
            <numerusform>%n byte</numerusform>
            <numerusform>%n bytes</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/machines.py"/>
        <source>{what} in %n channels</source>
        <translation>
            <numerusform>{what} in %n channel</numerusform>
            <numerusform>{what} in %n channels</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/machines.py"/>
        <source>%n sockets cannot be planned with</source>
        <translation>
            <numerusform>%n socket cannot be planned with</numerusform>
            <numerusform>%n sockets cannot be planned with</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/plan.py"/>
        <source>Together {time} ms for a token in a conversation of %n tokens: {rate} tok/s.</source>
        <translation>
            <numerusform>Together {time} ms for a token in a conversation of %n token: {rate} tok/s.</numerusform>
            <numerusform>Together {time} ms for a token in a conversation of %n tokens: {rate} tok/s.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/planner.py"/>
        <source>%n threads cannot be used</source>
        <translation>
            <numerusform>%n thread cannot be used</numerusform>
            <numerusform>%n threads cannot be used</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/planner.py"/>
        <source>this CPU has %n logical cores, and more threads than cores are only slower</source>
        <translation>
            <numerusform>this CPU has %n logical core, and more threads than cores are only slower</numerusform>
            <numerusform>this CPU has %n logical cores, and more threads than cores are only slower</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/predict.py"/>
        <source>limited by attention over the conversation, %n tokens of it</source>
        <translation>
            <numerusform>limited by attention over the conversation, %n token of it</numerusform>
            <numerusform>limited by attention over the conversation, %n tokens of it</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/predict.py"/>
        <source>limited by the fixed cost of each layer: %n layers at about {each:.0f} µs (an estimate)</source>
        <translation>
            <numerusform>limited by the fixed cost of each layer: %n layer at about {each:.0f} µs (an estimate)</numerusform>
            <numerusform>limited by the fixed cost of each layer: %n layers at about {each:.0f} µs (an estimate)</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/token_time.py"/>
        <source>fixed costs of %n layers: {each:.1f} µs each, and {waits:.1f} µs of waiting with {threads}</source>
        <translation>
            <numerusform>fixed costs of %n layer: {each:.1f} µs, and {waits:.1f} µs of waiting with {threads}</numerusform>
            <numerusform>fixed costs of %n layers: {each:.1f} µs each, and {waits:.1f} µs of waiting with {threads}</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/token_time.py"/>
        <source>starting the GPU&apos;s work in %n layers: {each:.1f} µs each</source>
        <translation>
            <numerusform>starting the GPU&apos;s work in %n layer: {each:.1f} µs</numerusform>
            <numerusform>starting the GPU&apos;s work in %n layers: {each:.1f} µs each</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/token_time.py"/>
        <source>handing over between GPU and CPU in %n layers: {each:.1f} µs each, and {waits:.1f} µs of waiting with {threads}</source>
        <translation>
            <numerusform>handing over between GPU and CPU in %n layer: {each:.1f} µs, and {waits:.1f} µs of waiting with {threads}</numerusform>
            <numerusform>handing over between GPU and CPU in %n layers: {each:.1f} µs each, and {waits:.1f} µs of waiting with {threads}</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/runtime/engine.py"/>
        <source>it has %n tokens and the context holds {context}</source>
        <translation>
            <numerusform>it has %n token and the context holds {context}</numerusform>
            <numerusform>it has %n tokens and the context holds {context}</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>A window of %n tokens cannot be used</source>
        <translation>
            <numerusform>A window of %n token cannot be used</numerusform>
            <numerusform>A window of %n tokens cannot be used</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>A stride of %n tokens cannot be used</source>
        <translation>
            <numerusform>A stride of %n token cannot be used</numerusform>
            <numerusform>A stride of %n tokens cannot be used</numerusform>
        </translation>
    </message>
</context>
</TS>
