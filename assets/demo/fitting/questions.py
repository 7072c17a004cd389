"""The everyday questions whose answers the dense model wrote for us. Held-out topics never meet the fitting."""

from __future__ import annotations

import random

COUNTRIES = """
Germany Italy Spain Japan China India Brazil Canada Egypt Kenya Norway Sweden Greece Turkey Mexico Peru Poland
Portugal Russia Australia Ireland Austria Argentina Thailand Vietnam Nigeria
"""

TOPICS = """
photosynthesis; gravity; the water cycle; black holes; the Roman Empire; the French Revolution; machine learning;
vaccines; inflation; democracy; the solar system; climate change; DNA; electricity; the stock market; how bread is
made; volcanoes; earthquakes; the moon; sleep; nutrition; meditation; yoga; cooking rice; gardening; coffee; tea;
chess; football; basketball; swimming; running a marathon; learning a language; writing a cover letter; time
management; public speaking; saving money; planning a trip; Paris; London; New York; Tokyo; the Great Wall of China;
Shakespeare; Mozart; Albert Einstein; Isaac Newton; Marie Curie; Leonardo da Vinci; Abraham Lincoln; computers; the
internet; operating systems; Python; Linux; databases; algorithms; encryption; open source software; artificial
intelligence; robots; space travel; airplanes; trains; bicycles; electric cars; batteries; solar panels; recycling;
oceans; whales; dogs; cats; birds; bees; trees; rainforests; deserts; rivers; mountains; weather; seasons; light;
sound; atoms; chemical reactions; metals; water; fractions; prime numbers; probability; geometry; calculus;
statistics; economics; psychology; philosophy; ethics; law; medicine; the heart; the brain; the immune system;
exercise; stress; friendship; families; education; libraries; books; poetry; painting; music; film; theatre;
photography; dance; fashion; architecture; agriculture; fishing; forests; trade; money; taxes; elections; human
rights; the United Nations; World War II; the Cold War; ancient Egypt; ancient Greece; the Renaissance; the Industrial
Revolution; the printing press
""".replace("\n", " ").split(";")

FORMS = (
    "What is {t}?",
    "Explain {t} in simple terms.",
    "Tell me three facts about {t}.",
    "Why is {t} important?",
    "Write a short paragraph about {t}.",
    "Give me some advice about {t}.",
    "What should a beginner know about {t}?",
    "Write a short story that involves {t}.",
    "List the main points about {t}.",
    "How does {t} affect everyday life?",
    "Write a poem about {t}.",
    "What are common misunderstandings about {t}?",
)
COUNTRY_FORMS = ("What is the capital of {t}?", "Tell me about {t}.", "What is {t} famous for?")

PLAIN = """
Hello!; Hi, how are you?; Who are you?; What can you do?; Good morning!; Thank you for your help.; Can you help me
with my homework?; Tell me a joke.; What is 2 + 2?; What is 15 plus 27?; What is 7 times 8?; How many days are in a
year?; How many hours are in a day?; What colour is the sky?; What is the largest planet?; What is the tallest
mountain in the world?; Who wrote Romeo and Juliet?; Who wrote Hamlet?; Who painted the Mona Lisa?; What is the
boiling point of water?; What is the largest ocean?; How many continents are there?; What is the chemical symbol for
gold?; What is H2O?; What is the speed of light?; Who was the first president of the United States?; What language is
spoken in Brazil?; Translate "hello" into French.; Write an email to my boss asking for a day off.; Write a thank you
note.; Give me a recipe for pancakes.; Give me a recipe for tomato soup.; How do I boil an egg?; How do I make tea?;
Suggest a name for my cat.; What should I cook for dinner?; Write a Python function that adds two numbers.; Write a
Python function that reverses a string.; What is a for loop in Python?; What is a list in Python?; How do I open a
file in Python?; What is HTML?; Write a haiku about spring.; Summarize the story of Cinderella.; Tell me a bedtime
story.; What is the meaning of life?; How can I sleep better?; How can I learn faster?; What is a noun?; What is the
difference between a lake and a sea?; Rewrite this sentence: I goed to the store.; Correct the grammar: She don't like
apples.; Make a list of five fruits.; Name three primary colours.; Name five animals.; What rhymes with cat?; What is
the opposite of hot?; Is the earth flat?; Why is the sky blue?; Why do leaves change colour?; How do airplanes fly?;
How far is the moon?; What is a healthy breakfast?; What should I pack for a beach trip?; Write a birthday greeting
for my mother.; Plan a weekend in London.; What are good books for children?
""".replace("\n", " ").split(";")


def _questions() -> tuple[list[str], list[str]]:
    chance = random.Random(7)
    topics = [topic.strip() for topic in TOPICS]
    apart = chance.sample(topics, 16)
    about = dict.fromkeys(chance.choice(COUNTRY_FORMS).format(t=country) for country in COUNTRIES.split())
    fitted = [*about, *(question.strip() for question in PLAIN)]
    fitted += [form.format(t=topic) for topic in topics if topic not in apart for form in chance.sample(FORMS, 3)]
    held_out = [form.format(t=topic) for topic in sorted(apart) for form in chance.sample(FORMS, 4)]
    chance.shuffle(fitted)
    return fitted[:240], held_out


FITTED, HELD_OUT = _questions()
