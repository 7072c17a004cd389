"""The pages of the settings, in their order. Each is a record in a file of its own."""

from app.settings.options import Page
from app.settings.pages import about, answers, appearance, general, models, network, performance, privacy, shortcuts

PAGES: tuple[Page, ...] = (
    general.PAGE,
    appearance.PAGE,
    answers.PAGE,
    models.PAGE,
    performance.PAGE,
    network.PAGE,
    privacy.PAGE,
    shortcuts.PAGE,
    about.PAGE,
)
