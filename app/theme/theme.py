"""The live theme: which tokens apply now, and everything Qt needs to look like them."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt, QTemporaryDir, Signal, Slot
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QIcon, QPalette
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget

from app.theme.icons import icon_source, make_icon
from app.theme.stylesheet import build_stylesheet
from app.theme.tokens import DARK, LIGHT, Tokens

#: What the user may choose.
MODES = ("system", "light", "dark")
#: Body text in logical pixels; a larger system font wins.
BODY_PX = 14
DENSITIES = ("comfortable", "compact")


class Theme(QObject):
    """One per QApplication, reached through `theme()`.

    `changed` fires after the new colours are in place; custom painting then calls `update()`.
    """

    changed = Signal()

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._app = app
        self._mode, self._zoom, self._density, self._reduced_motion = "system", 1.0, "comfortable", False
        self._tokens = LIGHT
        self._applied: tuple[object, ...] = ()
        self._sheet_icons = QTemporaryDir()
        self._blink_ms = app.cursorFlashTime()
        app.setStyle("Fusion")
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._follow_system)

    @property
    def tokens(self) -> Tokens:
        return self._tokens

    @property
    def dark(self) -> bool:
        return self._tokens is DARK

    @property
    def mode(self) -> str:
        return self._mode

    @property
    def zoom(self) -> float:
        return self._zoom

    @property
    def compact(self) -> bool:
        return self._density == "compact"

    @property
    def reduced_motion(self) -> bool:
        """Nothing fades, slides or blinks that need not."""
        return self._reduced_motion

    def set_mode(self, mode: str) -> None:
        """One of MODES. Takes effect at once in every window."""
        self.set_look(mode, self._zoom, self._density, self._reduced_motion)

    def set_look(self, mode: str, zoom: float, density: str, reduced_motion: bool) -> None:
        """mode: one of MODES; zoom: 1.0 is the usual size of text; density: one of DENSITIES. Takes effect at once."""
        if mode not in MODES:
            raise ValueError(f"theme mode {mode!r}")
        if density not in DENSITIES:
            raise ValueError(f"density {density!r}")
        self._mode, self._zoom, self._density, self._reduced_motion = mode, zoom, density, reduced_motion
        self._apply(self._wanted())

    def px(self, pixels: float) -> int:
        """A length that belongs to text, at the zoom that was chosen."""
        return round(pixels * self._zoom)

    def colour(self, name: str) -> QColor:
        """A token as a QColor."""
        return QColor(getattr(self._tokens, name))

    def icon(self, name: str, role: str = "muted") -> QIcon:
        """assets/icons/<name>.svg in the colour of token `role`, as it is now. See `bind_icon` for one that follows."""
        return make_icon(name, getattr(self._tokens, role), self._tokens.faint)

    def bind_icon(self, button: QAbstractButton, name: str, role: str = "muted") -> None:
        """Gives a button (or replaces) an icon that follows the theme for as long as the button lives."""
        for old in button.findChildren(_BoundIcon, options=Qt.FindChildOption.FindDirectChildrenOnly):
            old.setParent(None)
            old.deleteLater()
        _BoundIcon(self, button, name, role)

    def mono(self, pixels: int = BODY_PX - 2) -> QFont:
        """The system's fixed-width font at that size, zoomed."""
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        font.setPixelSize(self.px(pixels))
        return font

    def _wanted(self) -> Tokens:
        if self._mode == "system":
            dark = QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark
            return DARK if dark else LIGHT
        return DARK if self._mode == "dark" else LIGHT

    @Slot()
    def _follow_system(self) -> None:
        if self._mode == "system":
            self._apply(self._wanted())

    def _apply(self, tokens: Tokens) -> None:
        wanted = (tokens.name, self._zoom, self._density, self._reduced_motion)
        if wanted == self._applied:
            return
        self._tokens, self._applied = tokens, wanted
        self._still()
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
        body = max(BODY_PX, font.pixelSize())
        font.setPixelSize(self.px(body))
        if font != self._app.font():
            self._app.setFont(font)
        self._app.setPalette(build_palette(tokens))
        mono = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()
        icons = self._write_sheet_icons(tokens)
        self._app.setStyleSheet(build_stylesheet(tokens, body, mono, icons, self._zoom, self.compact))
        self.changed.emit()

    def _still(self) -> None:
        """What Qt itself moves: the text cursor, menus and boxes that open."""
        self._app.setCursorFlashTime(0 if self._reduced_motion else self._blink_ms)
        for effect in (Qt.UIEffect.UI_AnimateMenu, Qt.UIEffect.UI_AnimateCombo, Qt.UIEffect.UI_AnimateTooltip):
            self._app.setEffectEnabled(effect, not self._reduced_motion)

    def _write_sheet_icons(self, tokens: Tokens) -> dict[str, str]:
        """A style sheet takes its images from files only, so the few it uses are written in this theme's colours."""
        wanted = {f"icon_{way}": (f"chevron-{way}", tokens.muted) for way in ("up", "down", "right")}
        wanted |= {"icon_check": ("check", tokens.accent_ink), "icon_chosen": ("check", tokens.accent)}
        paths = {}
        for key, (name, colour) in wanted.items():
            path = Path(self._sheet_icons.path()) / f"{tokens.name}-{key}.svg"
            path.write_text(icon_source(name).replace("currentColor", colour), encoding="utf-8")
            paths[key] = path.as_posix()
        return paths


class _BoundIcon(QObject):
    """Keeps one button's icon in the theme's colours."""

    def __init__(self, source: Theme, button: QAbstractButton, name: str, role: str) -> None:
        super().__init__(button)
        self._theme, self._button, self._name, self._role = source, button, name, role
        source.changed.connect(self._refresh)
        self._refresh()

    @Slot()
    def _refresh(self) -> None:
        self._button.setIcon(self._theme.icon(self._name, self._role))


def theme() -> Theme:
    """The theme of the running QApplication, made and applied on first use."""
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        raise RuntimeError("theme() needs a QApplication")
    found = app.findChild(Theme, options=Qt.FindChildOption.FindDirectChildrenOnly)
    if found is None:
        found = Theme(app)
        found.set_mode("system")
    return found


def restyle(widget: QWidget) -> None:
    """Makes the style sheet look again at a widget whose dynamic property has changed."""
    style = widget.style()
    style.unpolish(widget)
    style.polish(widget)
    QApplication.sendEvent(widget, QEvent(QEvent.Type.StyleChange))
    widget.update()


def build_palette(t: Tokens) -> QPalette:
    """For everything the style sheet does not reach: selections, placeholders, links, tool tips."""
    palette = QPalette()
    roles = {
        QPalette.ColorRole.Window: t.bg,
        QPalette.ColorRole.WindowText: t.text,
        QPalette.ColorRole.Base: t.panel,
        QPalette.ColorRole.AlternateBase: t.side,
        QPalette.ColorRole.Text: t.text,
        QPalette.ColorRole.Button: t.panel,
        QPalette.ColorRole.ButtonText: t.text,
        QPalette.ColorRole.BrightText: t.bad,
        QPalette.ColorRole.PlaceholderText: t.faint,
        QPalette.ColorRole.Highlight: t.accent,
        QPalette.ColorRole.HighlightedText: t.accent_ink,
        QPalette.ColorRole.Link: t.accent,
        QPalette.ColorRole.LinkVisited: t.accent,
        QPalette.ColorRole.ToolTipBase: t.panel,
        QPalette.ColorRole.ToolTipText: t.text,
        QPalette.ColorRole.Light: t.panel,
        QPalette.ColorRole.Midlight: t.hover,
        QPalette.ColorRole.Mid: t.line,
        QPalette.ColorRole.Dark: t.line,
        QPalette.ColorRole.Shadow: t.line,
        QPalette.ColorRole.Accent: t.accent,
    }
    for role, colour in roles.items():
        palette.setColor(role, QColor(colour))
    for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, role, QColor(t.faint))
    return palette
